"""A recorded run under policies: what fires, when, and what it would have been worth."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from trainwarden.policies.backtest.outcome import Replay
from trainwarden.policies.backtest.recording import Row, Setting
from trainwarden.policies.backtest.replaying import replay
from trainwarden.policies.backtest.summing import TotalsBuilder
from trainwarden.policies.compiling import CompiledPolicy, compile_policy
from trainwarden.policies.decision import ActionType
from trainwarden.policies.expressions.engines import engine
from trainwarden.policies.loading import policy_from_body

SETTING = Setting(gpus=8, price_per_hour=20.0)


def policy(rules: str, *, name: str = "guard", **spec: object) -> CompiledPolicy:
    body = {
        "apiVersion": "trainwarden.dev/v1alpha1",
        "kind": "TrainingPolicy",
        "metadata": {"name": name},
        "spec": {"mode": "Audit", "selector": {}, "rules": yaml.safe_load(rules), **spec},
    }
    return compile_policy(policy_from_body(body), engine())


def rows(values: list[float], *, every: float = 60.0, metric: str = "loss", total: int | None = None) -> Iterator[Row]:
    """One row a step; a value that is not finite stands as its text."""
    for step, value in enumerate(values, 1):
        if math.isfinite(value):
            yield Row(step, {metric: value}, seconds=every * step, total=total)
        else:
            yield Row(step, {}, {metric: "NaN"}, seconds=every * step, total=total)


def fired(found: Replay) -> list[tuple[str, int, float, ActionType | None]]:
    return [(each.rule, each.step, each.elapsed_seconds, each.action) for each in found.firings]


def test_a_ladder_is_climbed_at_its_own_times_between_the_rows() -> None:
    high = policy(
        """[{name: high, when: metrics.loss > 5.0, for: 90s,
             actions: [{type: Notify}, {type: Suspend, after: 3m20s}]}]"""
    )

    found = replay("r", rows([1.0] * 10 + [9.0] * 20), [high], SETTING)

    assert fired(found) == [
        ("high", 12, 750.0, ActionType.NOTIFY),  # true from 660 s on, for 90 s
        ("high", 15, 950.0, ActionType.SUSPEND),
    ]


def test_a_rule_that_resolves_before_its_suspend_does_not_stop_the_run() -> None:
    high = policy("[{name: high, when: metrics.loss > 5.0, actions: [{type: Notify}, {type: Suspend, after: 30m}]}]")

    found = replay("r", rows([1.0] * 10 + [9.0] * 5 + [1.0] * 60), [high], SETTING)

    assert fired(found) == [("high", 11, 660.0, ActionType.NOTIFY)]
    assert found.outcomes[0].stop is None


def test_a_stop_after_which_the_metric_improves_is_wrong_and_lost() -> None:
    early = policy("[{name: early, when: progress.step >= 30 && metrics.loss < 99.0, actions: [{type: Stop}]}]")

    found = replay("r", rows([100.0 - step for step in range(61)]), [early], SETTING)

    stop = found.outcomes[0].stop
    assert stop is not None
    assert stop.metric == "loss"
    assert stop.wrong
    assert stop.to_come == pytest.approx(31 / 60)
    assert (stop.gpu_hours_lost, stop.gpu_hours_saved) == (0.5 * 8, 0.0)
    assert (stop.money_lost, stop.money_saved) == (10.0, 0.0)


def test_a_stop_of_a_flat_run_is_right_and_saves_the_rest() -> None:
    late = policy("[{name: late, when: stepsSinceBest('loss') >= 60, actions: [{type: Suspend}]}]")
    values = [100.0 - step for step in range(60)] + [41.0] * 120

    found = replay("r", rows(values), [late], SETTING)

    stop = found.outcomes[0].stop
    assert stop is not None
    assert (stop.step, stop.metric, stop.wrong, stop.to_come) == (120, "loss", False, 0.0)
    assert stop.gpu_hours_saved == 8.0
    assert stop.money_saved == 20.0
    assert found.idle_seconds == pytest.approx(120 * 60, abs=120)


def test_a_stop_by_a_metric_that_is_no_aim_is_judged_by_the_main_one() -> None:
    wild = policy("[{name: wild, when: metrics.grad_norm > 5.0, actions: [{type: Stop}]}]")
    recorded = [
        Row(step, {"loss": 100.0 - step, "grad_norm": 9.0 if step == 50 else 1.0}, seconds=60.0 * step)
        for step in range(101)
    ]

    found = replay("r", recorded, [wild], SETTING)

    stop = found.outcomes[0].stop
    assert found.firings[0].metric == "grad_norm"
    assert stop is not None
    assert (stop.metric, stop.to_come, stop.wrong) == ("loss", 0.5, True)


def test_the_recorded_run_goes_on_past_a_stop_so_that_policies_are_measured_apart() -> None:
    early = policy("[{name: early, when: progress.step >= 10, actions: [{type: Stop}]}]", name="a")
    late = policy("[{name: late, when: progress.step >= 20, actions: [{type: Stop}]}]", name="b")

    found = replay("r", rows([float(-step) for step in range(40)]), [early, late], SETTING)

    assert [(each.policy, each.stop.step) for each in found.outcomes if each.stop is not None] == [("a", 10), ("b", 20)]


def test_protections_hold_in_a_backtest_too() -> None:
    late = policy("[{name: late, when: progress.percent > 98.0, actions: [{type: Notify}, {type: Stop}]}]")

    found = replay("r", rows([1.0] * 100, total=100), [late], SETTING)

    assert fired(found) == [("late", 99, 99 * 60.0, ActionType.NOTIFY)]
    assert found.outcomes[0].stop is None


def test_a_value_that_is_not_finite_is_looked_at_however_short_it_stands() -> None:
    lost = policy("[{name: nonFinite, when: nonFinite('loss')}]")
    values = [1.0] * 5_000
    values[4_321] = math.nan

    found = replay("r", rows(values, every=0.3), [lost], SETTING)

    assert [(each.rule, each.metric, each.step, each.action) for each in found.firings] == [
        ("nonFinite", "loss", 4_322, None)
    ]


def test_the_metric_is_the_one_that_made_the_condition_true() -> None:
    either = policy("""[{name: high, when: 'max("loss", 5) > 90.0 || max("eval/loss", 5) > 90.0'}]""")
    calls = policy("""[{name: lost, when: 'nonFinite("loss") || nonFinite("eval/loss")'}]""", name="b")
    recorded = [
        Row(step, {"loss": 1.0}, {"eval/loss": "NaN"} if step == 20 else {}, seconds=60.0 * step)
        for step in range(1, 31)
    ]

    found = replay("r", recorded, [either, calls], SETTING)

    assert [(each.rule, each.metric) for each in found.firings] == [("lost", "eval/loss")]


def test_the_metric_is_found_through_a_variable() -> None:
    watched = policy(
        """[{name: high, when: 'nonFinite(variables.watched)'}]""",
        variables=[{"name": "watched", "expression": '"eval/loss" in metrics ? "eval/loss" : "loss"'}],
    )
    recorded = [Row(1, {"loss": 1.0, "eval/loss": 1.0}, seconds=1.0), Row(2, {}, {"eval/loss": "NaN"}, seconds=2.0)]

    found = replay("r", recorded, [watched], SETTING)

    assert [each.metric for each in found.firings] == ["eval/loss"]


def test_a_stall_is_found_in_the_gap_between_two_rows() -> None:
    stall = policy("[{name: stall, when: progress.sinceStep > duration('15m'), actions: [{type: Notify}]}]")
    recorded = [Row(step, {"loss": 1.0}, seconds=60.0 * step + (7_200 if step > 60 else 0)) for step in range(1, 121)]

    found = replay("r", recorded, [stall], SETTING)

    assert [(each.rule, each.metric, each.step) for each in found.firings] == [("stall", None, 60)]
    assert 15 * 60 <= found.firings[0].elapsed_seconds - 3_600 <= 15 * 60 * 1.02 + 1


def test_rows_that_are_far_apart_are_no_standstill_while_steps_go_on() -> None:
    """A live training would have told of the steps between them."""
    stall = policy("[{name: stall, when: progress.sinceStep > progress.stallBudget, actions: [{type: Notify}]}]")
    minutes = [1, 2, 3, *range(120, 1200, 120)]
    recorded = [Row(50 * minute, {"loss": 1.0}, seconds=60.0 * minute) for minute in minutes]

    assert replay("r", recorded, [stall], SETTING).firings == ()


def test_a_recording_tells_of_no_checkpoints() -> None:
    old = policy("[{name: old, when: checkpoint.age > duration('1m'), actions: [{type: Notify}]}]")

    found = replay("r", rows([1.0] * 120), [old], SETTING)

    assert found.firings == ()
    assert found.outcomes[0].without_value == {"old": "the recording does not tell of checkpoints"}


def test_steps_count_as_time_when_no_clock_was_recorded() -> None:
    stand = policy("[{name: stand, when: sinceBest('loss') > duration('10m')}]")
    recorded = [Row(step, {"loss": max(11.0 - step, 1.0)}) for step in range(1, 101)]

    found = replay("r", recorded, [stand], replace(SETTING, seconds_per_step=30.0))

    assert not found.clock
    assert found.elapsed_seconds == 3_000.0
    assert [each.step for each in found.firings] == [30]


def test_a_deadline_and_a_weekend_are_seen_at_the_time_of_the_recording() -> None:
    rules = policy(
        """[{name: late, when: now > job.deadline}, {name: weekend, when: now.getDayOfWeek() == 6}]""",
    )
    friday = datetime(2026, 1, 2, 23, 0, tzinfo=UTC)

    found = replay("r", rows([1.0] * 120), [rules], replace(SETTING, deadline=timedelta(minutes=30)), started_at=friday)

    assert [each.rule for each in found.firings] == ["late", "weekend"]
    assert [each.elapsed_seconds / 60 for each in found.firings] == [pytest.approx(30, abs=2), pytest.approx(60, abs=2)]


def test_a_run_of_no_rows_is_a_replay_of_no_steps() -> None:
    found = replay("r", [], [policy("[{name: high, when: metrics.loss > 5.0}]")], SETTING)

    assert (found.last_step, found.elapsed_seconds, found.firings, found.metric) == (0, 0.0, (), None)


def test_memory_does_not_grow_with_the_run() -> None:
    """A million rows come from a generator and leave tracks of a bounded size."""
    high = policy("[{name: high, when: metrics.loss > 5.0}]")
    endless = (Row(step, {"loss": 1.0}, seconds=0.1 * step) for step in itertools.count(1))

    found = replay("r", itertools.islice(endless, 50_000), [high], SETTING, curves=True)

    assert found.reports == 50_000
    assert len(found.curves[0].steps) <= 128


def test_totals_add_up_what_policies_save_and_lose() -> None:
    early = policy("[{name: early, when: progress.step >= 30 && metrics.loss < 99.0, actions: [{type: Stop}]}]")
    falls = replay("falls", rows([100.0 - step for step in range(61)]), [early], SETTING)
    flat = replay("flat", rows([50.0] + [10.0] * 60), [early], SETTING)
    builder = TotalsBuilder(["guard"], SETTING)

    for each in (falls, flat):
        builder.add(each)

    total = builder.totals.policies[0]
    assert (total.runs, total.fires, total.stops, total.wrong_stops) == (2, 2, 2, 1)
    assert total.gpu_hours_lost == 4.0
    assert total.gpu_hours_saved == pytest.approx(31 / 60 * 8)
    assert builder.totals.gpu_hours == pytest.approx(2 * 61 / 60 * 8)
    assert builder.totals.money == pytest.approx(2 * 61 / 60 * 20)
    assert total.idle_share_saved is not None
    assert 0.4 < total.idle_share_saved < 0.6


def test_steps_that_are_done_once_more_take_their_time_where_there_is_no_clock() -> None:
    steps = [*range(1, 101), *range(51, 101)]  # went back to a checkpoint of step 50

    found = replay("r", [Row(step, {"loss": 1.0 / step}) for step in steps], [], replace(SETTING, seconds_per_step=2.0))

    assert found.elapsed_seconds == 2.0 * (100 + 49)
    assert not found.clock


def test_a_row_without_a_time_is_as_late_as_the_row_before() -> None:
    timed = [Row(step, {"loss": 1.0}, seconds=0.5 * step) for step in range(1000, 1010)]
    timed.insert(5, Row(1004, {"eval/loss": 1.0}))

    found = replay("r", timed, [], SETTING)

    assert (found.elapsed_seconds, found.clock) == (504.5, True)


def test_what_a_policy_could_not_judge_is_told_with_the_reason() -> None:
    guards = policy(
        """[{name: flat, when: "plateau('eval/lss', 0.7, 0.01)", actions: [{type: Suspend}]},
            {name: saved, when: "now > job.deadline"},
            {name: late, when: "metrics['late'] > 1.0"},
            {name: high, when: metrics.loss > 5.0}]"""
    )
    others = policy("[{name: high, when: metrics.loss > 5.0}]", name="others", match="job.gpus > 100")
    builder = TotalsBuilder(["guard", "others"], SETTING)

    for last in ({"late": 2.0}, {}):
        found = replay(
            "r", [*rows([3.0] * 30), Row(31, last or {"loss": 3.0}, seconds=3000.0)], [guards, others], SETTING
        )
        builder.add(found)

    of_guards, of_others = found.outcomes
    assert of_guards.matched
    assert not of_others.matched
    assert set(of_guards.without_value) == {"flat", "saved", "late"}
    assert "eval/lss" in of_guards.without_value["flat"]
    assert of_others.without_value == {}
    totals = builder.totals.policies
    assert [(each.rule, each.runs) for each in totals[0].without_value] == [("flat", 2), ("saved", 2), ("late", 1)]
    assert [each.matched_runs for each in totals] == [2, 0]


def test_what_a_second_pass_over_the_same_steps_gains_is_still_to_come() -> None:
    first = [8.0 - step / 20 for step in range(100)] + [30.0] * 20
    second = [6.0 - step / 40 for step in range(200)]  # resumed from step 40 with a better setting
    steps = [*range(1, 121), *range(41, 241)]
    found = replay(
        "r",
        [
            Row(step, {"loss": loss}, seconds=60.0 * at)
            for at, (step, loss) in enumerate(zip(steps, first + second, strict=True))
        ],
        [policy("[{name: lost, when: metrics.loss > 20.0, actions: [{type: Suspend}]}]")],
        SETTING,
    )

    stop = found.outcomes[0].stop
    assert stop is not None
    assert stop.step == 101
    assert stop.wrong
    assert stop.to_come == pytest.approx((3.05 - 1.0) / (8.0 - 1.0), abs=0.05)


def test_beside_a_reward_a_stop_by_the_loss_is_judged_by_the_reward() -> None:
    def rows_of(reward: str) -> list[Row]:
        return [Row(step, {"loss": 0.001 * step, reward: step / 100}, seconds=60.0 * step) for step in range(100)]

    high = policy("[{name: high, when: metrics.loss > 0.05, actions: [{type: Suspend}]}]")

    played = replay("r", rows_of("reward"), [high], SETTING).outcomes[0].stop
    preferred = replay("r", rows_of("rewards/chosen"), [high], SETTING).outcomes[0].stop

    assert played is not None
    assert (played.metric, played.wrong) == ("reward", True)
    assert preferred is not None
    assert (preferred.metric, preferred.wrong) == ("loss", False)
