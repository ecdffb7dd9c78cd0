"""The functions of the vocabulary: what each needs, when it is unknown, and which detector or statistic answers it."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from trainwarden.policies.decision import Window
from trainwarden.policies.detectors.divergence import diverges, non_finite_for_good
from trainwarden.policies.detectors.overfitting import overfits
from trainwarden.policies.detectors.plateau import LEAST_DENSE, LEAST_SPARSE, plateaus
from trainwarden.policies.detectors.spike import LEAST as SPIKE_LEAST
from trainwarden.policies.detectors.spike import Baseline, baseline
from trainwarden.policies.detectors.throughput import LEAST as THROUGHPUT_LEAST
from trainwarden.policies.detectors.throughput import drops
from trainwarden.policies.directions import higher_is_better
from trainwarden.policies.expressions.protocol import CelValue, UnknownValueError
from trainwarden.policies.lengths import ago
from trainwarden.policies.series import Best, Series
from trainwarden.policies.view import View

if TYPE_CHECKING:
    from trainwarden.policies.run import RunState
    from trainwarden.policies.scope import RunScope

__all__ = ["EARLY_PERCENT", "FUNCTIONS_BY_NAME", "GRAINS", "MOST_MEMOS", "Memo", "Question"]

GRAINS = 128
"""An answer over a window is computed again after a 128th of the window has passed."""

EARLY_PERCENT = 10.0
"""Part of a known plan in which there is no plateau: losses often stand still before they fall."""

MOST_MEMOS = 1024
"""Answers that are remembered for a run."""

T = TypeVar("T")


class Memo:
    """An answer over a window, and how long it holds."""

    __slots__ = ("cell", "series", "value", "versions")

    def __init__(self, cell: int, series: tuple[Series, ...], value: object) -> None:
        self.cell = cell
        self.series = series
        self.versions = tuple(each.version for each in series)
        self.value = value


class Question:
    """One call of a function: its arguments, read, and the history it is about."""

    __slots__ = ("arguments", "function", "run", "scope")

    def __init__(self, scope: RunScope, run: RunState, function: str, arguments: tuple[CelValue, ...]) -> None:
        self.scope = scope
        self.run = run
        self.function = function
        self.arguments = arguments

    def text(self, at: int) -> str:
        """A metric's name."""
        value = self.arguments[at]
        if not isinstance(value, str):
            raise UnknownValueError(f"{self.function} was given {value!r} for a metric's name; a text is right")
        return value

    def higher(self, at: int) -> bool:
        """Whether higher is better: by the argument there, or else by the metric's name."""
        if len(self.arguments) <= at:
            return higher_is_better(self.text(0))
        value = self.arguments[at]
        if value not in ("lower", "higher"):
            raise UnknownValueError(f'{self.function} was given direction {value!r}; "lower" or "higher" is right')
        return value == "higher"

    def window(self, at: int = 1) -> tuple[float, bool]:
        """The window's length in seconds or steps, and whether it is seconds."""
        value = self.arguments[at]
        by_time = isinstance(value, timedelta)
        length = value.total_seconds() if isinstance(value, timedelta) else value
        if isinstance(length, bool) or not isinstance(length, int | float) or length <= 0:
            raise UnknownValueError(f"{self.function} was given the window {value!r}; more than nothing is right")
        return float(length), by_time

    def number(self, at: int) -> float:
        """A number."""
        value = self.arguments[at]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UnknownValueError(f"{self.function} was given {value!r}; a number is right")
        return float(value)

    def series(self, at: int = 0) -> Series:
        """History of the metric named there, up to date and not empty of numbers."""
        name = self.text(at)
        series = self.scope.series(name)
        if not series.streak:
            self.scope.check_recent(name, series)
        return series

    def finite(self, at: int = 0) -> Series:
        """History of the metric named there, whose newest value is a number."""
        series = self.series(at)
        if series.streak and series.nonfinite is not None:
            odd = series.nonfinite
            raise UnknownValueError(f"{self.text(at)} is {odd.text} at step {odd.step}; {self.function} needs numbers")
        return series

    def end(self, series: Series, by_time: bool) -> float:
        """Where windows over a series end now: the running time, or the newest step."""
        return self.scope.passed if by_time else float(max(self.run.step() or 0, series.newest_step()))

    def view(self, series: Series, *, at: int = 1) -> View:
        """What was reported in the window, noted for the evidence."""
        length, by_time = self.window(at)
        start = self.end(series, by_time) - length
        return series.since_time(start) if by_time else series.since_step(int(start))

    def looked_at(self, metric: str, view: View) -> Window:
        """The evidence of a view; at least one point is in it."""
        return Window(
            metric=metric,
            from_step=round(view.first_step),
            to_step=view.last_step,
            from_time=self.run.moment(view.first_time),
            to_time=self.run.moment(view.last_time),
            points=view.points,
        )

    def too_few(self, name: str, found: int, needed: int) -> UnknownValueError:
        """That a window holds too few values."""
        length, by_time = self.window()
        span = ago(length) if by_time else f"{length:g} steps"
        values = "value" if found == 1 else "values"
        return UnknownValueError(f"only {found} {values} of {name} in the last {span}; {self.function} needs {needed}")

    def windowed(self, name: str, compute: Callable[[View], T], *, needed: int, at: int = 0) -> T:
        """An answer over the window, computed again only after a part of it has passed or history has changed."""
        series = self.finite(at)

        def answer() -> tuple[T, Window]:
            view = self.view(series)
            if view.points < needed or len(view) < min(needed, 2):
                raise self.too_few(name, view.points, needed)
            return compute(view), self.looked_at(name, view)

        value, window = self.remembered((series,), answer)
        self.scope.looked_at(window)
        return value

    def remembered(self, series: tuple[Series, ...], compute: Callable[[], T]) -> T:
        """What `compute` gave, or the reason it gave for none, for as long as a 128th of the window lasts."""
        length, by_time = self.window(1 if self.function != "throughputDrop" else 0)
        cell = int(self.end(series[0], by_time) * GRAINS / length)
        key = (self.function, self.arguments)
        memo = self.run.memos.get(key)
        if (
            memo is None
            or memo.cell != cell
            or memo.series != series
            or any(each.version != version for each, version in zip(series, memo.versions, strict=True))
        ):
            value: object
            try:
                value = compute()
            except UnknownValueError as unknown:
                value = unknown.with_traceback(None)
            if len(self.run.memos) >= MOST_MEMOS:
                self.run.memos.clear()
            memo = self.run.memos[key] = Memo(cell, series, value)
        if isinstance(memo.value, UnknownValueError):
            raise memo.value.with_traceback(None)
        return memo.value  # type: ignore[return-value]


def _plateau(question: Question) -> bool:
    name, higher, series = question.text(0), question.higher(2), question.finite()
    _see_no_warm_up(question, name)
    percent = question.run.percent()
    if percent is not None and percent < EARLY_PERCENT:
        raise UnknownValueError(f"only {percent:.1f} % of the plan is done; plateau needs {EARLY_PERCENT:g} %")

    def judge() -> tuple[bool, Window]:
        view = _dense_enough(question, name, series)
        end = float(view.last_step)
        span = end - view.first_step
        return plateaus(series.whole(), span, opening=series.opening, end=end, higher=higher).found, question.looked_at(
            name, view
        )

    found, window = question.remembered((series,), judge)
    question.scope.looked_at(window)
    return found


def _dense_enough(question: Question, name: str, series: Series) -> View:
    """The window's values, if they are enough to speak of a plateau."""
    length, by_time = question.window()
    view = question.view(series)
    every = _interval(series, by_time)
    needed = LEAST_DENSE if every and length / every >= LEAST_DENSE else LEAST_SPARSE
    if view.points < needed:
        raise question.too_few(name, view.points, needed)
    lasted = question.end(series, by_time) - (series.first_time if by_time else series.first_step)
    span = view.last_time - view.first_time if by_time else view.last_step - view.first_step
    unit = ago if by_time else (lambda steps: f"{steps:g} steps")
    if lasted < 1.5 * length:
        raise UnknownValueError(
            f"{name} has been reported for {unit(lasted)}; {question.function} needs {unit(1.5 * length)}"
        )
    if span < 0.8 * length - (every or 0.0):
        raise UnknownValueError(f"values of {name} cover only {unit(span)} of the last {unit(length)}")
    if view.low == view.high:
        raise UnknownValueError(f"{name} is {view.low:g} at every step of the window: its signal is broken")
    return view


def _interval(series: Series, by_time: bool) -> float | None:
    """Mean distance between two values, in seconds or steps."""
    newest = series.newest()
    if newest is None or series.count < 2:
        return None
    span = newest[1] - series.first_time if by_time else newest[0] - series.first_step
    return span / (series.count - 1)


def _see_no_warm_up(question: Question, name: str) -> None:
    """Raise while a reported learning rate is on its way up."""
    for rate in ("learning_rate", "lr", "train/learning_rate"):
        series = question.run.metrics.series(rate)
        if series is None or rate == name or series.count < 3:
            continue
        _, _, values = series.exact()
        if len(values) >= 3 and values[-1] > values[-2] > values[-3]:
            raise UnknownValueError(f"{rate} is rising: a warm-up or a restart of its schedule is on")


def _divergence(question: Question) -> bool:
    name, higher, series = question.text(0), question.higher(2), question.series()
    question.window()
    if non_finite_for_good(series):
        return True
    if series.streak:
        raise UnknownValueError(f"{name} is not finite at step {series.nonfinite.step if series.nonfinite else 0}")

    def judge() -> tuple[bool, Window]:
        view = question.view(series)
        if view.points < LEAST_SPARSE:
            raise question.too_few(name, view.points, LEAST_SPARSE)
        end = float(view.last_step)
        span = end - view.first_step
        if series.count - view.points < LEAST_SPARSE:
            raise UnknownValueError(f"only {series.count - view.points} values of {name} before the window")
        return diverges(series.whole(), span, end=end, higher=higher), question.looked_at(name, view)

    found, window = question.remembered((series,), judge)
    question.scope.looked_at(window)
    return found


def _non_finite(question: Question) -> bool:
    return question.series().streak > 0


def _spike(question: Question) -> bool:
    name, higher, series = question.text(0), question.higher(2), question.finite()

    def judge() -> tuple[Baseline, Window]:
        view = question.view(series)
        before = view.between(-1.0, float(series.newest_step()))
        if before.points < SPIKE_LEAST:
            raise question.too_few(name, before.points, SPIKE_LEAST)
        return baseline(before), question.looked_at(name, view)

    usual, window = question.remembered((series,), judge)
    question.scope.looked_at(window)
    newest = series.newest()
    return newest is not None and usual.spikes(newest[2], higher=higher)


def _overfitting(question: Question) -> bool:
    names = question.text(0), question.text(1)
    evaluation, training = question.finite(0), question.finite(1)

    def judge() -> tuple[bool, tuple[Window, Window]]:
        views = question.view(evaluation, at=2), question.view(training, at=2)
        for name, view in zip(names, views, strict=True):
            if view.points < LEAST_SPARSE or len(view) < 3:
                raise question.too_few(name, view.points, LEAST_SPARSE)
        higher = higher_is_better(names[0]), higher_is_better(names[1])
        best = evaluation.best(higher=higher[0])
        first = evaluation.whole().rows.means[0]
        gained = abs(best.value - first) if best is not None else 0.0
        windows = question.looked_at(names[0], views[0]), question.looked_at(names[1], views[1])
        return overfits(*views, gained, higher=higher), windows

    found, windows = question.remembered((evaluation, training), judge)
    for window in windows:
        question.scope.looked_at(window)
    return found


def _throughput_drop(question: Question) -> bool:
    ratio, blocks = question.number(1), question.run.pace.blocks
    length, by_time = question.window(0)
    if not by_time or not question.run.pace.known():
        raise UnknownValueError("too few steps of this attempt were timed yet to know the pace")

    def judge() -> bool:
        start = question.scope.passed - length
        recent = blocks.since_time(start)
        whole = blocks.whole()
        before = whole.between(-1.0, recent.first_step if len(recent) else float("inf"))
        for view, where in ((recent, f"in the last {ago(length)}"), (before, f"before the last {ago(length)}")):
            if view.points < THROUGHPUT_LEAST:
                raise UnknownValueError(
                    f"only {view.points} timed blocks of steps {where}; throughputDrop needs {THROUGHPUT_LEAST}"
                )
        return drops(before, recent, ratio)

    return question.remembered((blocks,), judge)


def _statistic(compute: Callable[[View], float], needed: int) -> Callable[[Question], float]:
    return lambda question: question.windowed(question.text(0), compute, needed=needed)


def _quantile(question: Question) -> float:
    q = question.number(2)
    if not 0 <= q <= 1:
        raise UnknownValueError(f"quantile was given q = {q:g}; 0 to 1 is right")
    return question.windowed(question.text(0), lambda view: view.quantile(q), needed=1)


def _change(view: View) -> float:
    fit = view.fit()
    if fit.start == 0:
        raise UnknownValueError("the change has no size: the fitted start of the window is 0")
    return fit.rise / abs(fit.start)


def _best(question: Question) -> Best:
    series = question.series()
    best = series.best(higher=question.higher(1))
    if best is None:
        raise UnknownValueError(f"{question.text(0)} has no finite value yet")
    return best


def _since_best(question: Question) -> timedelta:
    return timedelta(seconds=max(question.scope.passed - _best(question).time, 0.0))


def _steps_since_best(question: Question) -> int:
    return max((question.run.step() or 0) - _best(question).step, 0)


def _age(question: Question) -> timedelta:
    question.scope.check_heard()
    newest = question.run.metrics.newest(question.text(0))
    if newest is None:
        question.scope.series(question.text(0))
        raise UnknownValueError(f"{question.text(0)} has no value yet")
    return timedelta(seconds=max(question.scope.passed - newest.time, 0.0))


FUNCTIONS_BY_NAME: dict[str, Callable[[Question], CelValue]] = {
    "plateau": _plateau,
    "divergence": _divergence,
    "nonFinite": _non_finite,
    "spike": _spike,
    "overfitting": _overfitting,
    "throughputDrop": _throughput_drop,
    "slope": _statistic(lambda view: view.fit().slope, 3),
    "mean": _statistic(lambda view: view.mean, 1),
    "min": _statistic(lambda view: view.low, 1),
    "max": _statistic(lambda view: view.high, 1),
    "stddev": _statistic(lambda view: math.sqrt(view.variance), 2),
    "quantile": _quantile,
    "change": _statistic(_change, 3),
    "best": lambda question: _best(question).value,
    "sinceBest": _since_best,
    "stepsSinceBest": _steps_since_best,
    "age": _age,
}
