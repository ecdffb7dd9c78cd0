"""What is known of a run: attempts, steps, clocks, pace, checkpoints, memory."""

from __future__ import annotations

import gc
import math
import random
import tracemalloc
from datetime import timedelta

import pytest
from tests.policies.runs import HOUR, MINUTE, SECOND, T0, Training, facts

from trainwarden.policies.expressions.engines import engine
from trainwarden.policies.expressions.protocol import UnknownValueError
from trainwarden.policies.facts import JobPhase
from trainwarden.policies.metrics import MOST_SERIES
from trainwarden.policies.run import Reception, RunState
from trainwarden.reporters.wire import Checkpoint


def unknown(training: Training, name: str, *, after: timedelta = timedelta()) -> str:
    with pytest.raises(UnknownValueError) as caught:
        training.state.scope(training.at + after).variable(name)
    return caught.value.reason


class TestReception:
    def test_a_repeated_report_is_a_duplicate(self) -> None:
        training = Training()
        training.report(1, {"loss": 3.0}, seq=0)

        assert training.report(1, {"loss": 3.0}, seq=0) is Reception.DUPLICATE

    def test_a_late_report_fills_the_gap_and_moves_nothing(self) -> None:
        training = Training()
        training.report(1, {"loss": 3.0}, seq=0)
        training.report(3, {"loss": 1.0}, seq=2)

        assert training.report(2, {"loss": 2.0}, seq=1) is Reception.REORDERED
        assert training.state.step() == 3
        assert training.state.metrics.series("loss").exact()[2] == [3.0, 2.0, 1.0]  # type: ignore[union-attr]

    def test_other_ranks_are_ignored(self) -> None:
        assert Training().report(1, {"loss": 3.0}, rank=1) is Reception.IGNORED

    @pytest.mark.parametrize("step", [-1, 1 << 53], ids=["below zero", "too large"])
    def test_an_impossible_step_is_invalid(self, step: int) -> None:
        assert Training().report(step, {"loss": 3.0}) is Reception.INVALID

    def test_a_pod_of_an_older_attempt_is_fenced(self) -> None:
        training = Training(RunState(facts(pods=("llama-0",))))
        training.report(100, {"loss": 2.0})
        training.state.learn(facts(attempt="a-2", pods=("llama-0-b",), time=T0 + HOUR, attempt_started_at=T0 + HOUR))
        training.at = T0 + HOUR + MINUTE

        assert training.report(101, {"loss": 9.0}) is Reception.FENCED
        assert training.again("r-2", pod="llama-0-b").report(51, {"loss": 2.1}) is Reception.STARTED

    def test_an_older_training_of_the_process_is_fenced(self) -> None:
        first = Training()
        first.report(100, {"loss": 2.0})
        second = first.again("r-2")
        second.report(1, {"loss": 5.0})

        assert first.report(101, {"loss": 1.9}) is Reception.FENCED
        assert first.state.ref().run == "r-2"

    def test_an_outer_training_goes_on_when_an_inner_one_has_ended(self) -> None:
        outer = Training()
        outer.report(100, {"loss": 2.0})
        inner = outer.again("r-2")
        inner.report(1, {"loss": 5.0})
        inner.report(1, phase="done")

        assert outer.report(101, {"loss": 1.9}) is Reception.STARTED
        assert outer.state.step() == 101

    def test_what_an_older_attempt_said_is_history_when_the_stream_is_read_again(self) -> None:
        state = RunState(facts(attempt="a-2", pods=("new",), attempt_started_at=T0 + HOUR, time=T0 + HOUR))
        old = Training(state, run="r-1", pod="old")
        old.losses([5.0, 4.0, 3.0])

        assert not state.reporting()
        assert state.step() is None
        new = old.again("r-2", pod="new")
        new.at = T0 + HOUR + MINUTE
        new.report(4, {"loss": 2.5})
        assert state.metrics.series("loss").exact()[2] == [5.0, 4.0, 3.0, 2.5]  # type: ignore[union-attr]


class TestResume:
    def test_a_resume_rewinds_to_its_step(self) -> None:
        first = Training()
        first.losses([float(300 - step) for step in range(1, 213)])
        second = first.again("r-2")

        second.report(0, phase="init")
        second.report(200, phase="init")
        second.report(201, {"loss": 50.0})

        steps, _, values = first.state.metrics.series("loss").exact()  # type: ignore[union-attr]
        assert steps[-2:] == [200, 201]
        assert values[-2:] == [100.0, 50.0]

    def test_nothing_is_known_of_metrics_until_the_new_attempt_says_where_it_is(self) -> None:
        first = Training()
        first.losses([3.0, 2.0])
        first.again("r-2").report(0, phase="init")

        with pytest.raises(UnknownValueError, match="nothing was reported in this attempt yet"):
            first.state.scope(first.at + SECOND).metric("loss")

    def test_a_training_from_zero_starts_anew(self) -> None:
        first = Training()
        first.losses([1.0] * 50)

        first.again("r-2").report(1, {"loss": 5.0})

        assert first.state.metrics.series("loss").exact()[2] == [5.0]  # type: ignore[union-attr]
        assert first.state.scope(first.at + MINUTE).call("best", ("loss",)) == 5.0

    def test_a_night_of_suspension_is_not_time_without_a_best(self) -> None:
        first = Training()
        first.losses([3.0, 2.0, 2.5])
        second = first.again("r-2")
        second.at += 10 * HOUR

        second.report(4, {"loss": 2.4})

        since = second.state.scope(second.at).call("sinceBest", ("loss",))
        assert since == 10 * SECOND

    def test_a_training_that_goes_back_by_itself_is_followed(self) -> None:
        training = Training()
        training.losses([1.0] * 100)

        for step in (51, 52, 53, 54):
            training.report(step, {"loss": 2.0})

        assert training.state.step() == 54

    def test_one_value_of_an_older_step_moves_nothing_back(self) -> None:
        training = Training()
        training.losses([1.0] * 100)

        training.report(90, {"eval/loss": 2.0})

        assert training.state.step() == 100
        assert "eval/loss" in training.state.metrics


class TestSilence:
    def test_metrics_are_unknown_after_a_long_silence(self) -> None:
        training = Training()
        training.losses([3.0] * 30)

        with pytest.raises(UnknownValueError, match="last heard 12m ago"):
            training.state.scope(training.at + 12 * MINUTE).metric("loss")
        assert training.state.scope(training.at + 4 * MINUTE).metric("loss") == 3.0

    def test_a_silent_run_fires_nothing(self) -> None:
        training = Training(total=None)
        training.losses([2 + 2 * math.exp(-step / 15) for step in range(400)])

        scope = training.state.scope(training.at)
        assert scope.call("plateau", ("loss", 40)) is True
        with pytest.raises(UnknownValueError, match="last heard"):
            training.state.scope(training.at + HOUR).call("plateau", ("loss", 40))

    def test_the_silence_itself_is_known(self) -> None:
        training = Training()
        training.report(1, {"loss": 3.0})

        assert training.state.scope(training.at + HOUR).variable("progress.sinceReport") == HOUR

    def test_a_metric_that_used_to_come_often_goes_out_of_date(self) -> None:
        training = Training()
        training.losses([3.0] * 30, name="eval/loss")
        for step in range(31, 300):
            training.report(step, {"loss": 1.0})

        with pytest.raises(UnknownValueError, match=r"eval/loss was last reported .* ago, usually every 10s"):
            training.state.scope(training.at).metric("eval/loss")


class TestStall:
    def test_a_frozen_step_counts_though_heartbeats_come(self) -> None:
        training = Training()
        training.losses([3.0, 2.0, 1.0])
        for _ in range(60):
            training.report(3)

        assert training.state.scope(training.at).variable("progress.sinceStep") == 10 * MINUTE

    @pytest.mark.parametrize(
        ("minutes", "counted"), [(14, 0), (15, 0), (20, 5)], ids=["within", "exactly", "beyond the budget"]
    )
    def test_an_evaluation_has_a_budget_of_its_own(self, minutes: int, counted: int) -> None:
        training = Training()
        training.losses([3.0, 2.0, 1.0])
        training.report(3, phase="eval", wait=timedelta())
        for _ in range(minutes * 6):
            training.report(3, phase="eval")

        assert training.state.scope(training.at).variable("progress.sinceStep") == counted * MINUTE

    def test_the_budget_of_a_phase_is_learnt_from_the_run(self) -> None:
        training = Training()
        training.report(1, {"loss": 3.0})
        training.report(2, {"loss": 3.0})
        for length, step in ((60, 3), (150, 4)):
            training.report(step - 1, phase="eval", wait=timedelta())
            for _ in range(length):
                training.report(step - 1, phase="eval")
            expected = timedelta() if step == 4 else None
            if expected is not None:
                assert training.state.scope(training.at).variable("progress.sinceStep") == expected
            training.report(step, {"loss": 2.0})

    def test_the_first_step_may_take_half_an_hour(self) -> None:
        training = Training()
        for _ in range(40 * 6):
            training.report(0)

        assert training.state.scope(training.at).variable("progress.sinceStep") == pytest.approx(
            10 * MINUTE, abs=20 * SECOND
        )

    def test_a_job_that_does_not_run_does_not_stall(self) -> None:
        training = Training()
        training.losses([3.0, 2.0])
        training.state.learn(facts(time=training.at, phase=JobPhase.SUSPENDED, ready=False))

        assert unknown(training, "progress.sinceStep", after=HOUR) == (
            "the job is Suspended: a step that stands still says nothing"
        )

    def test_a_training_that_never_reported_does_not_stall(self) -> None:
        assert unknown(Training(), "progress.sinceStep", after=HOUR) == "nothing was reported in this attempt yet"

    def test_a_silent_training_is_not_said_to_stall(self) -> None:
        training = Training()
        training.losses([3.0, 2.0, 1.0])

        assert unknown(training, "progress.sinceStep", after=HOUR) == "last heard 1h ago"


class TestEta:
    def test_it_is_unknown_until_some_steps_were_timed(self) -> None:
        training = Training()
        training.report(1, {"loss": 3.0})

        assert unknown(training, "progress.eta").startswith("too few steps")

    def test_it_is_steps_left_times_seconds_per_step(self) -> None:
        training = Training()
        training.losses([1.0] * 101)

        scope = training.state.scope(training.at)
        assert scope.variable("progress.eta") == timedelta(seconds=899 * 10)
        assert scope.variable("progress.stepsPerSecond") == pytest.approx(0.1)
        assert scope.variable("progress.finish") == training.at + timedelta(seconds=8990)

    def test_it_is_right_from_the_first_reports_after_a_resume(self) -> None:
        first = Training()
        first.losses([1.0] * 50)
        second = first.again("r-2")
        second.report(800, phase="init")
        second.losses([1.0] * 15, start=801)

        assert second.state.eta_seconds(second.at) == pytest.approx((1000 - 815) * 10, rel=0.01)

    def test_evaluations_are_added_back_by_their_share(self) -> None:
        training = Training()
        for step in range(1, 102):
            training.report(step, {"loss": 1.0})
            if step % 10 == 0:
                training.report(step, phase="eval", wait=timedelta())
                training.report(step, phase="train", wait=100 * SECOND)

        assert training.state.eta_seconds(training.at) == pytest.approx(899 * 20, rel=0.02)
        assert training.state.pace.steps_per_second() == pytest.approx(0.1)

    @pytest.mark.parametrize("total", [None, 1 << 62], ids=["none", "a placeholder"])
    def test_it_is_unknown_without_a_total(self, total: int | None) -> None:
        training = Training(total=total)
        training.losses([1.0] * 50)

        assert unknown(training, "progress.eta") == "the training has not said how many steps it plans"

    def test_the_band_holds_the_expectation(self) -> None:
        training, chance = Training(), random.Random(7)
        for step in range(1, 200):
            training.report(step, {"loss": 1.0}, wait=timedelta(seconds=chance.uniform(5, 15)))

        scope = training.state.scope(training.at)
        low, middle, high = (scope.variable(f"progress.{name}") for name in ("etaLow", "eta", "etaHigh"))
        assert isinstance(low, timedelta)
        assert isinstance(middle, timedelta)
        assert isinstance(high, timedelta)
        assert low < middle < high


class TestMoney:
    def test_cost_and_gpu_hours_count_ready_time_of_all_attempts(self) -> None:
        state = RunState(facts(running_seconds=3600.0, price_per_hour=32.0))
        scope = state.scope(T0 + HOUR)

        assert scope.variable("job.cost") == pytest.approx(64.0)
        assert scope.variable("job.gpuHours") == pytest.approx(16.0)
        assert scope.variable("job.runningFor") == 2 * HOUR

    def test_they_stand_still_while_the_job_is_suspended(self) -> None:
        state = RunState(facts())
        state.learn(facts(time=T0 + HOUR, phase=JobPhase.SUSPENDED, ready=False))

        assert state.scope(T0 + 10 * HOUR).variable("job.runningFor") == HOUR

    def test_a_projection_adds_the_rest_of_the_plan(self) -> None:
        training = Training(RunState(facts(price_per_hour=36.0)))
        training.losses([1.0] * 101)

        cost = training.state.cost(training.at)
        assert cost is not None
        assert training.state.scope(training.at).variable("job.projectedCost") == pytest.approx(cost + 89.9)


class TestCheckpoint:
    def test_its_age_counts_from_the_first_report_of_it(self) -> None:
        training = Training()
        training.report(1, {"loss": 3.0})
        training.report(2, {"loss": 3.0}, checkpoint=Checkpoint(2, "/c/2"))
        for step in range(3, 9):
            training.report(step, {"loss": 3.0}, checkpoint=Checkpoint(2, "/c/2", 10, "sha256:x"))

        assert training.state.checkpoint_age(training.at) == MINUTE
        proof = training.state.checkpoint()
        assert proof is not None
        assert (proof.step, proof.digest) == (2, "sha256:x")

    def test_before_the_first_it_is_the_time_since_the_first_step(self) -> None:
        training = Training()
        training.losses([3.0] * 7)

        assert training.state.checkpoint() is None
        assert training.state.checkpoint_age(training.at) == MINUTE


class TestMetrics:
    def test_a_metric_that_is_not_finite_is_unknown_and_says_so(self) -> None:
        training = Training()
        training.report(1, {"loss": 3.0})
        training.report(2, nonfinite={"loss": "NaN"})

        with pytest.raises(UnknownValueError, match="loss is NaN at step 2"):
            training.state.scope(training.at).metric("loss")
        assert math.isnan(training.state.metric_values()["loss"])

    def test_a_number_that_stands_for_infinity_is_infinite(self) -> None:
        training = Training()
        training.report(1, {"loss": 1.7976931348623157e308})

        assert training.state.metric_values()["loss"] == math.inf

    def test_an_unknown_metric_is_answered_with_the_known_ones(self) -> None:
        training = Training()
        training.report(1, {"train_loss": 3.0})

        with pytest.raises(UnknownValueError, match="loss was never reported; reported are: train_loss"):
            training.state.scope(training.at).metric("loss")

    def test_beyond_the_limit_only_newest_values_are_kept(self) -> None:
        training = Training()
        training.report(1, {f"m{number:04}": 1.0 for number in range(1000)})
        training.report(2, {f"m{number:04}": 2.0 for number in range(1000)})

        scope = training.state.scope(training.at)
        assert scope.metric("m0999") == 2.0
        assert len(scope.metric_names()) == 1000
        with pytest.raises(UnknownValueError, match=f"only the first {MOST_SERIES} metrics"):
            scope.call("mean", ("m0999", 10))

    @pytest.mark.parametrize("others", [1, MOST_SERIES], ids=["few", "more than have a history"])
    def test_a_rule_about_names_follows_what_is_reported_first_and_what_a_resume_forgets(self, others: int) -> None:
        chosen = engine().compile('"val" in metrics ? "val" : "loss"', field="when", result=None, variables={})
        training = Training()
        answers = []

        training.report(1, {"loss": 1.0, **{f"m{number}": 1.0 for number in range(others)}})
        answers.append(chosen.evaluate(training.state.scope(training.at), {}).value)
        training.report(2, {"val": 1.0})
        answers.append(chosen.evaluate(training.state.scope(training.at), {}).value)
        training.again("r-2").report(1, {"loss": 1.0})
        answers.append(chosen.evaluate(training.state.scope(training.at), {}).value)

        assert answers == ["loss", "val", "loss"]

    def test_one_run_with_8_metrics_and_12_rules_stays_within_64_kib(self) -> None:
        names = [f"metric/{number}" for number in range(8)]
        chance = random.Random(1)
        gc.collect()
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()

        training = Training(every=SECOND, total=100_000)
        for step in range(12_000):
            training.report(step, {name: chance.gauss(2.0, 0.1) for name in names})
        scope = training.state.scope(training.at)
        for function in ("plateau", "divergence", "mean", "slope"):
            for name in names[:3]:
                scope.call(function, (name, HOUR))
        del scope
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()

        assert after - before <= 64 * 1024


def test_a_curve_is_small_and_marks_the_window() -> None:
    training = Training(total=None)
    chance = random.Random(3)
    training.losses([2 + 2 * math.exp(-step / 50) + chance.gauss(0, 0.01) for step in range(3000)])
    scope = training.state.scope(training.at)
    scope.call("plateau", ("loss", 500))
    (window,) = scope.windows()

    curve = training.state.curve("loss", window=window, fired_at=3000, points=40)

    assert curve is not None
    assert len(curve.steps) == len(curve.values) == len(curve.lows) <= 40
    assert curve.window_to == 3000
    assert curve.best_step is not None
    assert curve.window_from == pytest.approx(2500, abs=60)
    assert all(low <= value <= high for low, value, high in zip(curve.lows, curve.values, curve.highs, strict=True))
