"""Which TrainingRuns are written first when there are more than the API server takes."""

from __future__ import annotations

from trainwarden.controller.cluster.due import DueRuns

A, B, C, D = (("team-a", name) for name in "abcd")


def test_what_was_decided_goes_before_what_has_waited_longer() -> None:
    due = DueRuns()
    due.add(A, 2.0)
    due.add(B, 1.0)
    due.add(C, 11.0)
    due.urge(D)

    assert due.take(10.0, 2) == [D, B]
    assert due.take(10.0, 2) == [A]
    assert due.take(11.0, 2) == [C]


def test_no_urgent_run_is_put_off() -> None:
    due = DueRuns()
    for key in (A, B, C):
        due.urge(key)

    assert due.take(0.0, 2) == [A, B, C]


def test_a_run_is_taken_once_however_often_it_was_asked_for() -> None:
    due = DueRuns()
    due.add(A, 5.0)
    due.add(A, 3.0)
    due.add(A, 9.0)
    due.urge(A)

    assert due.take(10.0, 64) == [A]
    assert due.take(10.0, 64) == []


def test_a_run_keeps_its_earliest_moment() -> None:
    due = DueRuns()
    due.add(A, 3.0)
    due.add(A, 9.0)

    assert due.take(2.0, 64) == []
    assert due.take(3.0, 64) == [A]
