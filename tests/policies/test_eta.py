"""The time left: what a pace forgets, what pauses add to it, and what a band has earned."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from tests.policies.runs import SECOND, T0, Training, facts

from trainwarden.policies.eta import Eta, Pace
from trainwarden.policies.pauses import Pauses


def eta(training: Training) -> Eta:
    found = training.state.eta(training.at)
    assert found is not None
    return found


def seconds(length: timedelta) -> float:
    return length.total_seconds()


class TestBand:
    def test_an_even_pace_earns_a_narrow_one(self) -> None:
        training = Training()
        training.losses([1.0] * 500)

        found = eta(training)
        assert seconds(found.expected) == pytest.approx(5000, abs=1)
        assert seconds(found.high - found.low) < 0.02 * 5000

    def test_a_pace_that_changed_earns_a_wide_one(self) -> None:
        training = Training()
        training.losses([1.0] * 250)
        training.every = 20 * SECOND
        training.losses([1.0] * 250, start=251)

        found = eta(training)
        assert seconds(found.low) < 7500
        assert seconds(found.high) > 10_000

    @pytest.mark.parametrize("place", [100, 250, 500, 750])
    def test_noise_is_covered_most_of_the_time(self, place: int) -> None:
        covered = 0
        for seed in range(60):
            chance = random.Random(seed)
            spans = [chance.lognormvariate(2, 0.5) for _ in range(1000)]
            training = Training()
            for step, span in enumerate(spans[:place], 1):
                training.report(step, {"loss": 1.0}, wait=timedelta(seconds=span))
            found = eta(training)
            covered += seconds(found.low) <= sum(spans[place:]) <= seconds(found.high)

        assert 0.65 <= covered / 60 <= 1.0

    def test_the_marks_are_bounded_and_exact(self) -> None:
        pace = Pace()
        for step in range(20_000):
            pace.observe(step, "train", 2.0 * step, 2.0 * step, silence=300)

        found = pace.eta(20_000, 30_000)
        assert found is not None
        assert seconds(found.expected) == pytest.approx(20_000)
        assert len(pace._timed) <= 128


class TestPauses:
    def test_an_evaluation_at_the_start_is_not_taken_for_the_rule(self) -> None:
        training = Training()
        training.report(0, phase="eval")
        training.report(0, phase="eval", wait=200 * SECOND)
        training.losses([1.0] * 30)

        assert seconds(eta(training).expected) == pytest.approx(970 * 10, rel=0.03)

    def test_pauses_without_a_name_come_again(self) -> None:
        training = Training(every=2 * SECOND)
        for step in range(1, 501):
            training.report(step, {"loss": 1.0}, wait=(102 if step % 50 == 1 and step > 1 else 2) * SECOND)

        assert seconds(eta(training).expected) == pytest.approx(500 * 2 + 10 * 100, rel=0.06)

    def test_one_hang_is_not_extrapolated_for_ever(self) -> None:
        training = Training(every=2 * SECOND)
        training.losses([1.0] * 200)
        training.report(201, {"loss": 1.0}, wait=240 * SECOND)
        training.losses([1.0] * 300, start=202)

        assert seconds(eta(training).expected) < 500 * 2 + 2.5 * 240

    def test_the_cadence_of_the_attempt_before_is_known(self) -> None:
        pauses = Pauses()
        pauses.begin(0)
        for step in (100, 200, 300):
            pauses.spend("eval", 60.0)
            pauses.end(step)
        pauses.restart()
        pauses.begin(300)

        assert pauses.to_come(350, 1000).expected == pytest.approx(60 * 6)

    def test_what_follows_the_last_step_is_not_awaited(self) -> None:
        pauses = Pauses()
        pauses.begin(0)
        for step in (250, 500):
            pauses.spend("eval", 60.0)
            pauses.end(step)

        assert pauses.to_come(600, 1000).expected == pytest.approx(60)


class TestTotal:
    def test_planned_epochs_stand_for_planned_steps(self) -> None:
        training = Training(total=None)
        for step in range(1, 101):
            training.report(step, {"loss": 1.0}, epoch=step / 100, epochs=3)

        assert training.state.total() == 300
        assert seconds(eta(training).expected) == pytest.approx(2000, rel=0.01)

    def test_epochs_without_a_plan_tell_nothing(self) -> None:
        training = Training(total=None)
        for step in range(1, 101):
            training.report(step, {"loss": 1.0}, epoch=step / 100)

        assert training.state.total() is None


def test_a_night_in_the_queue_is_not_extrapolated() -> None:
    first = Training()
    first.losses([1.0] * 100)
    first.at += timedelta(hours=12)
    first.state.learn(facts(attempt="a-2", time=first.at, attempt_started_at=first.at, created_at=T0))
    second = first.again("r-2")
    second.losses([1.0] * 50, start=101)

    assert seconds(eta(second).expected) == pytest.approx(850 * 10, rel=0.01)


def test_a_deadline_is_missed_only_when_the_optimistic_end_is_late() -> None:
    training, chance = Training(), random.Random(3)
    for step in range(1, 300):
        training.report(step, {"loss": 1.0}, wait=timedelta(seconds=chance.uniform(2, 18)))
    found = eta(training)

    for deadline, late in ((found.expected, False), (found.low - SECOND, True)):
        assert (training.at + found.low > training.at + deadline) is late
