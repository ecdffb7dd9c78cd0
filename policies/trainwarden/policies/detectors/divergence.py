"""Whether a metric is lost: not finite for good, running away, or stuck at a worse level than before.

All levels are turned so that lower is better. What was reached before the window is the baseline: its best level, the
noise around it, what was gained until then, and how far the metric has strayed and come back by itself (its ripple).
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from trainwarden.policies.detectors.levels import ROWS, levels_of
from trainwarden.policies.series import Series
from trainwarden.policies.view import View

__all__ = [
    "GRACE",
    "LEAST",
    "LEAST_BEFORE",
    "LEAST_CLEAR",
    "LEAST_SHIFT",
    "Baseline",
    "baseline",
    "diverges",
    "may_diverge",
    "non_finite_for_good",
]

LEAST = 5
"""Fewest values in the window."""

LEAST_CLEAR, LEAST_SHIFT = 8, 12
"""Fewest values of a clear and of any level shift, in a window that nobody has chosen."""

LEAST_BEFORE = 5
"""Fewest values before it."""

GRACE = 0.008
"""Window that is taken when none is given: share of the plan, or of the run so far where no plan is known."""

_IN_A_ROW = 3  # values that are not finite
_IN_A_ROW_EARLY = 10  # before _EARLY finite values: mixed precision skips steps at the start
_IN_A_ROW_RARE = 2  # where values are _RARE steps apart: no skipped step lasts that long
_RARE = 50
_EARLY = 20
_NOISES = 6.0  # robust standard deviations above the best level
_SHIFT = 0.25  # of the improvement so far that must be lost
_TIMES = 0.42  # of the best level's size, where that is less: of a loss near 0 hardly any share of the gain can be lost
_RELATIVE = 0.05  # of the best level's size that must be lost at least
_RIPPLE = 1.5  # times the farthest that the metric has strayed before and come back from
_RUNAWAY = 3.5  # times as far as a level shift that a runaway has gone
_CLEAR = 1.3  # times as far as a level shift that needs fewer values in a window that nobody has chosen
_HIGHS = 2.0  # times the highest single value above the best level before that a runaway lies above it
_STAYS = 0.9  # of the first two of the newest 5 values that the last two of a runaway keep
_BACK = 0.2  # of the way from the worst to the best that a metric on its way back has come


@dataclass(frozen=True, slots=True)
class Baseline:
    """What a metric was like before the window, lower being better."""

    best: float  # best level of 5 rows in a row
    noise: float  # robust standard deviation of a row
    shift: float  # above the best level by so much, a level is lost if it stays
    runaway: float  # above it by so much, a level is lost at once
    aimless: bool = False  # it was never better than about 0, where it began: as a loss beside a reward


def non_finite_for_good(series: Series) -> bool:
    """Whether the newest values are not finite, too many in a row for a skipped step."""
    if series.count < _EARLY:
        return series.streak >= _IN_A_ROW_EARLY
    apart = (series.newest_step() - series.first_step) / max(series.count - 1, 1)
    return series.streak >= (_IN_A_ROW_RARE if apart >= _RARE else _IN_A_ROW)


def baseline(before: View, *, opening: float, higher: bool) -> Baseline:
    """The baseline of what was reported before the window.

    Args:
        before: LEAST_BEFORE values and more.
        opening: Level at which the metric began.
        higher: Higher is better.
    """
    sign = -1.0 if higher else 1.0
    levels = [sign * mean for mean in before.rows.means]
    medians = levels_of(levels)
    jumps = [abs(b - a) for a, b in itertools.pairwise(levels)]
    noise = 1.4826 * statistics.median(jumps) / math.sqrt(2) if jumps else 0.0
    best = min(medians)
    gained = max(sign * opening - best, 0.0)
    worst = [-low for low in before.rows.lows] if higher else before.rows.highs
    ripple, peak = _strayed(levels, worst, medians)
    height = abs(best)
    shift = max(_NOISES * noise, min(_SHIFT * gained, _TIMES * height), _RELATIVE * height, _RIPPLE * ripple)
    runaway = max(_RUNAWAY * shift, _HIGHS * peak)
    aimless = height <= _NOISES * noise and gained <= _NOISES * noise
    return Baseline(best, noise, shift, runaway, aimless)


def _strayed(levels: Sequence[float], worst: Sequence[float], medians: Sequence[float]) -> tuple[float, float]:
    """How far rows, and single values, lay above the best level before them and were followed by half the way back."""
    later = list(itertools.accumulate(reversed(levels), min))[::-1]
    ripple = peak = 0.0
    best = medians[0]
    for at in range(ROWS, len(levels) - 1):
        away = levels[at] - best
        high = worst[at] - best
        back = later[at + 1] - best
        if away > ripple and back <= away / 2:
            ripple = away
        if high > peak and back <= high / 2:
            peak = high
        best = min(best, medians[at - ROWS + 1])
    return ripple, peak


def may_diverge(newest: Sequence[float], base: Baseline, *, higher: bool) -> bool:
    """Whether the median of the newest values, 5 at most, is worse enough to look at the window."""
    middle = statistics.median(newest[-ROWS:])
    return (-middle if higher else middle) - base.best > base.shift


def diverges(recent: View, newest: Sequence[float], base: Baseline, *, higher: bool, chosen: bool = True) -> bool:
    """Judge the window.

    A level shift must have lasted for all of the window and not be on its way back. A runaway, for which 5 values are
    enough, lies far beyond that and beyond where the metric has ever strayed to, and is about at its worst.

    Args:
        recent: The window, LEAST values and more.
        newest: Its newest values one by one.
        base: What it is compared with.
        higher: Higher is better.
        chosen: The window's length was chosen by a person; else a level shift needs LEAST_SHIFT values.
    """
    sign = -1.0 if higher else 1.0
    last = [sign * value - base.best for value in newest[-ROWS:]]
    levels = [sign * mean - base.best for mean in recent.rows.means]
    middle = statistics.median(last)
    if middle <= base.shift:
        return False
    if _runs_away(last, levels, base.runaway, chosen=chosen):
        return True
    if not chosen and recent.count < LEAST_SHIFT and (recent.count < LEAST_CLEAR or middle <= _CLEAR * base.shift):
        return False
    lows = [-high for high in recent.rows.highs] if higher else recent.rows.lows
    if statistics.median(lows) - base.best <= base.shift or min(lows) - base.best <= base.shift / 2:
        return False
    return not _heals(levels)


def _runs_away(last: Sequence[float], levels: Sequence[float], limit: float, *, chosen: bool) -> bool:
    """Whether everything lately lies beyond a limit, about at its worst, and is not on its way back.

    In a window that was chosen an eighth of it must; else 5 values are enough.
    """
    lately = list(levels[-max(len(levels) // 8, LEAST) :]) if chosen else []
    if len(last) < LEAST or min([*last, *lately]) <= limit:
        return False
    worst = statistics.median(sorted(levels)[-ROWS:])
    return statistics.median(last) >= (1 - _BACK) * worst and sum(last[-2:]) >= _STAYS * sum(last[:2])


def _heals(levels: Sequence[float]) -> bool:
    """Whether the last third of the window has come back from the worst third by a fifth of the way to the best."""
    third = max(len(levels) // 3, 1)
    parts = [statistics.median(levels[at : at + third]) for at in (0, third, len(levels) - third)]
    worst = max(parts)
    return worst - parts[-1] > _BACK * worst
