"""Detectors on made-up curves: what must fire does, and what is healthy never does."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from datetime import timedelta

import pytest
from tests.policies.runs import HOUR, MINUTE, SECOND, Training

from trainwarden.policies.directions import higher_is_better
from trainwarden.policies.expressions.protocol import CelValue, UnknownValueError

Shape = Callable[[int, random.Random], float]


def fired(shape: Shape, *, function: str = "plateau", window: int = 50, size: int = 1000, seed: int = 1) -> list[int]:
    """Steps at which a detector fires, asked at every fifth."""
    training, chance = Training(total=None, every=SECOND), random.Random(seed)
    found: list[int] = []
    for step in range(size):
        training.report(step, {"loss": shape(step, chance)})
        if step % 5:
            continue
        try:
            if training.state.scope(training.at).call(function, ("loss", window)):
                found.append(step)
        except UnknownValueError:
            continue
    return found


def call(training: Training, function: str, *arguments: CelValue) -> CelValue:
    return training.state.scope(training.at).call(function, arguments)


def reason(training: Training, function: str, *arguments: CelValue) -> str:
    with pytest.raises(UnknownValueError) as caught:
        call(training, function, *arguments)
    return caught.value.reason


def falls_to_a_floor(step: int, chance: random.Random) -> float:
    return 2 + 2 * math.exp(-step / 30) + chance.gauss(0, 0.02)


def cosine_with_restarts(step: int, chance: random.Random) -> float:
    """Each cycle of 200 steps starts with a jump up, and ends a little better than the one before."""
    part = (step % 200) / 200
    return 2 + 2 * math.exp(-step / 300) + 0.3 * (1 + math.cos(math.pi * part)) / 2 + chance.gauss(0, 0.02)


HEALTHY: dict[str, Shape] = {
    "power law": lambda step, chance: 2 + 5 * (step + 1) ** -0.3 + chance.gauss(0, 0.05),
    "slow but real": lambda step, chance: 3 - 0.0005 * step + chance.gauss(0, 0.05),
    "noisy": lambda step, chance: 2 + 2 * math.exp(-step / 400) + chance.gauss(0, 0.4),
    "warm-up that stands still": lambda step, chance: 4 - max(step - 60, 0) * 0.002 + chance.gauss(0, 0.03),
    "cosine with restarts": cosine_with_restarts,
    "spikes that heal": lambda step, chance: (
        2 + 3 * math.exp(-step / 400) + (4 if step % 150 in (70, 71) else 0) + chance.gauss(0, 0.05)
    ),
}


class TestPlateau:
    @pytest.mark.parametrize("shape", HEALTHY.values(), ids=HEALTHY)
    @pytest.mark.parametrize("window", [30, 100, 300])
    def test_it_spares_what_still_learns(self, shape: Shape, window: int) -> None:
        assert fired(shape, window=window) == []

    @pytest.mark.parametrize("window", [40, 100])
    @pytest.mark.parametrize("seed", [1, 2, 3])
    def test_it_finds_a_floor(self, window: int, seed: int) -> None:
        places = fired(falls_to_a_floor, window=window, seed=seed)

        assert places
        assert places[0] > 100, "the loss is still falling there"

    def test_it_finds_a_loss_that_turns_upwards(self) -> None:
        def turns(step: int, chance: random.Random) -> float:
            return 2 + 2 * math.exp(-step / 50) + max(step - 300, 0) * 0.002 + chance.gauss(0, 0.01)

        places = fired(turns, window=50)

        assert places
        assert places[0] > 200

    def test_higher_is_better_for_an_accuracy(self) -> None:
        training = Training(total=None)
        training.losses([0.9 * (1 - math.exp(-step / 20)) for step in range(300)], name="eval/accuracy")

        assert call(training, "plateau", "eval/accuracy", 60) is True
        assert call(training, "plateau", "eval/accuracy", 60, "higher") is True

    def test_evaluations_need_fewer_values(self) -> None:
        training = Training(total=None)
        training.losses([2 + 2 * 0.5**number for number in range(30)], name="eval/loss", stride=100)

        assert call(training, "plateau", "eval/loss", 700) is True

    @pytest.mark.parametrize("value", [0.0, 1.5], ids=["zero", "constant"])
    def test_a_signal_that_never_changes_is_broken(self, value: float) -> None:
        training = Training(total=None)
        training.losses([value] * 300)

        assert reason(training, "plateau", "loss", 50) == (
            f"loss is {value:g} at every step of the window: its signal is broken"
        )

    def test_it_is_unknown_while_the_learning_rate_rises(self) -> None:
        training = Training(total=None)
        for step in range(300):
            training.report(step, {"loss": falls_to_a_floor(step, random.Random(step)), "learning_rate": step * 1e-6})

        assert reason(training, "plateau", "loss", 50).startswith("learning_rate is rising")

    def test_it_is_unknown_early_in_a_known_plan(self) -> None:
        training = Training(total=10_000)
        training.losses([falls_to_a_floor(step, random.Random(step)) for step in range(500)])

        assert reason(training, "plateau", "loss", 50) == "only 5.0 % of the plan is done; plateau needs 10 %"

    @pytest.mark.parametrize(
        ("size", "window", "expected"),
        [
            (4, 50, "only 4 values of loss in the last 50 steps; plateau needs 20"),
            (60, 50, "loss has been reported for 59 steps; plateau needs 75 steps"),
        ],
        ids=["few values", "a young run"],
    )
    def test_it_says_what_is_missing(self, size: int, window: int, expected: str) -> None:
        training = Training(total=None)
        training.losses([falls_to_a_floor(step, random.Random(step)) for step in range(size)])

        assert reason(training, "plateau", "loss", window) == expected

    def test_it_is_unknown_for_a_loss_that_is_not_a_number(self) -> None:
        training = Training(total=None)
        training.losses([falls_to_a_floor(step, random.Random(step)) for step in range(300)])
        training.report(301, nonfinite={"loss": "NaN"})

        assert reason(training, "plateau", "loss", 50) == "loss is NaN at step 301; plateau needs numbers"

    def test_a_window_in_time_works_like_one_in_steps(self) -> None:
        training = Training(total=None)
        training.losses([falls_to_a_floor(step, random.Random(step)) for step in range(900)])

        scope = training.state.scope(training.at)
        assert scope.call("plateau", ("loss", 20 * MINUTE)) is True
        (window,) = scope.windows()
        assert window.points == pytest.approx(120, abs=2)
        assert window.to_time == training.at
        assert window.to_time - window.from_time == pytest.approx(20 * MINUTE, abs=MINUTE)


class TestDivergence:
    @pytest.mark.parametrize("shape", HEALTHY.values(), ids=HEALTHY)
    @pytest.mark.parametrize("window", [30, 100])
    def test_it_spares_what_is_healthy(self, shape: Shape, window: int) -> None:
        assert fired(shape, function="divergence", window=window) == []

    @pytest.mark.parametrize(
        "lost",
        [
            lambda step: 3.0,
            lambda step: 1.2 ** (step - 500),
            lambda step: 1.0 + 0.01 * (step - 500),
        ],
        ids=["level shift", "explosion", "slow runaway"],
    )
    def test_it_finds_a_loss_that_is_lost(self, lost: Callable[[int], float]) -> None:
        def shape(step: int, chance: random.Random) -> float:
            level = 2 + 2 * math.exp(-step / 100)
            return level * (lost(step) if step >= 500 else 1.0) + chance.gauss(0, 0.05)

        places = fired(shape, function="divergence", window=50, size=700)

        assert places
        assert 500 < places[0] < 620

    def test_it_spares_a_spike_that_heals(self) -> None:
        def shape(step: int, chance: random.Random) -> float:
            spike = 3 * math.exp(-(step - 500) / 15) if step >= 500 else 0.0
            return 2 + 2 * math.exp(-step / 100) + spike + chance.gauss(0, 0.05)

        assert fired(shape, function="divergence", window=50) == []

    @pytest.mark.parametrize(
        ("before", "odd", "expected"),
        [(50, 3, True), (50, 2, None), (5, 6, None), (5, 10, True), (0, 9, None), (0, 10, True)],
        ids=["three", "two", "skipped steps at the start", "ten at the start", "nine from the start", "never a number"],
    )
    def test_not_a_number_must_last(self, before: int, odd: int, expected: bool | None) -> None:
        training = Training()
        training.losses([2.0 + 1 / (step + 1) for step in range(before)])
        for step in range(before + 1, before + odd + 1):
            training.report(step, nonfinite={"loss": "NaN"})

        try:
            found: CelValue | None = call(training, "divergence", "loss", 20)
        except UnknownValueError:
            found = None

        assert found is expected

    @pytest.mark.parametrize(("losses", "expected"), [([0.0] * 5, True), ([0.5, 0.4, 0.3, 0.2, 0.1], False)], ids=str)
    def test_a_filtered_loss_is_told_by_its_gradients(self, losses: list[float], expected: bool) -> None:
        training = Training()
        for step in range(30):
            training.report(step, {"loss": 2.0 + 1 / (step + 1), "grad_norm": 1.0})
        for step, loss in enumerate(losses, 30):
            training.report(step, {"loss": loss}, nonfinite={"grad_norm": "NaN"})

        assert call(training, "divergence", "loss", 20) is expected

    def test_the_newest_value_alone_tells_what_is_not_finite(self) -> None:
        training = Training()
        training.losses([2.0, 1.0])
        assert call(training, "nonFinite", "loss") is False

        training.report(3, nonfinite={"loss": "Infinity"})
        assert call(training, "nonFinite", "loss") is True

        training.report(4, {"loss": 1.0})
        assert call(training, "nonFinite", "loss") is False


class TestSpike:
    @pytest.mark.parametrize(("newest", "expected"), [(2.1, False), (2.6, False), (4.0, True), (0.5, False)], ids=str)
    def test_it_is_far_outside_on_the_bad_side(self, newest: float, expected: bool) -> None:
        training, chance = Training(), random.Random(1)
        training.losses([2 + chance.gauss(0, 0.1) for _ in range(100)])

        training.report(101, {"loss": newest})

        assert call(training, "spike", "loss", 60) is expected

    def test_it_needs_values_before(self) -> None:
        training = Training()
        training.losses([2.0] * 6)

        assert reason(training, "spike", "loss", 60) == "only 5 values of loss in the last 60 steps; spike needs 20"


class TestOverfitting:
    @pytest.mark.parametrize(
        ("evaluation", "expected"),
        [(lambda step: 1 + 0.004 * step, True), (lambda step: 3 - 0.004 * step, False), (lambda step: 2.0, False)],
        ids=["gets worse", "gets better", "stands still"],
    )
    def test_only_the_evaluation_gets_worse(self, evaluation: Callable[[int], float], expected: bool) -> None:
        training, chance = Training(), random.Random(2)
        for step in range(200):
            training.report(step, {"loss": 2 - 0.005 * step + chance.gauss(0, 0.02)})
            if step % 10 == 0:
                training.report(step, {"eval/loss": evaluation(step) + chance.gauss(0, 0.005)})

        assert call(training, "overfitting", "eval/loss", "loss", 100) is expected


class TestThroughput:
    @pytest.mark.parametrize(("seconds", "expected"), [(10, False), (15, False), (30, True)], ids=str)
    def test_a_drop_is_seen_against_the_pace_before(self, seconds: int, expected: bool) -> None:
        training = Training()
        training.losses([1.0] * 100)
        training.every = timedelta(seconds=seconds)
        training.losses([1.0] * 60, start=101)

        assert call(training, "throughputDrop", 10 * MINUTE, 0.5) is expected

    def test_it_needs_a_pace_before(self) -> None:
        training = Training()
        training.losses([1.0] * 30)

        assert "before the last 1h" in reason(training, "throughputDrop", HOUR, 0.5)


class TestStatistics:
    @pytest.mark.parametrize(
        ("function", "more", "expected"),
        [
            ("mean", (), 8.5),
            ("min", (), 7.0),
            ("max", (), 10.0),
            ("stddev", (), 1.2909944),
            ("slope", (), 1.0),
            ("quantile", (0.5,), 8.5),
            ("change", (), 3 / 7),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_a_window_of_four_steps(self, function: str, more: tuple[float, ...], expected: float) -> None:
        training = Training()
        training.losses([float(step) for step in range(1, 11)])

        assert call(training, function, "loss", 4, *more) == pytest.approx(expected)
        assert call(training, function, "loss", timedelta(seconds=39), *more) == pytest.approx(expected)

    def test_an_empty_window_is_unknown(self) -> None:
        training = Training()
        training.report(1, {"eval/loss": 1.0})
        training.report(500, {"loss": 1.0})

        assert reason(training, "mean", "eval/loss", 10) == (
            "only 0 values of eval/loss in the last 10 steps; mean needs 1"
        )

    @pytest.mark.parametrize("window", [0, -5, timedelta()], ids=str)
    def test_a_window_without_a_length_is_unknown(self, window: CelValue) -> None:
        training = Training()
        training.losses([1.0] * 5)

        assert "more than nothing is right" in reason(training, "mean", "loss", window)

    def test_a_wrong_direction_is_unknown(self) -> None:
        training = Training()
        training.losses([1.0] * 5)

        assert reason(training, "best", "loss", "up") == (
            'best was given direction \'up\'; "lower" or "higher" is right'
        )

    def test_steps_since_the_best_count_from_it(self) -> None:
        training = Training()
        training.losses([3.0, 1.0, 2.0, 2.0])

        assert call(training, "stepsSinceBest", "loss") == 2
        assert call(training, "sinceBest", "loss") == 20 * SECOND
        assert call(training, "best", "loss") == 1.0
        assert call(training, "best", "loss", "higher") == 3.0

    def test_an_age_counts_from_the_newest_value(self) -> None:
        training = Training()
        training.report(1, {"eval/loss": 1.0})
        training.report(2, {"loss": 1.0})

        assert call(training, "age", "eval/loss") == 10 * SECOND

    def test_answers_move_on_with_the_run(self) -> None:
        training = Training()
        training.losses([1.0] * 64)
        assert call(training, "mean", "loss", 32) == 1.0

        training.losses([2.0] * 32, start=65)

        assert call(training, "mean", "loss", 32) == 2.0


@pytest.mark.parametrize(
    ("name", "higher"),
    [
        ("loss", False),
        ("eval/loss", False),
        ("accuracy", True),
        ("eval_accuracy", True),
        ("validation/mean_average_precision", True),
        ("rouge2", True),
        ("rougeLsum", True),
        ("reward", True),
        ("reward_loss", False),
        ("top5", True),
        ("r2", True),
        ("negative_log_likelihood", False),
        ("grad_norm", False),
        ("evalF1", True),
        ("perplexity", False),
        ("validation/wer", False),
        ("map50", True),
        ("val/mIoU", True),
        ("meanIoU", True),
        ("IoU", True),
        ("CIDEr", True),
        ("win_rate", True),
        ("eval_exact_match", True),
        ("cosine_similarity", True),
        ("rewards/rejected", False),
        ("learning_rate", False),
        ("evalLoss", False),
        ("mapping_error", False),
        ("", False),
        ("损失", False),
    ],
)
def test_a_metric_is_judged_by_the_words_of_its_name(name: str, higher: bool) -> None:
    assert higher_is_better(name) is higher


@pytest.mark.parametrize("rate", ["learning_rate", "lr", "train/lr", "lr-AdamW", "actor/lr"])
def test_a_learning_rate_on_its_way_up_holds_a_plateau_back_while_it_is_reported(rate: str) -> None:
    """Some trainings tell of it during warm-up alone: what is not told any more says nothing."""
    training, chance = Training(total=None, every=SECOND), random.Random(1)
    for step in range(300):
        training.report(step, {"loss": falls_to_a_floor(step, chance), rate: step * 1e-6})
    assert "is rising" in reason(training, "plateau", "loss", 50)

    found = []
    for step in range(300, 1000):
        training.report(step, {"loss": falls_to_a_floor(step, chance)})
        if step % 50 == 49:
            found.append(call(training, "plateau", "loss", 100))

    assert True in found


def test_an_odd_first_value_makes_no_window_negligible() -> None:
    def spoilt(step: int, chance: random.Random) -> float:
        return 1e9 if step == 0 else 3 - 0.0005 * step + chance.gauss(0, 0.05)

    assert fired(spoilt) == []


def test_rounding_hides_no_gain_from_a_window() -> None:
    assert fired(lambda step, chance: round(3 - 0.0005 * step, 1)) == []
