"""The table of runs: what each state shows, and what gives way where there is no room."""

import io
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from trainwarden.controller.cluster.console.reading import clean
from trainwarden.controller.cluster.console.table import Look, bar, jobs_table

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


def run(name: str, **status: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "team-a", "creationTimestamp": "2026-05-04T10:00:00Z"}
    return {"metadata": metadata, "spec": {"trainJob": name, "uid": "u"}, "status": status}


def rule(name: str, verdict: str, **fields: Any) -> dict[str, Any]:
    return {"policy": "p", "rule": name, "mode": "Enforce", "severity": "warning", "verdict": verdict, **fields}


def printed(look: Look, *runs: dict[str, Any]) -> list[str]:
    console = Console(file=io.StringIO(), width=look.width, color_system=None)
    console.print(jobs_table(runs, NOW, look))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_a_run_shows_progress_time_left_loss_state_gpus_age_and_alerts() -> None:
    waiting = {"id": "d", "type": "Delete", "state": "Waiting", "reason": "Approval"}
    job = run(
        "bert", state="Running", progress="50 %", step=500, totalSteps=1000, eta="3h 10m", loss="2.31", gpus=8,
        rules=[rule("flat", "Firing", since="2026-05-04T11:48:00Z", actions=[waiting])],
    )  # fmt: skip

    assert printed(Look(width=200), job) == [
        "NAME   PROGRESS                STEP      ETA   LOSS   STATE     GPUS   AGE   ALERTS",
        "bert   ██████░░░░░░  50%   500/1000   3h 10m   2.31   Running      8    2h   Delete needs approval +1",
    ]


def test_all_columns_and_the_namespace_are_shown_when_asked_for() -> None:
    job = run(
        "bert", state="Suspended", suspendedBy="a1", progress="50 %", eta="2h", etaLow="1h", etaHigh="3h",
        gpuHours=12.5, savedGpuHours=3, cost=100.5, stepsPerSecond=2.5, source="bridge",
        checkpoint={"step": 480, "path": "/c"}, attempt="x-y",
    )  # fmt: skip

    head, line = printed(Look(width=400, wide=True, namespaces=True), job)

    wide = ["STEPS/S", "GPU-HOURS", "SAVED", "COST", "CHECKPOINT", "SOURCE", "ATTEMPT"]
    assert head.split()[:3] == ["NAMESPACE", "NAME", "PROGRESS"]
    assert head.split()[-8:] == [*wide, "ALERTS"]
    for shown in (
        "team-a",
        "2h (1h to 3h)",
        "Suspended by policy",
        "2.5",
        "12.5",
        "100.5",
        "step 480",
        "bridge",
        "x-y",
    ):
        assert shown in line


def test_a_run_without_a_status_is_shown_all_the_same() -> None:
    job = run("new")
    del job["status"]

    assert printed(Look(width=120), job)[1] == "new    ············    ?                       Unknown           2h"


def test_what_another_version_wrote_is_shown_as_far_as_it_goes() -> None:
    odd = run("odd", state="Dreaming", progress="many", step="x", rules=["?"], metrics=3, loss={"a": 1}, future=[1])

    assert "Dreaming" in printed(Look(width=200), odd)[1]


@pytest.mark.parametrize(
    ("share", "drawn"),
    [
        (0.0, "------------   0%"),
        (50.0, "######------  50%"),
        (99.6, "###########-  99%"),  # full is only what is done
        (100.0, "############ 100%"),
        (None, "............    ?"),
    ],
)
def test_a_bar_of_plain_characters(share: float | None, drawn: str) -> None:
    assert bar(share, "green", blocks=False).plain == drawn


@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_a_narrow_terminal_never_cuts_numbers(width: int) -> None:
    actions = [{"id": "d", "type": "Delete", "state": "Waiting", "reason": "Approval"}]
    job = run(
        "a-run-with-a-name-that-is-as-long-as-names-may-be-nearly", state="Suspended", suspendedBy="s", loss="0.03125",
        progress="88 %", step=62000, totalSteps=100000, eta="3h 10m", gpus=16,
        rules=[rule("f", "Firing", actions=actions)],
    )  # fmt: skip

    lines = printed(Look(width=width), job)

    assert len(lines) == 2  # nothing is broken into two lines
    assert all(len(line) <= width for line in lines)
    assert " 88%" in lines[1]
    assert "3h 10m" in lines[1]
    assert "0.03125" in lines[1]
    assert "a-run-with-a-name" in lines[1]


def test_alerts_are_shown_before_steps_gpus_and_age() -> None:
    job = run(
        "bert", state="Failed", progress="3 %", step=1, gpus=1, rules=[rule("nan", "Firing", severity="critical")]
    )

    head = printed(Look(width=70), job)[0]

    assert "ALERTS" in head
    assert "STEP" not in head


def test_what_a_run_reports_can_not_steer_the_terminal() -> None:
    job = run("evil", state="Running", loss="1\x1b[2J\x07\u202e", rules=[rule("a\nb\x9b31m", "Firing")])

    text = "\n".join(printed(Look(width=200), job))

    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(text)
    assert clean("a\tb\r\nc\x1b]0;x\x07") == "a b  c]0;x"
