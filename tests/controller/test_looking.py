"""When a job is looked at, live and in a replay."""

from __future__ import annotations

import pytest
from tests.controller.engines import facts

from trainwarden.controller.jobs import Allowance, Job, Key
from trainwarden.controller.looking import Next, Schedule
from trainwarden.policies.decision import ActionResult, ActionState
from trainwarden.policies.run import RunState

KEY: Key = ("team-a", "bert")


def schedule(*, began: float = 0.0, early: int = 0) -> Schedule:
    """A schedule that lets so many looks be taken early."""
    return Schedule(lambda: began, Allowance(10.0 * early, lambda: 0.0))


def job(**changes: float) -> Job:
    made = Job(RunState(facts()), since=0.0)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def due(at: float) -> tuple[ActionResult, float]:
    return ActionResult("a", "team-a", "bert", ActionState.DONE, "Done", "", facts().time), at


def test_reports_that_come_close_together_are_looked_at_together() -> None:
    one, plan = job(judged_at=100.0), schedule()
    plan.go_live([one])
    assert not plan.looks_at_once(KEY, one, 100.05, fresh=True)
    assert not plan.looks_at_once(KEY, one, 100.06, fresh=True)

    assert list(plan.woken({KEY: one}, 100.09)) == []
    assert list(plan.woken({KEY: one}, 100.11)) == [(KEY, one)]
    assert list(plan.woken({KEY: one}, 200.0)) == []
    assert plan.looks_at_once(KEY, one, 100.2, fresh=False)


def test_while_few_reports_wait_some_are_looked_at_early() -> None:
    one, plan = job(judged_at=100.0), schedule(early=2)
    plan.go_live([one])
    assert [plan.looks_at_once(KEY, one, 100.01, fresh=fresh) for fresh in (False, True, True, True)] == [
        False,
        True,
        True,
        False,
    ]


def test_no_look_is_before_the_last_unless_the_clock_was_set_back() -> None:
    one, plan = job(judged_at=1000.0), schedule()
    plan.go_live([one])
    assert [plan.moment(one, at) for at in (1000.5, 999.9, 900.0)] == [1000.5, 1000.0, 900.0]


def test_a_job_that_comes_back_while_live_is_woken_by_time_alone() -> None:
    one, plan = job(judged_at=1000.0, resumed_at=900.0), schedule()
    plan.go_live([])
    plan.resume(one)
    plan.wake(KEY, one, 1005.0)
    assert list(plan.woken({KEY: one}, 1005.0)) == [(KEY, one)]


def test_a_report_from_long_before_the_newest_look_is_looked_at_since_the_clock_was_set_back() -> None:
    one, plan = job(judged_at=1000.0), schedule()
    plan.go_live([one])
    assert not plan.looks_at_once(KEY, one, 950.0, fresh=False)
    assert plan.looks_at_once(KEY, one, 900.0, fresh=False)


def test_the_earliest_waking_counts_and_only_once() -> None:
    one, two, plan = job(), job(), schedule()
    plan.go_live([one, two])
    for at in (30.0, 10.0, 20.0):
        plan.wake(KEY, one, at)
    plan.wake(("team-a", "gone"), two, 5.0)

    assert [at for at in range(40) for _ in plan.woken({KEY: one}, at)] == [10]

    plan.wake(KEY, one, 50.0)
    plan.clear([one])
    assert list(plan.woken({KEY: one}, 100.0)) == []


def test_a_replay_puts_results_and_waking_in_their_order() -> None:
    one, plan = job(judged_at=10.0, resumed_at=10.0), schedule(began=1000.0)
    one.due = [due(12.0), due(14.0)]
    plan.wake(KEY, one, 13.0)

    assert plan.next_before(one, 12.0) is None
    assert plan.next_before(one, 20.0) == (Next.RESULT, 12.0)
    del one.due[0]
    assert plan.next_before(one, 20.0) == (Next.LOOK, 13.0)
    assert plan.next_before(one, 20.0) == (Next.RESULT, 14.0)


@pytest.mark.parametrize(
    ("at", "apart"), [(50.0, 0.1), (10_060.0, 50.0), (50_030.0, 249.85), (99_000.0, 5.0), (99_999.0, 0.1)]
)
def test_looks_of_a_replay_lie_further_apart_the_further_both_ends_are(at: float, apart: float) -> None:
    one, plan = job(judged_at=at), schedule(began=100_000.0)
    plan.wake(KEY, one, at)
    following = plan.next_before(one, 200_000.0)
    assert following is not None
    assert following[1] - at == pytest.approx(apart, abs=1e-3)
