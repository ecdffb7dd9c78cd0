"""One call of a function over history: its arguments, the history it is about, and an answer that is remembered."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from trainwarden.policies.decision import Window
from trainwarden.policies.detectors.borders import LEAST as SCALE_LEAST
from trainwarden.policies.detectors.borders import changes_scale
from trainwarden.policies.directions import higher_is_better
from trainwarden.policies.expressions.protocol import CelValue, UnknownValueError
from trainwarden.policies.lengths import ago
from trainwarden.policies.series import Series
from trainwarden.policies.view import View
from trainwarden.policies.vocabulary import RANGES

if TYPE_CHECKING:
    from trainwarden.policies.run import RunState
    from trainwarden.policies.scope import RunScope

__all__ = ["GRAINS", "MOST_MEMOS", "WINDOW_PLACES", "Memo", "Question"]

GRAINS = 128
"""An answer over a window is computed again after a 128th of the window has passed."""

MOST_MEMOS = 1024
"""Answers that are remembered for a run."""

WINDOW_PLACES = {"overfitting": 2, "throughputDrop": 0}
"""Place of the window among the arguments, where it is not the second."""


class Memo:
    """An answer over a window, how it was found, and for how long it holds."""

    __slots__ = ("_by_time", "_cell", "_scale", "_series", "_versions", "value", "windows")

    def __init__(self, question: Question, value: object, grains: float = GRAINS) -> None:
        length, self._by_time = question.window(question.window_at)
        self._scale = grains / length
        self._series = tuple(question.used)
        self._versions = tuple([each.version for each in self._series])
        self._cell = int(question.end(by_time=self._by_time) * self._scale)
        self.value = value
        self.windows = tuple(question.windows)

    def holds(self, passed: float, step: int) -> bool:
        """Whether history has not changed, and less than a 128th of the window has passed."""
        if int((passed if self._by_time else step) * self._scale) != self._cell:
            return False
        return all(each.version == version for each, version in zip(self._series, self._versions, strict=True))


class Question:
    """One call of a function: its arguments, read, and the history it is about."""

    __slots__ = ("arguments", "function", "own", "run", "scope", "used", "window_at", "windows")

    def __init__(self, scope: RunScope, run: RunState, function: str, arguments: tuple[CelValue, ...]) -> None:
        self.scope = scope
        self.run = run
        self.function = function
        self.arguments = arguments
        self.used: list[Series] = []  # histories that the answer rests on
        self.windows: list[Window] = []  # stretches of them that were looked at
        self.own: float | None = None  # length in steps of the window that the function chose itself
        self.window_at = WINDOW_PLACES.get(function, 1)  # place of the window among the arguments

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
        if self.own is not None:
            return self.own, False
        value = self.arguments[at]
        by_time = isinstance(value, timedelta)
        length = value.total_seconds() if isinstance(value, timedelta) else value
        if isinstance(length, bool) or not isinstance(length, int | float) or length <= 0:
            raise UnknownValueError(f"{self.function} was given the window {value!r}; more than nothing is right")
        return float(length), by_time

    def number(self, at: int, name: str) -> float:
        """A number within the range of a parameter."""
        value = self.arguments[at]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UnknownValueError(f"{self.function} was given {value!r}; a number is right")
        if value not in RANGES[name]:
            raise UnknownValueError(f"{self.function} was given the {name} {value:g}; {RANGES[name]}")
        return float(value)

    def rescaled(self, name: str, series: Series) -> tuple[int, float] | None:
        """Step of the newest resume, where it has changed the scale of a metric, and the metric's first level after it.

        What was found stays: the rows of a longer history are merged, also across the border.
        """
        border = self.run.began()
        if border is None or series.first_step >= border:
            return None
        known = self.run.rescaled.get(name)
        if known is not None and known[0] == border:
            return known
        history = series.whole()
        if changes_scale(history, border) is None:
            return None
        level = statistics.median(history.between(border, math.inf).rows.means[:SCALE_LEAST])
        self.run.rescaled[name] = found = border, level
        return found

    def series(self, at: int = 0) -> Series:
        """History of the metric named there, up to date and not empty of numbers."""
        name = self.text(at)
        series = self.scope.series(name)
        self.used.append(series)
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

    def end(self, *, by_time: bool) -> float:
        """Where windows end now: the running time, or the step."""
        return self.scope.passed if by_time else float(self.run.step() or 0)

    def view(self, series: Series) -> View:
        """What was reported in the window."""
        length, by_time = self.window(self.window_at)
        start = self.end(by_time=by_time) - length
        return series.since_time(start) if by_time else series.since_step(int(start))

    def looked_at(self, metric: str, view: View) -> None:
        """Note a view for the evidence; at least one point is in it."""
        self.windows.append(
            Window(
                metric=metric,
                from_step=round(view.first_step),
                to_step=view.last_step,
                from_time=self.run.moment(view.first_time),
                to_time=self.run.moment(view.last_time),
                points=view.points,
            )
        )

    def remember(self, key: tuple[str, tuple[CelValue, ...]], value: object, grains: float = GRAINS) -> Memo:
        """Keep an answer for as long as it holds: until history changes, or a share of the window has passed."""
        memos = self.run.memos
        if len(memos) >= MOST_MEMOS:
            memos.clear()
        memo = memos[key] = Memo(self, value, grains)
        return memo

    def too_few(self, name: str, found: int, needed: int) -> UnknownValueError:
        """That a window holds too few values."""
        length, by_time = self.window(self.window_at)
        span = ago(length) if by_time else f"{length:g} steps"
        values = "value" if found == 1 else "values"
        return UnknownValueError(f"only {found} {values} of {name} in the last {span}; {self.function} needs {needed}")

    def windowed(self, compute: Callable[[View], float], *, needed: int) -> float:
        """A statistic of the window of the first metric."""
        name, series = self.text(0), self.finite()
        view = self.view(series)
        if view.points < needed or len(view) < min(needed, 2):
            raise self.too_few(name, view.points, needed)
        self.looked_at(name, view)
        return compute(view)
