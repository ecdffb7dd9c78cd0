"""Functions that tell a broken signal, a storm of restarts, or a size out of bounds from what is healthy."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Sequence
from datetime import timedelta

import pytest
from tests.policies.runs import MINUTE, T0, Training, facts

from trainwarden.policies.detectors.restarts import RestartWatch
from trainwarden.policies.expressions.protocol import CelValue, UnknownValueError
from trainwarden.policies.stall import LEAST_STEP_BUDGET


def call(training: Training, function: str, *arguments: CelValue) -> CelValue:
    return training.state.scope(training.at).call(function, arguments)


def reason(training: Training, function: str, *arguments: CelValue) -> str:
    with pytest.raises(UnknownValueError) as caught:
        call(training, function, *arguments)
    return caught.value.reason


def falling(size: int, *, seed: int = 1, scale: float = 1.0) -> list[float]:
    chance = random.Random(seed)
    return [scale * (2 + 2 * math.exp(-step / 100) + chance.gauss(0, 0.03)) for step in range(size)]


class TestDivergenceWithoutAWindow:
    @pytest.mark.parametrize("times", [2.0, 3.0, 10.0])
    def test_a_level_that_stays_is_found_within_a_hundredth_of_the_plan(self, times: float) -> None:
        training = Training(total=2000)
        training.losses(falling(1000))
        assert call(training, "divergence", "loss") is False

        found = None
        for step, value in enumerate(falling(40, seed=2, scale=times), 1001):
            training.report(step, {"loss": value})
            if found is None and call(training, "divergence", "loss") is True:
                found = step

        assert found is not None
        assert found - 1000 <= 20

    def test_a_spike_that_heals_is_none(self) -> None:
        training = Training(total=2000)
        values = falling(1200)
        for number in range(40):
            values[1000 + number] += 3 * math.exp(-number / 8)
        for step, value in enumerate(values, 1):
            training.report(step, {"loss": value})
            if step > 30:
                assert call(training, "divergence", "loss") is False, step

    def test_it_works_without_a_plan_and_with_a_direction(self) -> None:
        training = Training(total=None)
        training.losses([0.9 * (1 - math.exp(-step / 50)) for step in range(500)], name="reward")
        training.losses([0.1] * 20, start=501, name="reward")

        assert call(training, "divergence", "reward") is True
        assert call(training, "divergence", "reward", "higher") is True
        assert call(training, "divergence", "reward", "lower") is False

    def test_it_says_what_is_missing(self) -> None:
        training = Training()
        training.losses([2.0, 1.9])

        assert reason(training, "divergence", "loss") == "only 2 values of loss; divergence needs 17"

    def test_rare_values_need_fewer_in_a_row_that_are_not_finite(self) -> None:
        training = Training(total=100_000)
        training.losses(falling(30), stride=100)
        training.report(3100, nonfinite={"loss": "NaN"})
        assert reason(training, "divergence", "loss") == "loss is not finite at step 3100"

        training.report(3200, nonfinite={"loss": "NaN"})
        assert call(training, "divergence", "loss") is True


class TestScaleChange:
    @pytest.mark.parametrize(("scale", "expected"), [(8.0, True), (0.25, True), (1.1, False)], ids=str)
    def test_it_is_a_jump_at_the_border_that_stays(self, scale: float, expected: bool) -> None:
        first = Training(total=2000)
        first.losses(falling(500))
        second = first.again("r-2")
        second.losses([scale * value for value in falling(540)[500:]], start=501)

        assert call(second, "scaleChange", "loss") is expected

    def test_a_scale_that_changed_is_no_divergence(self) -> None:
        first = Training(total=2000)
        first.losses(falling(500))
        second = first.again("r-2")
        second.losses([8 * value for value in falling(540)[500:]], start=501)

        assert call(second, "divergence", "loss") is False

    def test_a_loss_that_runs_away_on_its_new_scale_is_a_divergence(self) -> None:
        first = Training(total=2000)
        first.losses(falling(500))
        second = first.again("r-2")
        second.losses([8 * value for value in falling(700)[500:]], start=501)
        assert call(second, "divergence", "loss") is False

        second.losses([20.0 * 1.2**step for step in range(30)], start=701)

        assert call(second, "divergence", "loss") is True

    @pytest.mark.parametrize("times", [32.0, 1 / 32])
    def test_a_jump_from_one_scale_to_another_is_no_improvement_after_which_all_is_flat(self, times: float) -> None:
        first = Training(total=4000)
        first.losses([times * value for value in falling(500)])
        second = first.again("r-2")
        for step in range(501, 2501):
            second.report(step, {"loss": 2.0 + 4.0 * 0.9985**step + 0.001 * (step % 3)})
            if step % 50 == 0:  # an engine looks at it all along
                with contextlib.suppress(UnknownValueError):
                    assert call(second, "plateau", "loss", 0.5, 0.0055) is False, step

        assert call(second, "scaleChange", "loss") is True

    def test_it_is_unknown_without_a_resume(self) -> None:
        training = Training()
        training.losses(falling(50))

        assert reason(training, "scaleChange", "loss") == "loss has no values on both sides of a resume"


class TestAimless:
    """GRPO's loss is its KL, which grows from 0 in a healthy run."""

    def test_a_loss_that_rises_from_nothing_is_no_divergence(self) -> None:
        training, chance = Training(total=500), random.Random(0)
        for step in range(1, 501):
            value = 0.0016 * (1 - math.exp(-step / 150)) * chance.gauss(1, 0.15)
            training.report(step, {"loss": value, "reward": 0.2 + 0.001 * step})
            with contextlib.suppress(UnknownValueError):
                assert call(training, "divergence", "loss") is False, step

        assert "has not got better yet, from a level of about 0" in reason(training, "divergence", "loss")

    def test_a_loss_that_only_rises_from_its_first_level_is_one(self) -> None:
        training, chance = Training(total=500), random.Random(0)
        training.losses([4.0 + chance.gauss(0, 0.05) for _ in range(60)] + [9.0 + 0.1 * step for step in range(40)])

        assert call(training, "divergence", "loss") is True


class TestMaskedLoss:
    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            ([2.0, 1.9, 1.8, 1.7, 1.6, 0.0, 0.0, 0.0], True),
            ([2.0, 1.9, 1.8, 1.7, 1.6, 0.0, 0.0], False),
            ([2.0, 1.0, 0.4, 0.1, 0.01, 0.0, 0.0, 0.0], False),
            ([0.0] * 20, False),
        ],
        ids=["masked", "two zeros", "solved", "zero from the start"],
    )
    def test_zeros_that_come_out_of_nothing(self, values: list[float], expected: bool) -> None:
        training = Training()
        training.losses(values)

        assert call(training, "maskedLoss", "loss") is expected

    def test_gradients_that_are_not_finite_tell_of_it_too(self) -> None:
        training = Training()
        for step in range(30):
            training.report(step, {"loss": 2.0 + 1 / (step + 1), "grad_norm": 1.0})
        for step in range(30, 33):
            training.report(step, {"loss": 2.0}, nonfinite={"grad_norm": "NaN"})

        assert call(training, "maskedLoss", "loss") is True


class TestFrozen:
    @pytest.mark.parametrize(("newest", "expected"), [(1.5, True), (1.5000001, False)], ids=["same", "moves"])
    def test_every_value_is_the_same(self, newest: float, expected: bool) -> None:
        training = Training()
        training.losses([2.0, *[1.5] * 30, newest])

        assert call(training, "frozen", "loss", 20) is expected

    def test_it_needs_ten_values(self) -> None:
        training = Training()
        training.losses([1.5] * 9)

        assert reason(training, "frozen", "loss", 20) == "only 9 values of loss in the last 20 steps; frozen needs 10"


class TestMissing:
    def test_a_metric_that_stays_away_while_others_come(self) -> None:
        training = Training()
        training.report(1, {"eval/loss": 1.0})
        training.losses([1.0] * 60, start=2)

        assert call(training, "missing", "eval/loss", 5 * MINUTE) is True
        assert call(training, "missing", "eval/loss", 50) is True
        assert call(training, "missing", "eval/loss", timedelta(hours=1)) is False
        assert call(training, "missing", "loss", 5 * MINUTE) is False

    def test_one_that_never_came_is_missing_once_the_window_has_passed(self) -> None:
        training = Training()
        training.losses([1.0] * 7)
        assert reason(training, "missing", "eval/loss", 2 * MINUTE) == (
            "eval/loss has been missing for 1m; missing waits for 2m"
        )

        training.losses([1.0] * 7, start=8)
        assert call(training, "missing", "eval/loss", 2 * MINUTE) is True


class TestGuards:
    @pytest.mark.parametrize(
        ("kl", "expected"),
        [([0.01 * n for n in range(60)], False), ([0.05 * 1.2**n for n in range(40)], True)],
        ids=["grows evenly", "explodes"],
    )
    def test_a_distance_that_explodes(self, kl: Sequence[float], expected: bool) -> None:
        training = Training()
        training.losses([0.02 + 0.002 * number for number in range(60)], name="kl")
        training.losses([0.14 + value for value in kl], start=61, name="kl")

        assert call(training, "explosion", "kl", 10) is expected

    def test_what_is_usual_is_not_known_of_a_kl_that_has_just_begun_to_grow(self) -> None:
        training = Training()
        for step in range(1, 400):
            training.report(step, {"kl": 0.0001 * step})
            with contextlib.suppress(UnknownValueError):
                assert call(training, "explosion", "kl", 200) is False, step

    @pytest.mark.parametrize(("left", "expected"), [(0.3, False), (0.001, True)], ids=["narrows", "is gone"])
    def test_a_spread_of_rewards_that_dies(self, left: float, expected: bool) -> None:
        training = Training()
        training.losses([0.5 + 0.05 * math.sin(number) for number in range(60)], name="reward_std")
        training.losses([left] * 20, start=61, name="reward_std")

        assert call(training, "collapse", "reward_std", 15) is expected


class TestRestarts:
    def test_attempts_that_fall_at_the_same_place_are_fruitless(self) -> None:
        training = Training()
        training.losses([1.0] * 100)
        for number in range(3):
            training = training.again(f"r-{number + 2}")
            training.losses([1.0] * 20, start=81)

        assert training.state.scope(training.at).variable("job.restartsWithoutProgress") == 3

        training.losses([1.0] * 20, start=101)
        assert training.state.scope(training.at).variable("job.restartsWithoutProgress") == 0

    def test_restarts_before_the_first_report_count(self) -> None:
        training = Training()
        training.losses([1.0] * 100)
        for number in range(1, 4):
            training.at += MINUTE
            training.state.learn(facts(restarts=number, attempt=f"a-{number}", time=training.at, attempt_started_at=T0))

        assert training.state.scope(training.at).variable("job.restartsWithoutProgress") == 3

    def test_a_few_steps_more_each_time_are_no_progress(self) -> None:
        watch = RestartWatch()
        for furthest in (1000, 1003, 1006, 1009):
            watch.start(after_done=False)
            watch.reach(furthest)

        assert watch.fruitless == 3

    def test_a_sequel_is_no_restart(self) -> None:
        watch = RestartWatch()
        watch.start(after_done=False)
        watch.reach(500)
        watch.start(after_done=True)
        watch.reach(10)

        assert watch.fruitless == 0


class TestBudgets:
    def test_a_step_may_take_ten_usual_ones(self) -> None:
        training = Training(every=5 * MINUTE)
        training.losses([1.0] * 30)

        assert training.state.scope(training.at).variable("progress.stallBudget") == 50 * MINUTE

    def test_quick_steps_have_ten_minutes(self) -> None:
        training = Training()
        training.losses([1.0] * 30)

        budget = training.state.scope(training.at).variable("progress.stallBudget")
        assert budget == timedelta(seconds=LEAST_STEP_BUDGET)


def test_the_step_of_the_best_value_is_known() -> None:
    training = Training()
    training.losses([3.0, 1.0, 2.0], name="eval/loss", stride=100)

    assert call(training, "bestStep", "eval/loss") == 101


def test_a_pace_is_compared_with_the_attempt_before() -> None:
    first = Training()
    first.losses([1.0] * 60)
    second = first.again("r-2")
    second.every = timedelta(seconds=40)
    second.losses([1.0] * 20, start=61)

    assert call(second, "throughputDrop", timedelta(hours=1), 0.5) is True
