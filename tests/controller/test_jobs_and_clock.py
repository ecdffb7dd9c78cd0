"""What the engine keeps is bounded, and its clock is the server's."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

from tests.controller.engines import facts

from trainwarden.controller.bus import Bus
from trainwarden.controller.decoding import decode_report
from trainwarden.controller.jobs import Allowance, EarlyReports, Heard, Job, by_our_clock
from trainwarden.controller.server_clock import ServerClock, server_time
from trainwarden.controller.streams import ensure_streams
from trainwarden.policies.decision import ActionResult, ActionState
from trainwarden.policies.run import RunState

START, HOUR = datetime(2026, 1, 5, 9, 0, tzinfo=UTC), timedelta(hours=1)
REPORT = decode_report(b'{"v":1,"run":"r","seq":0,"ts":1,"pod":"p","phase":"train","step":1}')


class Hand:
    """A clock moved by hand."""

    def __init__(self, at: float) -> None:
        self.at = at

    def __call__(self) -> float:
        return self.at


def test_early_reports_are_bounded_over_all_jobs_and_the_newest_of_each_are_kept() -> None:
    early = EarlyReports()
    for number in range(300):
        early.keep(("a", "one"), Heard(REPORT, number, 0.0, fresh=True))
    assert [heard.sequence for heard in early.pop(("a", "one"))] == list(range(100, 300))
    assert len(early) == 0

    for number in range(6_000):
        early.keep(("a", str(number)), Heard(REPORT, number, 0.0, fresh=True))
    assert len(early) == 5_000
    assert early.pop(("a", "0")) == []
    assert len(early.pop(("a", "5999"))) == 1


def test_results_of_actions_that_never_become_known_are_bounded() -> None:
    job = Job(RunState(facts()), since=0.0)
    for number in range(1_000):
        result = ActionResult(str(number), "a", "b", ActionState.DONE, "Done", "", facts().time)
        job.keep(result, float(number))
    job.match(["0", "999", "998"])

    assert [at for _, at in job.due] == [998.0, 999.0]
    assert len(job.results) < 300


def test_so_many_looks_per_second_are_allowed_early() -> None:
    hand = Hand(0.0)
    allowance = Allowance(100.0, hand)
    assert [allowance.take() for _ in range(11)] == [True] * 10 + [False]
    hand.at = 0.05
    assert [allowance.take() for _ in range(6)] == [True] * 5 + [False]


def test_the_clock_is_the_servers_and_goes_on_between_messages() -> None:
    steady = Hand(1000.0)
    clock = ServerClock(steady)
    assert clock.now() == 0.0  # whatever this machine's clock says

    clock.see(20_000.0)  # of a replay
    clock.see(50_007.0)
    steady.at += 2
    clock.see(50_008.5)  # this one took half a second
    assert clock.now() == 50_009.0


def test_a_server_clock_that_is_set_back_is_followed_and_noticed_once() -> None:
    steady = Hand(0.0)
    clock = ServerClock(steady)
    clock.see(10_000.0)
    assert not clock.was_set_back()
    noticed = []
    for second in range(1, 40):
        steady.at = float(second)
        clock.see(6_400.0 + second)
        noticed.append(clock.was_set_back())

    assert noticed.count(True) == 1
    assert clock.now() == 6_439.0


def test_facts_are_as_of_the_moment_at_which_they_were_stored() -> None:
    told = facts(time=START + 3 * HOUR, created_at=START + 3 * HOUR, attempt_started_at=START - HOUR)

    first = by_our_clock(told, START.timestamp(), None)
    later = by_our_clock(told, (START - HOUR).timestamp(), first.time)  # the server's clock was set back

    assert (first.time, first.created_at, first.attempt_started_at) == (START, START, START - HOUR)
    assert later.time == START


async def test_the_server_is_asked_for_its_time(bus: Bus) -> None:
    before = time.time()
    await ensure_streams(bus)

    told = await server_time(bus)

    assert before - 1 <= told <= time.time() + 1, "the server has this machine's clock"


async def test_a_server_that_refuses_for_a_while_is_asked_until_it_tells_its_time(bus: Bus) -> None:
    """Here its stream is gone; nobody who waits for the time ends meanwhile."""
    await bus.request("$JS.API.STREAM.DELETE.TW_RESULTS", None)
    asking = asyncio.create_task(server_time(bus))
    await asyncio.wait([asking], timeout=0.5)
    assert not asking.done()

    await ensure_streams(bus)

    assert await asking > 0.0
