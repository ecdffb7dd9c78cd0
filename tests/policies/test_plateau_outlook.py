"""`plateau(metric, share, tolerance)` on made-up curves: what still learns is spared, what has learnt all is found."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from tests.policies.runs import SECOND, Training

from trainwarden.policies.detectors.outlook import still_to_gain
from trainwarden.policies.expressions.protocol import CelValue, UnknownValueError
from trainwarden.policies.series import Series

Shape = Callable[[int, random.Random], float]


def first_true(
    shape: Shape,
    *,
    share: float = 0.7,
    tolerance: float = 0.0035,
    total: int | None = 1000,
    size: int = 1000,
    every: int = 10,
    seed: int = 1,
    metric: str = "eval/loss",
) -> int | None:
    """Step at which the function is first true; the metric is reported at every tenth step."""
    training, chance = Training(total=total, every=SECOND), random.Random(seed)
    for step in range(0, size + 1, every):
        training.report(step, {metric: shape(step, chance)})
        try:
            if training.state.scope(training.at).call("plateau", (metric, share, tolerance)):
                return step
        except UnknownValueError:
            continue
    return None


def reason(training: Training, *arguments: CelValue) -> str:
    with pytest.raises(UnknownValueError) as caught:
        training.state.scope(training.at).call("plateau", arguments)
    return caught.value.reason


def reported(size: int = 100, *, total: int | None = 1000) -> Training:
    training = Training(total=total, every=SECOND)
    for step in range(0, size * 10, 10):
        training.report(step, {"eval/loss": 1 + math.exp(-step / 100)})
    return training


LEARNING: dict[str, Shape] = {
    "power law": lambda step, chance: 2 + 5 * (step + 1) ** -0.3 + chance.gauss(0, 0.01),
    "with the logarithm": lambda step, chance: 5 - 0.4 * math.log(step + 1) + chance.gauss(0, 0.01),
    "slow but real": lambda step, chance: 3 - 0.001 * step + chance.gauss(0, 0.02),
    "noisy": lambda step, chance: 2 + 2 * math.exp(-step / 300) + chance.gauss(0, 0.3),
    "nothing learnt yet": lambda step, chance: 4 + chance.gauss(0, 0.05),
}


@pytest.mark.parametrize("shape", LEARNING.values(), ids=LEARNING)
@pytest.mark.parametrize("total", [1000, None], ids=["plan", "no plan"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_it_spares_what_still_learns(shape: Shape, total: int | None, seed: int) -> None:
    assert first_true(shape, total=total, seed=seed) is None


ODD: dict[str, Callable[[float], float]] = {
    "one is huge": lambda value: 1e9,
    "one is infinite but for its type": lambda value: 3.4e38,
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
@pytest.mark.parametrize("where", [0, 10], ids=["the first", "the second"])
@pytest.mark.parametrize("shape", [LEARNING["with the logarithm"], LEARNING["slow but real"]], ids=["log", "slow"])
def test_an_odd_first_value_makes_nothing_that_comes_later_negligible(
    shape: Shape, where: int, odd: Callable[[float], float]
) -> None:
    """What was gained is told from values that can be believed."""

    def spoilt(step: int, chance: random.Random) -> float:
        value = shape(step, chance)
        return odd(value) if step == where else value

    assert first_true(spoilt, metric="eval/loss") is None
    assert first_true(spoilt, metric="loss", every=2) is None


@pytest.mark.parametrize("digits", [1, 2])
@pytest.mark.parametrize("share", [0.5, 0.7])
def test_what_rounding_hides_is_no_standstill(digits: int, share: float) -> None:
    """A loss that is told in tenths stands still from tenth to tenth while it falls."""

    def rounded(step: int, chance: random.Random) -> float:
        return round(5 - 0.25 * math.log(step + 1), digits)

    assert first_true(rounded, share=share) is None
    assert first_true(rounded, share=share, every=2, metric="loss") is None


def test_rounded_values_that_stand_still_are_found() -> None:
    assert first_true(lambda step, chance: round(2 + 5 * math.exp(-step / 20) + chance.gauss(0, 0.004), 2)) is not None


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_it_finds_what_has_learnt_all(seed: int) -> None:
    place = first_true(lambda step, chance: 2 + 2 * math.exp(-step / 30) + chance.gauss(0, 0.002), seed=seed)

    assert place is not None
    assert 150 <= place <= 700


def test_it_finds_what_gets_worse_again() -> None:
    place = first_true(lambda step, chance: 1 + math.exp(-step / 50) + 0.0008 * step + chance.gauss(0, 0.002))

    assert place is not None
    assert place >= 150, "the best is there"


def test_higher_may_be_better() -> None:
    def accuracy(step: int, chance: random.Random) -> float:
        return 0.8 - 0.7 * math.exp(-step / 30) + chance.gauss(0, 0.0005)

    assert first_true(accuracy, metric="eval/accuracy") is not None
    assert first_true(lambda step, chance: 0.1 + 0.0005 * step, metric="eval/accuracy") is None


def test_a_longer_plan_makes_it_wait_longer() -> None:
    def slow(step: int, chance: random.Random) -> float:
        return 2 + 2 * math.exp(-step / 100) + chance.gauss(0, 0.002)

    short, long = first_true(slow, total=1000), first_true(slow, total=20_000, size=1500)

    assert short is not None
    assert long is None or long > short


def test_the_end_of_a_plan_alone_is_no_plateau() -> None:
    assert first_true(lambda step, chance: 5 - 0.4 * math.log(step + 1), tolerance=0.0055, share=0.5) is None


def test_it_takes_the_pace_per_logarithm() -> None:
    series = Series()
    for step in range(1, 401):
        series.add(step, float(step), 10 - math.log(step))

    still = still_to_gain(series.since_step(280), 0.7, left=math.log(2), higher=False)

    assert still == pytest.approx(math.log(2), rel=0.05)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("eval/loss", 1.0, 0.01), "plateau was given the share 1; more than 0.0 and less than 1.0 is right"),
        (("eval/loss", 0.5, 0.0), "plateau was given the tolerance 0; more than 0.0 and at most 0.5 is right"),
    ],
)
def test_it_refuses_what_makes_no_sense(arguments: tuple[CelValue, ...], expected: str) -> None:
    assert reason(reported(), *arguments) == expected


def test_it_needs_a_tenth_of_the_plan_and_five_values() -> None:
    assert "only 9.0 % of the plan is done" in reason(reported(10), "eval/loss", 0.7, 0.0035)
    assert "plateau needs one before that and 5 after it" in reason(reported(12), "eval/loss", 0.7, 0.0035)


def test_it_does_not_trust_a_value_that_never_changes() -> None:
    training = Training(total=1000, every=SECOND)
    for step in range(0, 500, 10):
        training.report(step, {"eval/loss": 3.0 if step < 20 else 1.0})

    assert reason(training, "eval/loss", 0.7, 0.0035).endswith("its signal is broken")


def test_it_says_what_it_looked_at() -> None:
    training = reported()
    scope = training.state.scope(training.at)

    assert scope.call("plateau", ("eval/loss", 0.7, 0.0035)) is True
    (window,) = scope.windows()
    assert (window.metric, window.to_step) == ("eval/loss", 990)
    assert window.from_step == pytest.approx(700, abs=20)


def test_without_a_plan_it_waits_for_twelve_values() -> None:
    assert reason(reported(11, total=None), "eval/loss", 0.2, 0.0035) == (
        "only 11 values of eval/loss; plateau needs 12 while no plan is known"
    )
