"""The brakes of the whole cluster."""

from __future__ import annotations

import pytest

from trainwarden.controller.cluster.brakes import Brakes, Limits

HOUR = 3600.0


def test_so_many_runs_may_end_in_any_hour() -> None:
    brakes = Brakes(Limits(runs_per_hour=2))
    brakes.ended("a", 8, 0.0)
    assert brakes.objection(8, 100, 10.0) is None
    brakes.ended("b", 8, 10.0)

    assert brakes.objection(8, 100, 20.0) == ("Brake", "2 runs were ended in the last hour; 2 are allowed")
    assert brakes.objection(8, 100, HOUR + 1) is None


def test_of_many_that_are_about_to_end_at_once_only_so_many_are_let() -> None:
    brakes = Brakes(Limits(runs_per_hour=3))
    assert all(brakes.objection(8, 100, 0.0) is None for _ in range(60)), "nothing was ended yet"

    let = [str(number) for number in range(60) if brakes.take(str(number), 8, 100, 1.0) is None]

    assert let == ["0", "1", "2"]
    assert brakes.take("1", 8, 100, 2.0) is None, "seen through after a crash"
    brakes.forget("0")
    assert brakes.take("60", 8, 100, 3.0) is None


def test_an_action_that_is_seen_through_after_a_crash_counts_once() -> None:
    brakes = Brakes(Limits(runs_per_hour=2))
    for _ in range(5):
        brakes.ended("a", 8, 0.0)

    assert brakes.objection(8, 100, 1.0) is None


@pytest.mark.parametrize(("running", "reason"), [(92, None), (32, "Brake")])
def test_only_a_share_of_the_gpus_may_be_taken_in_an_hour(running: int, reason: str | None) -> None:
    brakes = Brakes(Limits(runs_per_hour=None, gpu_percent_per_hour=20))
    brakes.ended("a", 8, 0.0)

    objection = brakes.objection(8, running, 1.0)

    assert (objection[0] if objection else None) == reason


def test_the_share_is_of_what_ran_before_anything_was_ended() -> None:
    """Ten jobs of 8 GPUs, and a fifth of them allowed: two may end, however few are left by then."""
    brakes = Brakes(Limits(runs_per_hour=None, gpu_percent_per_hour=20))
    left = 80
    ended = 0
    while brakes.objection(8, left, float(ended)) is None:
        brakes.ended(str(ended), 8, float(ended))
        ended, left = ended + 1, left - 8

    assert ended == 2


def test_a_job_without_gpus_takes_no_share() -> None:
    assert Brakes(Limits(gpu_percent_per_hour=0.0)).objection(0, 100, 0.0) is None


def test_the_audit_switch_holds_everything_back() -> None:
    assert Brakes(Limits(audit=True)).objection(0, 0, 0.0) == (
        "AuditSwitch",
        "the whole cluster is in Audit; it is done once that ends, if its rule still fires",
    )


def test_no_run_may_end_where_none_is_allowed() -> None:
    assert Brakes(Limits(runs_per_hour=0)).objection(1, 1, 0.0) is not None
