"""The summary at a run's end says each thing once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from trainwarden.controller.local.decision_log import DecisionLog
from trainwarden.controller.local.session import Ending
from trainwarden.controller.local.summary import summary
from trainwarden.controller.local.workspace import RecordState, RunRecord
from trainwarden.notifiers.preview import sample
from trainwarden.policies.decision import Action, ActionState, ActionType, CheckpointMode

NOW = datetime(2026, 11, 28, 3, 14, tzinfo=UTC)


def ending(times: int) -> Ending:
    """Of a run in which a rule fired some times, and people were told each time."""
    log = DecisionLog(None)
    fired = sample().decision
    for number in range(times):
        action = Action(
            id=f"notify-{number}",
            type=ActionType.NOTIFY,
            index=0,
            after=timedelta(0),
            checkpoint=CheckpointMode.REQUIRED,
            channels=(),
            timeout=timedelta(minutes=10),
            max_checkpoint_age=None,
        )
        said = f"loss is {number}"
        log.decisions.append(msgspec.structs.replace(fired, message=said))
        log.decisions.append(
            msgspec.structs.replace(fired, action=action, action_state=ActionState.DONE, message="told json #1")
        )
    record = RunRecord("train", "3f9a0c", "uid", "local", ["python"], "/", NOW, state=RecordState.COMPLETE)
    delivered = [("json #1", "delivered", "")] * times + [("slack #2", "failed", "HTTP 404")] * times
    return Ending(0, record, log, training_code=0, seconds=90.0, deliveries=delivered)


def test_what_happened_again_and_again_is_said_once_with_its_number() -> None:
    assert summary(ending(8)) == [
        "local/train: complete after 1m 30s",
        "fired    team-a/flat-loss/plateau, 8 times, at last: loss is 7",
        "did      Notify Done, 8 times, at last: told json #1",
        "told     json #1, 8 times",
        "not told slack #2, 8 times, at last: HTTP 404",
    ]


def test_what_happened_once_is_said_as_it_was() -> None:
    assert summary(ending(1))[1:] == [
        "fired    team-a/flat-loss/plateau: loss is 0",
        "did      Notify Done: told json #1",
        "told     json #1",
        "not told slack #2: HTTP 404",
    ]


def test_a_run_without_an_incident_says_so() -> None:
    assert summary(ending(0)) == ["local/train: complete after 1m 30s", "fired    nothing"]
