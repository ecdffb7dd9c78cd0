"""What was gained by a step, and what was still to come."""

import random

import pytest

from trainwarden.policies.backtest.track import MOST_BUCKETS, Track


def track(values: list[float], metric: str = "loss") -> Track:
    made = Track(metric)
    for number, value in enumerate(values, 1):
        made.add(number, 10.0 * number, value)
    return made


def test_half_of_the_way_down_leaves_half_to_come() -> None:
    gain = track([10.0, 8.0, 6.0, 4.0, 2.0]).gain(30.0)

    assert gain is not None
    assert (gain.best_before, gain.best_after, gain.to_come) == (6.0, 2.0, 0.5)


def test_a_metric_that_gets_better_upwards_is_measured_upwards() -> None:
    gain = track([0.0, 0.5, 0.75, 1.0], "eval/accuracy").gain(20.0)

    assert gain is not None
    assert (gain.best_before, gain.best_after, gain.to_come) == (0.5, 1.0, 0.5)


def test_before_the_first_value_nothing_is_known() -> None:
    assert Track("loss").gain(50.0) is None
    assert track([1.0]).gain(9.0) is None


def test_a_metric_that_never_gained_has_nothing_to_come() -> None:
    rising = track([1.0, 2.0, 3.0])

    gain = rising.gain(10.0)

    assert gain is not None
    assert gain.to_come == 0.0
    assert rising.settled_after(0.01) == 10.0


def test_evaluations_stay_exact_and_dense_losses_are_merged() -> None:
    few, many = track([1.0] * MOST_BUCKETS), track([float(v) for v in range(100_000)])

    assert len(few.points) == MOST_BUCKETS
    assert MOST_BUCKETS / 2 <= len(many.points) <= MOST_BUCKETS
    assert sum(point.count for point in many.points) == 100_000
    assert (many.points[0].low, many.points[-1].high) == (0.0, 99_999.0)


def test_settling_is_when_all_but_a_share_has_been_gained() -> None:
    assert track([10.0, 5.0, 0.05, 0.0, 0.0]).settled_after(0.01) == 30.0
    assert Track("loss").settled_after(0.01) is None


@pytest.mark.parametrize("seed", range(5))
def test_one_lucky_value_of_a_noisy_flat_loss_is_no_improvement(seed: int) -> None:
    chance = random.Random(seed)
    values = [max(10.0 - 0.01 * step, 2.0) + chance.gauss(0, 0.05) for step in range(4_000)]
    values[3_900] = 0.5

    gain = track(values).gain(20_000.0)

    assert gain is not None
    assert gain.to_come < 0.01
