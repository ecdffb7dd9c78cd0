"""Whatever ends the engine, NATS or the way between: each thing is decided, done and told once, and none is lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from tests.controller.engines import HIGH, Outcome, Trainer, begin, hearing, policy, running
from tests.controller.proxy import Proxy
from tests.reporters.nats_server import NatsServer, eventually

from trainwarden.controller.bus import Bus, Entry, Reading
from trainwarden.controller.cancelling import end_all
from trainwarden.controller.engine import Engine
from trainwarden.controller.notifier_role import NotifierRole
from trainwarden.controller.payloads import decode
from trainwarden.controller.publishing import publish_policy, publish_result
from trainwarden.notifiers.delivery import DeliveryResult
from trainwarden.policies.decision import ActionRequest, ActionResult, ActionState, Proof
from trainwarden.policies.notice import Notice

LADDER = """
name: high
when: metrics.loss > 5.0
actions: [{type: Notify}, {type: Checkpoint}, {type: Suspend, after: 1s}]
"""
WHOLE = Counter(
    [
        "high Firing",
        "high Checkpoint Requested",
        "high Notify Waiting",
        "high Checkpoint InProgress",
        "high Checkpoint Done",
        "high Notify Requested",
        "high Notify Done",
        "high Suspend Requested",
        "high Suspend InProgress",
        "high Suspend Done",
    ]
)
MOST_STORES = 24


class CrashError(Exception):
    """The end of an engine."""


class MortalBus(Bus):
    """A connection with which the engine dies at its n-th message: before the server has it, or just after."""

    left = 0
    after = False

    async def store(self, subject: str, data: bytes, *, message_id: str) -> None:
        self.left -= 1
        if self.left == 0 and not self.after:
            raise CrashError
        await super().store(subject, data, message_id=message_id)
        if self.left == 0:
            raise CrashError


class Recording:
    """Delivers by writing down."""

    def __init__(self, state: str = "delivered") -> None:
        self.sent: list[Notice] = []
        self.state = state

    async def send(self, notice: Notice) -> tuple[DeliveryResult, ...]:
        self.sent.append(notice)
        return (DeliveryResult("default", "a log", self.state, 1, "" if self.state == "delivered" else "it is full"),)  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def acting(bus: Bus) -> AsyncIterator[None]:
    """An executor that does all it is asked for."""

    async def take(entry: Entry) -> None:
        request = decode(entry.data, ActionRequest)
        run = request.decision.run
        for state in (ActionState.IN_PROGRESS, ActionState.DONE):
            proof = Proof(7, "/ckpt/7") if state is ActionState.DONE else None
            now = datetime.now(UTC)
            await publish_result(
                bus, ActionResult(request.action.id, run.namespace, run.job, state, "Tried", "ok", now, proof)
            )

    task = asyncio.create_task(Reading(bus, "TW_ACTIONS", take=take).run())
    try:
        yield
    finally:
        await end_all([task])


@contextlib.asynccontextmanager
async def notifying(bus: Bus, sender: Recording) -> AsyncIterator[NotifierRole]:
    role = NotifierRole(bus, sender)
    task = asyncio.create_task(role.run())
    try:
        yield role
    finally:
        await end_all([task])


async def dies(server: NatsServer, at: int, *, after: bool) -> bool:
    """Run an engine until it dies at its n-th message; False when it had no more to say for a while."""
    bus = await MortalBus.connect(server.url, token=server.token)
    assert isinstance(bus, MortalBus)
    bus.left, bus.after = at, after
    task = asyncio.create_task(Engine(bus).run())
    done, _ = await asyncio.wait([task], timeout=8)
    await end_all([task])
    await bus.close()
    return bool(done)


def of_job(heard: Outcome, job: str) -> Outcome:
    return Outcome(
        [each for each in heard.decisions if each.run.job == job],
        [each for each in heard.requests if each.decision.run.job == job],
        [each for each in heard.notices if each.decision.run.job == job],
    )


@pytest.mark.slow
@pytest.mark.timeout(170)
@pytest.mark.parametrize("after", [False, True], ids=["before it is stored", "after it is stored"])
async def test_an_engine_may_die_at_any_message(server: NatsServer, bus: Bus, after: bool) -> None:
    await publish_policy(bus, policy(LADDER))
    sender = Recording()
    async with hearing(bus) as heard, acting(bus), notifying(bus, sender):
        for at in range(1, MOST_STORES):
            job = f"job-{at}"
            trainer = Trainer(bus, job=job, run=job)
            reporting = asyncio.create_task(trainer.until(lambda: False, 9.0, patience=600))
            await begin(bus, job=job, uid=job)
            died = await dies(server, at, after=after)
            mine = of_job(heard, job)
            async with running(bus):
                await _until_whole(heard, job)
            await end_all([reporting])
            await _ended(bus, job)
            mine = of_job(heard, job)
            mine.once()
            assert _told(mine) == WHOLE
            assert [request.action.type.value for request in mine.requests] == ["Checkpoint", "Suspend"]
            assert len(mine.notices) == 2
            if not died:
                break
    assert Counter(notice.id for notice in sender.sent) == Counter(notice.id for notice in heard.notices)


async def _until_whole(heard: Outcome, job: str) -> None:
    try:
        await eventually(lambda: _whole(of_job(heard, job)))
    except TimeoutError as error:
        raise AssertionError(f"{job}: {of_job(heard, job).told}") from error


def _whole(heard: Outcome) -> bool:
    return set(heard.told) >= set(WHOLE) and len(heard.notices) >= 2


def _told(heard: Outcome) -> Counter[str]:
    """What was told, but for the wait of a Suspend that comes due while the Checkpoint is still under way."""
    return Counter(each for each in heard.told if each != "high Suspend Waiting")


async def _ended(bus: Bus, job: str) -> None:
    """The job is gone, so that the next engine has nothing to do with it."""
    for stream, subject in (("TW_FACTS", f"tw.facts.team-a.{job}"), ("TW_REPORTS", f"tw.p.*.report.team-a.{job}")):
        await bus.request(f"$JS.API.STREAM.PURGE.{stream}", {"filter": subject})


@pytest.mark.slow
async def test_two_engines_at_once_do_and_tell_nothing_twice(server: NatsServer, bus: Bus) -> None:
    await publish_policy(bus, policy(LADDER))
    other = await Bus.connect(server.url, token=server.token)
    async with hearing(bus) as heard, acting(bus), notifying(bus, Recording()), running(bus), running(other):
        await begin(bus)
        await Trainer(bus).until(lambda: _whole(heard), 9.0)
        await asyncio.sleep(1)
    await other.close()
    assert set(_told(heard)) == set(WHOLE)
    assert [request.action.type.value for request in heard.requests] == ["Checkpoint", "Suspend"]
    assert len(heard.notices) == 2


@pytest.mark.slow
async def test_nats_away_for_a_while_loses_nothing(server: NatsServer, bus: Bus) -> None:
    await publish_policy(bus, policy(LADDER))
    async with Proxy(server.port) as proxy:
        mine = await Bus.connect(f"nats://127.0.0.1:{proxy.port}", token=server.token)
        async with hearing(bus) as heard, acting(bus), notifying(bus, Recording()), running(mine):
            await begin(bus)
            trainer = Trainer(bus)
            await trainer.until(lambda: "high Firing" in heard.told, 9.0)
            proxy.shut()
            for _ in range(30):
                await trainer.report(9.0)
                await asyncio.sleep(0.1)
            await proxy.open()
            await trainer.until(lambda: _whole(heard), 9.0)
        await mine.close()
    heard.once()
    assert _told(heard) == WHOLE


@pytest.mark.slow
async def test_a_server_that_is_killed_and_comes_back_loses_nothing(server: NatsServer, bus: Bus) -> None:
    await publish_policy(bus, policy(LADDER))
    async with hearing(bus) as heard, acting(bus), notifying(bus, Recording()), running(bus):
        await begin(bus)
        trainer = Trainer(bus)
        await trainer.until(lambda: "high Firing" in heard.told, 9.0)
        server.stop()
        await asyncio.sleep(2)
        server.start()
        await trainer.until(lambda: _whole(heard), 9.0)
    heard.once()
    assert _told(heard) == WHOLE


@pytest.mark.slow
async def test_what_held_while_no_engine_ran_is_decided_as_of_then(bus: Bus) -> None:
    rule = "{name: high, when: metrics.loss > 5.0, for: 1s, actions: [{type: Notify}]}"
    await publish_policy(bus, policy(rule))
    await begin(bus)
    trainer = Trainer(bus)
    async with hearing(bus) as heard:
        async with running(bus):
            await trainer.report(1.0)
            await eventually(lambda: heard.states and heard.states[-1].step == 1)
        await trainer.report(9.0)
        await asyncio.sleep(1.5)  # no report comes at the moment at which it fires
        await trainer.report(1.0)
        async with running(bus):
            await eventually(lambda: "high Resolved" in heard.told)
    pending, firing = heard.decisions[0].time, heard.decisions[1].time
    assert heard.told[:3] == ["high Pending", "high Firing", "high Notify Requested"]
    assert 1.0 <= (firing - pending).total_seconds() < 1.4


async def test_reports_that_the_stream_has_dropped_are_told_to_be_missing(bus: Bus) -> None:
    await publish_policy(bus, policy(HIGH))
    await begin(bus)
    trainer = Trainer(bus)
    async with hearing(bus) as heard:
        async with running(bus):
            for _ in range(5):
                await trainer.report(1.0)
            await eventually(lambda: heard.states and heard.states[-1].step == 5)
        since = heard.states[-1].known_since
        await bus.request("$JS.API.STREAM.PURGE.TW_REPORTS", None)
        await trainer.report(9.0)
        async with running(bus):
            await eventually(lambda: heard.notices)
    assert since is not None
    assert heard.decisions[0].evidence.known_since is not None
    assert heard.decisions[0].evidence.known_since > since


async def test_reports_in_a_stream_that_was_made_anew_are_judged(bus: Bus) -> None:
    from trainwarden.controller.streams import LOCAL, ensure_streams

    await publish_policy(bus, policy(HIGH))
    await begin(bus)
    trainer = Trainer(bus)
    async with hearing(bus) as heard:
        async with running(bus):
            for _ in range(5):
                await trainer.report(1.0)
            await eventually(lambda: heard.states and heard.states[-1].step == 5)
        await bus.request("$JS.API.STREAM.DELETE.TW_REPORTS", None)
        await ensure_streams(bus, LOCAL)
        async with running(bus):
            await trainer.report(9.0)
            await eventually(lambda: heard.notices)
    heard.once()


@pytest.mark.slow
async def test_each_notice_is_sent_once_over_restarts_of_the_notifier(bus: Bus) -> None:
    await publish_policy(bus, policy(HIGH))
    sender = Recording()
    async with hearing(bus) as heard, running(bus):
        await begin(bus)
        async with notifying(bus, sender):
            await Trainer(bus).report(9.0)
            await eventually(lambda: "high Notify Done" in heard.told)
        for _ in range(2):
            async with notifying(bus, sender):
                await asyncio.sleep(0.4)
    assert [notice.id for notice in sender.sent] == [heard.notices[0].id]
    assert heard.results[-1].message == "told a log"


async def test_a_notice_that_can_not_be_delivered_is_a_failed_action_that_says_why(bus: Bus) -> None:
    await publish_policy(bus, policy(HIGH))
    async with hearing(bus) as heard, running(bus), notifying(bus, Recording("failed")):
        await begin(bus)
        await Trainer(bus).report(9.0)
        await eventually(lambda: "high Notify Failed" in heard.told)
    assert heard.decisions[-1].message == "a log: it is full"
