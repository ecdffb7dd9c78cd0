"""The executor over a real nats-server: whose action it does, when it does not, and what it says of checkpoints."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from tests.controller.engines import Outcome, hearing
from tests.reporters.nats_server import eventually

from trainwarden.controller.bus import Bus
from trainwarden.controller.cancelling import end_all
from trainwarden.controller.executor import AUDITED, LATER, Executor
from trainwarden.controller.payloads import encode
from trainwarden.controller.publishing import publish_result
from trainwarden.controller.subjects import job_subject
from trainwarden.policies.decision import (
    Action,
    ActionRequest,
    ActionResult,
    ActionState,
    ActionType,
    Decision,
    Evidence,
    Mode,
    PolicyRef,
    Proof,
    RunRef,
    Severity,
    Verdict,
)

RUN = RunRef(namespace="team-a", job="bert", uid="u-1", attempt="a-1")
SAVED = Proof(step=40, path="/data/step-40")


@dataclass
class Place:
    """A job of one attempt whose training has no reporter."""

    attempt: str = "a-1"
    sees_files: bool = False
    alive: bool = True
    resume_command: str = "resume it"
    ended: list[Proof | None] = field(default_factory=list)
    brakes: int = 0  # objections that are left
    reason: str = LATER
    forgotten: list[str] = field(default_factory=list)

    async def objection(self, request: ActionRequest) -> tuple[str, str] | None:
        self.brakes -= 1
        return (self.reason, "20 runs were ended in the last hour") if self.brakes >= 0 else None

    def forget(self, action_id: str) -> None:
        self.forgotten.append(action_id)

    async def wait_ended(self) -> None:
        await asyncio.Event().wait()

    async def problem_of(self, proof: Proof) -> str:
        return ""

    async def end(self, request: ActionRequest, *, proof: Proof | None) -> None:
        self.ended.append(proof)


def request(id_: str = "s-1", run: RunRef = RUN, **changes: Any) -> ActionRequest:
    action = Action(
        id=id_, type=ActionType.SUSPEND, index=0, after=timedelta(0), max_checkpoint_age=timedelta(minutes=10)
    )
    decision = Decision(
        id=f"d-{id_}",
        time=datetime.now(UTC),
        run=run,
        policy=PolicyRef("TrainingPolicy", "team-a", "guard", "p", 1, Mode.ENFORCE),
        rule="flat",
        verdict=Verdict.FIRING,
        severity=Severity.WARNING,
        reason="Due",
        message="Suspend was requested",
        evidence=Evidence(),
        action=action,
        action_state=ActionState.REQUESTED,
    )
    known = {"newest_checkpoint": SAVED, "newest_checkpoint_age": timedelta(minutes=2)}
    return ActionRequest(action=action, decision=decision, **{**known, **changes})


async def ask(bus: Bus, asked: ActionRequest) -> None:
    await bus.store(job_subject("action", "team-a", "bert"), encode(asked), message_id=asked.action.id)


@asynccontextmanager
async def executing(bus: Bus, target_of: Callable[[RunRef], Place | None]) -> AsyncIterator[Outcome]:
    async with hearing(bus) as heard:
        task = asyncio.create_task(Executor(bus, target_of).run())
        try:
            yield heard
        finally:
            await end_all([task])


def last(heard: Outcome, id_: str = "s-1") -> ActionResult | None:
    found = [result for result in heard.results if result.action_id == id_ and result.state.final]
    assert len(found) <= 1
    return found[0] if found else None


async def done(bus: Bus, place: Place | None, asked: ActionRequest) -> ActionResult:
    await ask(bus, asked)
    async with executing(bus, lambda run: place) as heard:
        await eventually(lambda: last(heard, asked.action.id))
    result = last(heard, asked.action.id)
    assert result is not None
    return result


@pytest.mark.parametrize(("sees_files", "how"), [(True, "was checked"), (False, "was announced by the training")])
async def test_a_fresh_known_checkpoint_will_do_and_is_called_no_more_than_it_is(
    bus: Bus, sees_files: bool, how: str
) -> None:
    place = Place(sees_files=sees_files)

    result = await done(bus, place, request())

    assert (result.state, result.proof) == (ActionState.DONE, SAVED)
    assert result.message == (
        f"suspended after the newest checkpoint of step 40 {how} (/data/step-40); all its processes are gone"
    )
    assert place.ended == [SAVED]


async def test_an_old_known_checkpoint_will_not_do(bus: Bus) -> None:
    place = Place()

    result = await done(bus, place, request(newest_checkpoint_age=timedelta(minutes=11)))

    assert (result.state, result.reason) == (ActionState.REFUSED, "NoCheckpoint")
    assert "the newest checkpoint's age is 11m, at most 10m will do" in result.message
    assert place.ended == []


@pytest.mark.parametrize(
    ("place", "reason"), [(None, "NoJob"), (Place(attempt="a-2"), "AttemptOver"), (Place(alive=False), "JobEnded")]
)
async def test_what_was_asked_of_another_job_or_attempt_is_not_done(bus: Bus, place: Place | None, reason: str) -> None:
    result = await done(bus, place, request())

    assert (result.state, result.reason) == (ActionState.REFUSED, reason)
    assert place is None or place.ended == []


async def test_an_attempt_that_begins_while_a_checkpoint_is_asked_for_is_left_alone(bus: Bus) -> None:
    @dataclass
    class Restarting(Place):
        async def objection(self, request: ActionRequest) -> tuple[str, str] | None:
            self.attempt = "a-2"
            return None

    place = Restarting()

    result = await done(bus, place, request())

    assert (result.state, result.reason) == (ActionState.REFUSED, "AttemptOver")
    assert result.message == "another attempt has begun meanwhile"
    assert place.ended == []


async def test_what_the_engine_has_taken_back_is_not_done(bus: Bus) -> None:
    asked = request()
    back = {"action_state": ActionState.CANCELLED, "id": "back", "reason": "Resolved"}
    taken_back = msgspec.structs.replace(asked.decision, **back)
    await bus.store(job_subject("decision", "team-a", "bert"), encode(taken_back), message_id="back")
    place = Place()

    result = await done(bus, place, asked)

    assert (result.state, result.message) == (ActionState.REFUSED, "the rule had resolved before it was begun")
    assert place.ended == []


async def test_an_action_that_was_being_ended_is_seen_through_and_keeps_its_proof(bus: Bus) -> None:
    """The executor before was killed between the effect and its record."""
    proof = Proof(step=7, path="/data/step-7", bytes=3, digest="sha256:7")
    note = "its checkpoint of step 7 was proven (/data/step-7)"
    await publish_result(
        bus,
        ActionResult("s-1", "team-a", "bert", ActionState.IN_PROGRESS, "Ending", note, datetime.now(UTC), proof=proof),
    )
    place = Place(alive=False)

    result = await done(bus, place, request())

    assert (result.state, result.proof, result.resume_command) == (ActionState.DONE, proof, "resume it")
    assert result.message == f"suspended after {note}; all its processes are gone"
    assert place.ended == [proof]


async def test_one_job_that_takes_long_holds_up_no_other(bus: Bus) -> None:
    class Slow(Place):
        async def end(self, request: ActionRequest, *, proof: Proof | None) -> None:
            await asyncio.Event().wait()

    other = msgspec.structs.replace(RUN, job="gpt")
    await ask(bus, request())
    await bus.store(job_subject("action", "team-a", "gpt"), encode(request("s-2", other)), message_id="s-2")
    async with executing(bus, lambda run: Slow() if run.job == "bert" else Place()) as heard:
        await eventually(lambda: last(heard, "s-2"))
        assert last(heard, "s-1") is None


@pytest.mark.parametrize("left", ["", "pods are still there after 90 s"])
async def test_a_delete_whose_record_is_missing_is_done_once_nothing_of_the_job_is_left(bus: Bus, left: str) -> None:
    asked = request()
    asked = msgspec.structs.replace(asked, action=msgspec.structs.replace(asked.action, type=ActionType.DELETE))
    begun = ActionResult(
        action_id="s-1",
        namespace="team-a",
        job="bert",
        state=ActionState.IN_PROGRESS,
        reason="Ending",
        message="checkpoint of step 40",
        time=datetime.now(UTC),
        proof=SAVED,
    )
    await bus.store(job_subject("result", "team-a", "bert"), encode(begun), message_id="s-1/Ending")
    looked: list[RunRef] = []

    async def remains(run: RunRef) -> str:
        looked.append(run)
        return left

    await ask(bus, asked)
    async with hearing(bus) as heard:
        task = asyncio.create_task(Executor(bus, lambda run: None, remains=remains).run())
        await eventually(lambda: last(heard))
        await end_all([task])

    result = last(heard)
    assert result is not None
    assert looked == [RUN]
    if left:
        assert (result.state, result.reason) == (ActionState.FAILED, "PodsRemain")
        assert result.message == "it was deleted, but pods are still there after 90 s"
    else:
        assert (result.state, result.reason, result.proof) == (ActionState.DONE, "Deleted", SAVED)


@pytest.mark.parametrize("reason", [LATER, AUDITED])
async def test_what_is_held_back_is_done_once_it_may_be(bus: Bus, monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    monkeypatch.setattr("trainwarden.controller.executor._AGAIN", 0.05)
    place = Place(brakes=3, reason=reason)

    await ask(bus, request())
    async with executing(bus, lambda run: place) as heard:
        await eventually(lambda: last(heard))

    told = [(each.state, each.reason) for each in heard.results if each.action_id == "s-1"]
    waited = (ActionState.WAITING, reason)
    begun = (ActionState.IN_PROGRESS, "Begun")
    assert told == [waited, begun, (ActionState.IN_PROGRESS, "Ending"), (ActionState.DONE, "Suspended")]
    assert (place.ended, place.forgotten) == ([SAVED], [])


@pytest.mark.parametrize("reason", [LATER, AUDITED])
async def test_what_is_held_back_is_not_done_once_its_rule_has_resolved(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    monkeypatch.setattr("trainwarden.controller.executor._AGAIN", 0.05)
    place, asked = Place(brakes=1_000_000, reason=reason), request()

    await ask(bus, asked)
    async with executing(bus, lambda run: place) as heard:
        await eventually(lambda: heard.results)
        over = msgspec.structs.replace(asked.decision, id="d-2", action_state=ActionState.CANCELLED)
        await bus.store(job_subject("decision", "team-a", "bert"), encode(over), message_id="d-2")
        await eventually(lambda: last(heard))

    result = last(heard)
    assert result is not None
    assert (result.state, result.reason, place.ended) == (ActionState.REFUSED, "Resolved", [])


async def test_an_action_of_which_nothing_came_is_not_counted(bus: Bus) -> None:
    place = Place()

    result = await done(bus, place, request(newest_checkpoint_age=timedelta(minutes=11)))

    assert (result.reason, place.forgotten) == ("NoCheckpoint", ["s-1"])
