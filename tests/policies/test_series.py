"""A bounded history against a naive one that keeps everything."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwarden.policies.series import BUCKETS, EXACT, Series

VALUES = st.lists(st.floats(-1e6, 1e6, allow_nan=False), min_size=1, max_size=1500)


def filled(values: list[float]) -> Series:
    series = Series()
    for step, value in enumerate(values):
        series.add(step, float(step), value)
    return series


@given(VALUES)
def test_the_newest_points_are_exact(values: list[float]) -> None:
    steps, times, kept = filled(values).exact()

    held = min(len(values), EXACT // 2)
    assert kept[-held:] == values[-held:]
    assert steps[-held:] == list(range(len(values)))[-held:]
    assert times == [float(step) for step in steps]


@given(VALUES)
def test_the_whole_history_keeps_its_statistics(values: list[float]) -> None:
    view = filled(values).whole()

    size = max(max(abs(value) for value in values), 1.0)
    assert view.points == len(values)
    assert view.low == min(values)
    assert view.high == max(values)
    assert view.mean == pytest.approx(statistics.fmean(values), abs=1e-9 * size)
    if len(values) > 1:
        assert math.sqrt(view.variance) == pytest.approx(statistics.stdev(values), rel=1e-4, abs=1e-6 * size)


@given(VALUES, st.integers(1, 1500))
def test_a_window_is_right_but_for_where_it_begins(values: list[float], length: int) -> None:
    series = filled(values)
    newest = len(values) - 1

    view = series.since_step(newest - length)

    inside = values[-length:]
    assert view.points == pytest.approx(len(inside), abs=1 + len(inside) / 4)
    assert view.low <= min(inside)
    assert view.high >= max(inside)
    if length <= EXACT // 2:
        assert view.mean == pytest.approx(statistics.fmean(inside), abs=1e-6)


@given(VALUES)
def test_the_best_is_the_first_of_the_best_values(values: list[float]) -> None:
    series = filled(values)

    lowest, highest = series.best(higher=False), series.best(higher=True)

    assert lowest is not None
    assert highest is not None
    assert (lowest.value, lowest.step) == (min(values), values.index(min(values)))
    assert (highest.value, highest.step) == (max(values), values.index(max(values)))


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=EXACT), st.integers(0, EXACT))
def test_a_rewind_forgets_what_came_after(values: list[float], step: int) -> None:
    series = filled(values)

    series.rewind(step)

    left = values[: step + 1]
    best = series.best(higher=False)
    assert series.exact()[2] == left
    assert series.count == len(left)
    assert best is not None
    assert best.value == min(left)


@given(st.integers(100, 3000), st.floats(0, 1))
def test_a_rewind_into_merged_points_keeps_nothing_newer(size: int, share: float) -> None:
    series = filled([float(size - step) for step in range(size)])
    step = int(size * share)

    series.rewind(step)

    best = series.best(higher=False)
    assert series.newest_step() <= step
    assert best is None or best.value >= size - step


@given(st.permutations(range(20)))
def test_values_that_come_late_are_put_in_their_place(order: list[int]) -> None:
    series = Series()
    for time, step in enumerate(order):
        series.add(step, float(time), float(step))

    steps, times, values = series.exact()

    assert steps == list(range(20))
    assert values == [float(step) for step in steps]
    assert times == sorted(times)


def test_a_second_value_for_a_step_replaces_the_first() -> None:
    series = filled([3.0, 1.0])

    series.add(1, 2.0, 2.0)

    best = series.best(higher=False)
    assert series.exact()[2] == [3.0, 2.0]
    assert best is not None
    assert best.value == 2.0


def test_a_value_from_before_the_merged_points_is_left_out() -> None:
    series = filled([1.0] * 1000)

    series.add(3, 1000.0, -5.0)

    assert series.whole().low == 1.0


def test_buckets_stay_within_their_bound() -> None:
    series = filled([math.sin(step) for step in range(100_000)])

    assert len(series.whole()) <= EXACT + BUCKETS
    assert series.whole().points == 100_000


def test_a_window_has_finer_rows_the_newer_it_is() -> None:
    rows = filled([0.0] * 50_000).whole().rows

    for index, count in enumerate(rows.counts):
        newer = sum(rows.counts[index + 1 :])
        assert count <= max(2, newer / 2), f"row {index} of {len(rows.counts)}"


def test_values_that_are_not_finite_enter_no_statistic() -> None:
    series = filled([3.0, 2.0])

    series.add_nonfinite(2, 2.0, "NaN")
    series.add_nonfinite(3, 3.0, "Infinity")

    assert series.whole().mean == 2.5
    assert (series.streak, series.nonfinite_count) == (2, 2)
    assert series.nonfinite is not None
    assert (series.nonfinite.text, series.nonfinite.step) == ("Infinity", 3)


def test_a_finite_value_ends_a_streak_of_others() -> None:
    series = filled([3.0])
    series.add_nonfinite(1, 1.0, "NaN")

    series.add(2, 2.0, 1.0)

    assert (series.streak, series.nonfinite_count) == (0, 1)


def test_a_rewind_forgets_values_that_are_not_finite() -> None:
    series = filled([3.0, 2.0])
    series.add_nonfinite(2, 2.0, "NaN")

    series.rewind(1)

    assert series.streak == 0
    assert series.nonfinite is None


@given(st.floats(-10, 10), st.floats(-100, 100), st.integers(2, 2000))
def test_a_straight_line_is_fitted_with_its_slope(slope: float, start: float, size: int) -> None:
    fit = filled([start + slope * step for step in range(size)]).whole().fit()

    assert fit.slope == pytest.approx(slope, abs=1e-6 * (abs(slope) + abs(start) / size + 1))


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=EXACT), st.floats(0, 1))
def test_a_quantile_of_exact_points_interpolates(values: list[float], q: float) -> None:
    place = q * (len(values) - 1)
    ordered = sorted(values)
    below = math.floor(place)
    above = min(below + 1, len(values) - 1)

    found = filled(values).whole().quantile(q)

    assert found == pytest.approx(ordered[below] + (ordered[above] - ordered[below]) * (place - below), abs=1e-6)


def test_where_a_metric_began_is_told_by_its_first_five_values() -> None:
    """Also when one of them comes late, is told again, or is undone."""
    series = Series()
    for step, value in ((1, 9.0), (2, 4.0), (4, 1000.0), (5, 3.0), (6, 2.0), (7, 1.0)):
        series.add(step, float(step), value)
    assert series.first.tolist() == [9.0, 4.0, 1000.0, 3.0, 2.0]

    series.add(3, 3.0, 3.5)
    assert series.first.tolist() == [9.0, 4.0, 3.5, 1000.0, 3.0]
    series.add(4, 4.0, 3.2)
    assert series.first.tolist() == [9.0, 4.0, 3.5, 3.2, 3.0]

    series.rewind(2)
    assert (series.first.tolist(), series.opening) == ([9.0, 4.0], 6.5)
    series.rewind(0)
    assert (series.first.tolist(), series.opening) == ([], 0.0)
