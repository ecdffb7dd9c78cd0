"""`decisions` puts what the status tells and what Events tell into one list, each thing once."""

from typing import Any

from trainwarden.controller.cluster.console.deciding import decisions

RUN: dict[str, Any] = {
    "metadata": {"name": "job", "namespace": "team-a"},
    "status": {
        "rules": [
            {
                "policy": "team-a/p",
                "rule": "flat",
                "verdict": "Firing",
                "since": "2026-05-04T11:48:00Z",
                "actions": [
                    {
                        "id": "a1",
                        "type": "Suspend",
                        "state": "Failed",
                        "message": "no checkpoint",
                        "time": "2026-05-04T11:50:00Z",
                    },
                    {"id": "a2", "type": "Delete"},
                ],
            },
            {"policy": "q", "rule": "nan", "verdict": "Inactive"},
        ]
    },
}


def event(reason: str, message: str, time: str, component: str = "trainwarden") -> dict[str, Any]:
    return {"reason": reason, "message": message, "lastTimestamp": time, "source": {"component": component}}


def test_what_is_told_twice_is_listed_once_and_in_order() -> None:
    events = [
        event("SuspendFailed", "team-a/p/flat: no checkpoint", "2026-05-04T11:50:01Z"),
        event("Firing", "team-a/p/flat: the loss is flat", "2026-05-04T11:48:00Z"),
        event("Resolved", "team-a/p/flat: it moves again", "2026-05-04T10:00:00Z"),
        event("NotifyWouldAct", "q/nan: would have told", "2026-05-04T09:00:00Z"),
        event("Created", "made a pod", "2026-05-04T09:00:00Z", component="jobset"),
    ]

    found = [(entry.what, entry.state, entry.rule, entry.message, entry.action) for entry in decisions(RUN, events)]

    assert found == [
        ("Notify", "WouldAct", "q/nan", "would have told", ""),
        ("Resolved", "", "team-a/p/flat", "it moves again", ""),
        ("Firing", "", "team-a/p/flat", "the loss is flat", ""),
        ("Suspend", "Failed", "team-a/p/flat", "no checkpoint", "a1"),
    ]


def test_the_same_at_another_time_is_another_decision() -> None:
    again = event("SuspendFailed", "team-a/p/flat: no checkpoint", "2026-05-04T11:40:00Z")

    assert [entry.what for entry in decisions(RUN, [again])] == ["Suspend", "Firing", "Suspend"]


def test_a_run_without_a_status_has_no_decisions() -> None:
    assert decisions({"metadata": {}}, []) == []
