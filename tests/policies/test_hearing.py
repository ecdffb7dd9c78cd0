"""An outage of ours is no silence and no standstill of the training."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import pytest
from tests.policies.judging import Walk, moment, policy, told
from tests.policies.runs import T0, Training, facts

from trainwarden.policies.hearing import Hearing, Outage
from trainwarden.policies.run import RunState

START = T0.timestamp()
STILL = "when: 'progress.sinceStep > duration(\"2m\")'\nactions: [{type: Suspend, checkpoint: Skip}]"
SILENT = "when: 'progress.sinceReport > duration(\"2m\")'\nactions: [{type: Delete, checkpoint: Skip}]"


def pulses(hearing: Hearing, seconds: Iterable[int], source: str = "a") -> None:
    """One pulse a second."""
    for at in seconds:
        hearing.pulse(source, START + at)


def walk(*rules: str) -> tuple[Walk, Hearing]:
    """A training that reports a step each second, up to second 29, and can be heard."""
    hearing = Hearing()
    policies = [policy(rule, name=f"p{number}") for number, rule in enumerate(rules)]
    result = Walk(policies, Training(RunState(facts(attempt_started_at=T0), hearing)))
    for at in range(1, 30):
        hearing.pulse("a", START + at)
        result.report(1.0, at)
    return result, hearing


def quiet(result: Walk) -> bool:
    return not result.decisions


@pytest.mark.parametrize("gap", [14, 130, 290, 700, 3600])
def test_an_outage_of_any_length_ends_no_training_that_comes_back(gap: int) -> None:
    result, hearing = walk(STILL, SILENT)
    end = 29 + gap
    for at in range(30, end, 7):
        result.look(at)  # nothing is heard, and nothing proves that it could be
    pulses(hearing, range(end, end + 3), "b")
    for at in range(end, end + 15):
        result.look(at)
    assert quiet(result)

    result.training.report(29, wait=moment(end + 15) - result.training.at)  # a heartbeat comes first
    for at in range(end + 3, end + 60):
        hearing.pulse("b", START + at)
        result.look(at)
    assert quiet(result)


def test_a_training_that_does_not_come_back_is_found_by_what_it_was_silent_for_in_our_hearing() -> None:
    result, hearing = walk(SILENT)
    pulses(hearing, range(30, 90))  # 60 s that count
    pulses(hearing, range(1000, 1200), "b")
    fired = [at for at in range(30, 1200) if result.look(at).requests]

    assert fired == [1000 + 20 + 61]  # the outage and the time to come back do not


def test_a_training_that_stands_still_before_and_after_an_outage_is_found() -> None:
    result, hearing = walk(STILL)

    def heartbeat(at: int) -> bool:
        result.training.report(29, wait=moment(at) - result.training.at)
        return bool(result.look(at).requests)

    fired = []
    for at in range(30, 90):
        hearing.pulse("a", START + at)
        fired += [at] if heartbeat(at) else []
    for at in range(500, 700):
        hearing.pulse("b", START + at)
        fired += [at] if at >= 503 and heartbeat(at) else []

    assert len(fired) == 1
    assert 500 + 60 <= fired[0] <= 500 + 65


def test_what_fires_goes_on_through_an_outage() -> None:
    result, hearing = walk(SILENT)
    pulses(hearing, range(30, 160))
    assert told(result.look(159))[0] == "Firing"

    result.look(300)
    assert result.memory.policies["uid-p0"].rules["bad"].unknown.startswith("no report could be heard since ")
    pulses(hearing, range(400, 403), "b")
    result.look(403)
    assert "18:02:39 to 18:06:40 UTC" in result.memory.policies["uid-p0"].rules["bad"].unknown
    assert result.memory.policies["uid-p0"].rules["bad"].firing_since == moment(159)


def test_ages_stand_still_while_nothing_can_be_heard() -> None:
    result, hearing = walk()
    state = result.training.state
    assert state.passed(moment(200)) == pytest.approx(state.passed(moment(29)))
    pulses(hearing, range(200, 240), "b")
    assert state.passed(moment(219)) == pytest.approx(state.passed(moment(29)))
    assert state.passed(moment(230)) == pytest.approx(state.passed(moment(29)) + 10)
    assert state.checkpoint_age(moment(210)) == timedelta(seconds=28)


def test_without_pulses_all_could_be_heard() -> None:
    hearing = Hearing()
    assert hearing.outage(START, heard=0.0) is None
    assert hearing.seconds(10.0, 70.0, heard=10.0) == 60.0


def test_a_connection_that_was_lost_for_a_moment_is_an_outage() -> None:
    """A reporter waits longer and longer between its attempts: a short absence of NATS may be a long one for it."""
    hearing = Hearing()
    pulses(hearing, range(10), "a/1")
    pulses(hearing, range(10, 20), "a/2")

    assert hearing.outage(START + 19, heard=START + 5) == Outage(START + 9, START + 10)
    assert hearing.outage(START + 19, heard=START + 11) is None
    assert hearing.seconds(START + 5, START + 19, heard=START + 5) == 4.0


def test_a_server_that_dies_again_and_again_is_one_outage() -> None:
    hearing = Hearing()
    pulses(hearing, range(10), "a/0")
    for number in range(12):
        hearing.pulse(f"a/{number + 1}", START + 10 + 2 * number)
    assert hearing.outage(START + 34, heard=START + 9) == Outage(START + 9, None)
    pulses(hearing, range(35, 40), "a/13")
    assert hearing.outage(START + 40, heard=START + 9) == Outage(START + 9, START + 35)


def test_an_engine_that_comes_or_goes_beside_another_is_no_outage() -> None:
    hearing = Hearing()
    for at in range(30):
        hearing.pulse("a/1", START + at)
        if 10 <= at < 20:
            hearing.pulse("b/1", START + at + 0.5)
    assert hearing.outage(START + 29, heard=START) is None
    assert hearing.seconds(START, START + 29, heard=START) == 29.0


def test_the_same_is_said_of_a_moment_in_a_replay() -> None:
    live, replayed = Hearing(), Hearing()
    said = {}
    beats = [*(("a", at) for at in range(50)), *(("b", at) for at in range(100, 180))]
    for source, at in beats:
        live.pulse(source, START + at)
        said[at] = (live.outage(START + at, heard=START), live.seconds(START, START + at, heard=START))
    for source, at in beats:
        replayed.pulse(source, START + at)
    for _, at in beats:
        if at != 100:  # of the first after an outage it is known only later what it ends
            outage = replayed.outage(START + at, heard=START)
            assert (outage, replayed.seconds(START, START + at, heard=START)) == said[at]


def test_a_server_clock_that_is_set_back_is_an_outage_of_a_moment() -> None:
    hearing = Hearing()
    pulses(hearing, range(100, 200))
    pulses(hearing, range(40, 100))
    assert hearing.outage(START + 99, heard=START) is None
    assert hearing.outage(START + 41, heard=START + 10) == Outage(START + 40, START + 40)


def test_of_many_outages_the_oldest_become_one() -> None:
    hearing = Hearing()
    for number in range(200):
        pulses(hearing, range(100 * number, 100 * number + 50), str(number))
    end = 199 * 100 + 49
    assert hearing.seconds(START, START + end, heard=START) == 49.0 + 64 * 29.0
