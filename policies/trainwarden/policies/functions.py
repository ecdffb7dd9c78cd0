"""The functions of the vocabulary: what each needs, when it is unknown, and which detector or statistic answers it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from datetime import timedelta

from trainwarden.policies.detectors.divergence import (
    GRACE,
    LEAST_BEFORE,
    LEAST_CLEAR,
    LEAST_SHIFT,
    diverges,
    may_diverge,
    non_finite_for_good,
)
from trainwarden.policies.detectors.divergence import (
    Baseline as Levels,
)
from trainwarden.policies.detectors.divergence import (
    baseline as levels_before,
)
from trainwarden.policies.detectors.gains import believable
from trainwarden.policies.detectors.overfitting import overfits
from trainwarden.policies.detectors.plateau import LEAST_DENSE, LEAST_SPARSE, plateaus
from trainwarden.policies.detectors.spike import LEAST as SPIKE_LEAST
from trainwarden.policies.detectors.spike import Baseline, baseline
from trainwarden.policies.detectors.throughput import LEAST as THROUGHPUT_LEAST
from trainwarden.policies.detectors.throughput import drops
from trainwarden.policies.directions import higher_is_better
from trainwarden.policies.expressions.protocol import CelValue, UnknownValueError
from trainwarden.policies.lengths import ago
from trainwarden.policies.outlook_function import by_outlook, is_by_outlook
from trainwarden.policies.question import Question
from trainwarden.policies.series import Best, Series
from trainwarden.policies.signal_functions import SIGNAL_FUNCTIONS, hidden_by_a_filter
from trainwarden.policies.view import View

__all__ = ["AT_ONCE", "EARLY_PERCENT", "FUNCTIONS_BY_NAME"]

EARLY_PERCENT = 10.0
"""Part of a known plan in which there is no plateau: losses often stand still before they fall."""

AT_ONCE = frozenset(
    {
        "age",
        "best",
        "bestStep",
        "maskedLoss",
        "missing",
        "nonFinite",
        "scaleChange",
        "sinceBest",
        "spike",
        "stepsSinceBest",
    }
)
"""Functions that are answered afresh each time."""

_RATES = (
    "learning_rate", "lr", "train/learning_rate", "train/lr", "learning-rate", "learning rate",
    "actor/lr", "lr-AdamW", "lr-Adam", "lr-SGD",
)  # fmt: skip
_RATE_ENDED = 10.0  # of its own usual intervals without a value: it was told of during warm-up alone


def _plateau(question: Question) -> bool:
    name, series = question.text(0), question.finite()
    _see_no_warm_up(question, name)
    percent = question.run.percent()
    if percent is not None and percent < EARLY_PERCENT:
        raise UnknownValueError(f"only {percent:.1f} % of the plan is done; plateau needs {EARLY_PERCENT:g} %")
    if is_by_outlook(question):
        return by_outlook(question, series)

    higher, view = question.higher(2), _dense_enough(question, name, series)
    question.looked_at(name, view)
    end = float(view.last_step)
    span = end - view.first_step
    return plateaus(series.whole(), span, first=series.first, end=end, higher=higher).found


def _dense_enough(question: Question, name: str, series: Series) -> View:
    """The window's values, if they are enough to speak of a plateau."""
    length, by_time = question.window()
    view = question.view(series)
    every = _interval(series, by_time)
    needed = LEAST_DENSE if every and length / every >= LEAST_DENSE else LEAST_SPARSE
    if view.points < needed:
        raise question.too_few(name, view.points, needed)
    lasted = question.end(by_time=by_time) - (series.first_time if by_time else series.first_step)
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
    """Raise while a learning rate that is still reported is on its way up."""
    for rate in _RATES:
        series = question.run.metrics.series(rate)
        if series is None or rate == name or series.count < 3 or _has_ended(series, question.run.step() or 0):
            continue
        _, _, values = series.exact()
        if len(values) >= 3 and values[-1] > values[-2] > values[-3]:
            raise UnknownValueError(f"{rate} is rising: a warm-up or a restart of its schedule is on")


def _has_ended(series: Series, step: int) -> bool:
    """Whether a learning rate is not reported any more."""
    usual = (series.newest_step() - series.first_step) / (series.count - 1)
    return step - series.newest_step() > _RATE_ENDED * usual


def _divergence(question: Question) -> bool:
    chosen = len(question.arguments) > 1 and not isinstance(question.arguments[1], str)
    if not chosen:
        question.own = 1.0
    name, higher, series = question.text(0), question.higher(2 if chosen else 1), question.series()
    question.window()
    if non_finite_for_good(series) or hidden_by_a_filter(question, series):
        return True
    if series.streak:
        raise UnknownValueError(f"{name} is not finite at step {series.nonfinite.step if series.nonfinite else 0}")
    newest = series.exact()[2]
    if not chosen:
        question.own = _grace(question, series)
        if len(newest) < LEAST_CLEAR or series.count < LEAST_CLEAR + LEAST_BEFORE:
            raise UnknownValueError(
                f"only {series.count} values of {name}; divergence needs {LEAST_SHIFT + LEAST_BEFORE}"
            )
        base = _remembered_levels(question, name, series, higher=higher)
        if not may_diverge(newest, base, higher=higher):
            return False
    view = question.view(series)
    if view.points < LEAST_SPARSE:
        raise question.too_few(name, view.points, LEAST_SPARSE)
    if chosen:
        base = _levels(name, series.whole().between(-math.inf, view.first_step), series.opening, higher=higher)
    question.looked_at(name, view)
    if not diverges(view, newest, base, higher=higher, chosen=chosen):
        return False
    rescaled = question.rescaled(name, series)
    if rescaled is None:
        return True
    since = series.whole().between(rescaled[0], view.first_step)  # what lies before is of another scale
    return diverges(view, newest, _levels(name, since, rescaled[1], higher=higher), higher=higher, chosen=chosen)


def _grace(question: Question, series: Series) -> float:
    """Length in steps of a window for `divergence` that is as long as spikes may take to heal."""
    steps = series.exact()[0]
    end, run = steps[-1] if steps else 0, question.run
    values = (steps[-1] - steps[-LEAST_SHIFT - 1]) if len(steps) > LEAST_SHIFT else end - series.first_step + 1
    behind = (run.step() or 0) - end  # steps since the newest value
    return max(GRACE * (run.total() or end - series.first_step), values, 1) + max(behind, 0)


def _remembered_levels(question: Question, name: str, series: Series, *, higher: bool) -> Levels:
    key = ("divergence's baseline", question.arguments)
    memo = question.run.memos.get(key)
    if memo is None or not memo.holds(question.scope.passed, question.run.step() or 0):
        view = question.view(series)
        before = series.whole().between(-math.inf, view.first_step)
        memo = question.remember(key, _levels(name, before, series.opening, higher=higher), grains=1)
    assert isinstance(memo.value, Levels)  # noqa: S101 - for the type checker
    return memo.value


def _levels(name: str, before: View, opening: float, *, higher: bool) -> Levels:
    if before.points < LEAST_BEFORE:
        raise UnknownValueError(
            f"only {before.points} values of {name} before the window; divergence needs {LEAST_BEFORE}"
        )
    base = levels_before(before, opening=opening, higher=higher)
    if base.aimless:
        raise UnknownValueError(
            f"{name} has not got better yet, from a level of about 0: worse is not known from usual"
        )
    return base


def _non_finite(question: Question) -> bool:
    return question.series().streak > 0


def _spike(question: Question) -> bool:
    """The baseline is remembered as answers are; the newest value is compared each time."""
    name, higher, series = question.text(0), question.higher(2), question.finite()
    key = ("spike's baseline", question.arguments)
    memo = question.run.memos.get(key)
    if memo is None or not memo.holds(question.scope.passed, question.run.step() or 0):
        view = question.view(series)
        before = view.between(-1.0, float(series.newest_step()))
        if before.points < SPIKE_LEAST:
            raise question.too_few(name, before.points, SPIKE_LEAST)
        question.looked_at(name, view)
        memo = question.remember(key, baseline(before))
    question.windows[:] = memo.windows
    newest = series.newest()
    assert isinstance(memo.value, Baseline)  # noqa: S101 - for the type checker
    return newest is not None and memo.value.spikes(newest[2], higher=higher)


def _overfitting(question: Question) -> bool:
    names = question.text(0), question.text(1)
    evaluation, training = question.finite(0), question.finite(1)
    views = question.view(evaluation), question.view(training)
    for name, view in zip(names, views, strict=True):
        if view.points < LEAST_SPARSE or len(view) < 3:
            raise question.too_few(name, view.points, LEAST_SPARSE)
        question.looked_at(name, view)
    higher = higher_is_better(names[0]), higher_is_better(names[1])
    best, sign = evaluation.best(higher=higher[0]), -1.0 if higher[0] else 1.0
    gained = 0.0
    if best is not None:
        began, reached = [sign * value for value in evaluation.first], sign * best.value
        gained = max(statistics.fmean(believable(began, reached)) - reached, 0.0)
    return overfits(*views, gained, higher=higher)


def _throughput_drop(question: Question) -> bool:
    ratio, blocks = question.number(1, "ratio"), question.run.pace.blocks
    length, by_time = question.window(question.window_at)
    if not by_time or not question.run.pace.known():
        raise UnknownValueError("too few steps of this attempt were timed yet to know the pace")
    question.used.append(blocks)
    recent = blocks.since_time(question.scope.passed - length)
    if recent.points < THROUGHPUT_LEAST:
        raise _too_few_blocks(recent.points, f"in the last {ago(length)}")
    before = blocks.whole().between(-1.0, recent.first_step)
    if before.points >= THROUGHPUT_LEAST:
        return drops(before.quantile(0.5), recent, ratio)
    if question.run.pace.earlier is None:
        raise _too_few_blocks(before.points, f"before the last {ago(length)}")
    return drops(question.run.pace.earlier, recent, ratio)


def _too_few_blocks(found: int, where: str) -> UnknownValueError:
    return UnknownValueError(f"only {found} timed blocks of steps {where}; throughputDrop needs {THROUGHPUT_LEAST}")


def _statistic(compute: Callable[[View], float], needed: int) -> Callable[[Question], float]:
    return lambda question: question.windowed(compute, needed=needed)


def _quantile(question: Question) -> float:
    q = question.number(2, "q")
    return question.windowed(lambda view: view.quantile(q), needed=1)


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
    "bestStep": lambda question: _best(question).step,
    "age": _age,
    **SIGNAL_FUNCTIONS,
}
