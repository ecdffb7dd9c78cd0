"""An answer is only given to what waits for one, and a resume only asked for what trainwarden suspended."""

from typing import Any

import pytest

from trainwarden.controller.cluster.console.answering import check_answer, check_resume, question
from trainwarden.controller.cluster.console.errors import ConsoleError

APPROVE, DENY, RESUME = "trainwarden.dev/approve", "trainwarden.dev/deny", "trainwarden.dev/resume"


def action(id_: str, type_: str, state: str = "Waiting", reason: str = "Approval", message: str = "") -> dict[str, Any]:
    return {"id": id_, "type": type_, "state": state, "reason": reason, "message": message}


def run(*actions: dict[str, Any], annotations: dict[str, str] | None = None, **status: Any) -> dict[str, Any]:
    rules = [{"policy": "team-a/p", "rule": "flat", "verdict": "Firing", "actions": list(actions)}]
    metadata = {"name": "job", "namespace": "team-a", "annotations": annotations}
    return {"metadata": metadata, "status": {"rules": rules, **status}}


DONE = action("nnn1", "Notify", "Done", "Delivered", "told default")


def problem(item: dict[str, Any], wanted: str | None = None) -> str:
    with pytest.raises(ConsoleError) as caught:
        question(item, wanted)
    return str(caught.value)


@pytest.mark.parametrize("wanted", [None, "abc123", "abc", "delete", "Delete"])
def test_the_action_that_waits_is_found(wanted: str | None) -> None:
    assert question(run(DONE, action("abc123", "Delete")), wanted).id == "abc123"


def test_the_one_that_waits_is_meant_where_another_of_its_type_is_over() -> None:
    over = action("old111", "Delete", "Refused", "ApprovalExpired")

    assert question(run(over, action("new222", "Delete")), "delete").id == "new222"


def test_without_a_name_one_of_several_is_not_guessed() -> None:
    two = run(action("abc123", "Delete"), action("def456", "Stop"))

    assert problem(two) == (
        "2 actions of team-a/job wait; name one: Delete of team-a/p/flat (abc123), Stop of team-a/p/flat (def456)"
    )
    assert question(two, "stop").id == "def456"
    assert "names 2 actions" in problem(run(action("abc123", "Delete"), action("abc456", "Delete")), "delete")
    assert "names 2 actions" in problem(run(action("abc123", "Delete"), action("abc456", "Delete")), "abc")


def test_what_does_not_wait_is_not_answered() -> None:
    assert problem(run()) == "nothing of team-a/job waits for an answer; no rule of it has begun an action"
    assert problem(run(DONE)) == (
        "nothing of team-a/job waits for an answer; its actions: Notify of team-a/p/flat (nnn1) Done"
    )
    assert problem(run(DONE), "nnn1") == "Notify of team-a/p/flat (nnn1) waits for no answer; it is Done: told default"
    young = action("yyy1", "Delete", "Waiting", "YoungRun", "the run is protected")
    assert problem(run(young), "delete").endswith("waits for no answer; it is Waiting: the run is protected")
    assert "has no action 'zzz'" in problem(run(DONE), "zzz")


def test_an_answer_is_not_written_over_one_that_is_not_taken_yet() -> None:
    assert not check_answer(run(), APPROVE, "abc")
    assert check_answer(run(annotations={APPROVE: "abc"}), APPROVE, "abc")
    for standing in ({APPROVE: "other"}, {DENY: "abc"}):
        with pytest.raises(ConsoleError, match="an answer was given before and is not taken yet"):
            check_answer(run(annotations=standing), APPROVE, "abc")


def test_only_what_trainwarden_suspended_is_resumed() -> None:
    assert not check_resume(run(state="Suspended", suspendedBy="s1"))
    assert check_resume(run(state="Queued", suspendedBy="s1", annotations={RESUME: "now"}))
    with pytest.raises(ConsoleError, match="team-a/job is Running; only a suspended run is resumed"):
        check_resume(run(state="Running"))
    with pytest.raises(
        ConsoleError, match="was not suspended by trainwarden; whoever suspended it resumes it: kubectl"
    ):
        check_resume(run(state="Suspended"))
    with pytest.raises(ConsoleError, match="was not suspended by trainwarden; it waits in its queue"):
        check_resume(run(state="Queued"))
