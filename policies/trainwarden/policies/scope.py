"""One run at one moment, as an expression sees it: a value for every name and function of the vocabulary."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from trainwarden.policies.decision import Window
from trainwarden.policies.expressions.protocol import CelValue, UnknownValueError
from trainwarden.policies.functions import AT_ONCE, FUNCTIONS_BY_NAME
from trainwarden.policies.lengths import ago
from trainwarden.policies.metrics import MOST_SERIES
from trainwarden.policies.question import Question
from trainwarden.policies.readable import not_finite
from trainwarden.policies.series import Series
from trainwarden.policies.variables import VARIABLES_BY_NAME

if TYPE_CHECKING:
    from trainwarden.policies.run import RunState

__all__ = ["RunScope"]

_NAMED = 12  # metrics that a reason lists

T = TypeVar("T")


class RunScope:
    """Implements `expressions.protocol.Scope` for one moment. Answers are remembered, so that rules share them."""

    __slots__ = ("_asked", "_heard", "_looked", "_windows", "now", "passed", "run")

    now: datetime
    passed: float  # running time
    run: RunState

    def __init__(self, run: RunState, now: datetime) -> None:
        self.run = run
        self.now = now
        self.passed = run.passed(now)
        self._heard: str | None = None  # why nothing that was heard holds; empty when it does
        self._windows: dict[Window, None] = {}
        self._asked: dict[tuple[str, tuple[CelValue, ...]], CelValue | UnknownValueError] = {}
        self._looked: dict[tuple[str, tuple[CelValue, ...]], tuple[Window, ...]] = {}  # windows of what was asked

    def variable(self, name: str) -> CelValue:
        """Value of a dotted name of the vocabulary.

        Raises:
            UnknownValueError: It has no value now, and why.
        """
        return VARIABLES_BY_NAME[name](self)

    def metric(self, name: str) -> float:
        """Newest value of a metric; always finite.

        Raises:
            UnknownValueError: Never reported, not finite at the newest step that carried it, or out of date.
        """
        self.check_heard()
        newest = self.run.metrics.newest(name)
        if newest is None:
            raise UnknownValueError(self._never(name))
        if newest.value - newest.value != 0:
            raise UnknownValueError(f"{name} is {_text(newest.value)} at step {newest.step}")
        series = self.run.metrics.series(name)
        if series is not None:
            self.check_recent(name, series)
        return newest.value

    def metric_names(self) -> frozenset[str]:
        """Every metric ever reported in this run, finite or not."""
        return self.run.metrics.names()

    def call(self, function: str, arguments: tuple[CelValue, ...]) -> CelValue:
        """Call a function of the vocabulary.

        Raises:
            UnknownValueError: Too little history, out of date, or numbers that can't be computed with.
        """
        key = (function, arguments)
        answer = self._asked.get(key)
        if answer is None:
            answer = self._asked[key] = self._answer(key)
        elif key in self._looked:
            self._windows.update(dict.fromkeys(self._looked[key]))
        if isinstance(answer, UnknownValueError):
            raise UnknownValueError(answer.reason)  # a new one: a raised one holds on to all frames it went through
        return answer

    def _answer(self, key: tuple[str, tuple[CelValue, ...]]) -> CelValue | UnknownValueError:
        run = self.run
        answer: CelValue | UnknownValueError
        try:
            self.check_heard()
        except UnknownValueError as unknown:
            return UnknownValueError(unknown.reason)
        memo = run.memos.get(key)
        if memo is not None and memo.holds(self.passed, run.step() or 0):
            self._saw(key, memo.windows)
            return memo.value  # type: ignore[return-value]
        function, arguments = key
        question = Question(self, run, function, arguments)
        try:
            answer = FUNCTIONS_BY_NAME[function](question)
        except UnknownValueError as unknown:
            answer = UnknownValueError(unknown.reason)
        except (ArithmeticError, ValueError) as error:
            answer = UnknownValueError(f"{function} can't be computed: {error}")
        if question.used and function not in AT_ONCE:
            question.remember(key, answer)
        self._saw(key, question.windows)
        return answer

    def _saw(self, key: tuple[str, tuple[CelValue, ...]], windows: Iterable[Window]) -> None:
        seen = tuple(windows)
        if seen:
            self._looked[key] = seen
            self._windows.update(dict.fromkeys(seen))

    def look_anew(self) -> None:
        """Forget the windows, not the answers: `windows` tells what calls look at from now on, asked before or not."""
        self._windows.clear()

    def windows(self) -> tuple[Window, ...]:
        """The windows that calls have looked at, in order."""
        return tuple(self._windows)

    def series(self, name: str) -> Series:
        """History of a metric that is up to date.

        Raises:
            UnknownValueError: It was never reported, has no history here, or is out of date.
        """
        self.check_heard()
        series = self.run.metrics.series(name)
        if series is None:
            if name in self.run.metrics:
                raise UnknownValueError(
                    f"{name} has no history: only the first {MOST_SERIES} metrics of a run have one"
                )
            raise UnknownValueError(self._never(name))
        return series

    def check_heard(self) -> None:
        """See that this attempt reports, and still does.

        Raises:
            UnknownValueError: It has not begun to, or was silent for too long.
        """
        if self._heard is None:
            self._heard = self._why_not_heard()
        if self._heard:
            raise UnknownValueError(self._heard)

    def _why_not_heard(self) -> str:
        run = self.run
        where = "" if run.running() else f"; the job is {run.facts.phase}"
        if not run.located():
            return f"nothing was reported in this attempt yet{where}"
        if run.silent(self.now):
            return f"last heard {ago(run.clock.silent_for(self.now.timestamp()))} ago{where}"
        return ""

    def check_recent(self, name: str, series: Series) -> None:
        """See that a metric that used to be reported regularly still is.

        Raises:
            UnknownValueError: It has been missing for 10 of its usual intervals, and 5 minutes at least.
        """
        newest = series.newest()
        if newest is None or series.count < 3:
            return
        usual = (newest[1] - series.first_time) / (series.count - 1)
        missing = self.passed - newest[1]
        if missing > self.run.clock.silence and missing > 10 * usual:
            raise UnknownValueError(f"{name} was last reported {ago(missing)} ago, usually every {ago(usual)}")

    def known(self, value: T | None, reason: str) -> T:
        """A value, or that it is unknown."""
        if value is None:
            raise UnknownValueError(reason)
        return value

    def _never(self, name: str) -> str:
        names = sorted(self.run.metrics.names())
        if not names:
            return f"{name} was never reported; no metric was so far"
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return f"{name} was never reported; reported are: {', '.join(names[:_NAMED])}{more}"


def _text(value: float) -> str:
    return not_finite(value)
