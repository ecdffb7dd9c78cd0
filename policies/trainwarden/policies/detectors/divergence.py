"""Whether a metric is lost: not finite for good, running away, or stuck at a worse level than before."""

from __future__ import annotations

import itertools
import math
import statistics

from trainwarden.policies.series import Series
from trainwarden.policies.view import View

__all__ = ["LEAST", "diverges", "non_finite_for_good"]

LEAST = 5
"""Fewest values in the window, and fewest before it."""

_IN_A_ROW = 3  # values that are not finite
_IN_A_ROW_EARLY = 10  # before _EARLY finite values: mixed precision skips steps at the start
_EARLY = 20
_DEVIATIONS = 6.0  # robust standard deviations above the level before
_SHIFT = 0.25  # of the improvement so far that must be lost
_RELATIVE = 0.05  # of the best level's size that must be lost at least
_RUNAWAY = 2.0  # times all that was ever gained that a runaway has lost
_RUNAWAY_SHARE = 0.125  # of the window for which a runaway must have lasted
_NEWEST = 5  # values whose median stands for now, and rows whose median is a level


def non_finite_for_good(series: Series) -> bool:
    """Whether the newest values are not finite, too many in a row for a skipped step."""
    return series.streak >= (_IN_A_ROW if series.count >= _EARLY else _IN_A_ROW_EARLY)


def diverges(history: View, window: float, *, opening: float, end: float, higher: bool) -> bool:
    """Judge finite values: they lie at a clearly worse level than what was reached before the window.

    A level shift must have lasted the whole window and not be on its way back. A runaway, which has lost twice all that
    was ever gained and still gets worse, is found after an eighth of the window.

    Args:
        history: All of the metric's history.
        window: Length of the window in steps.
        opening: Level at which the metric began.
        end: Step at which the window ends.
        higher: Higher is better.
    """
    sign = -1.0 if higher else 1.0
    recent = history.between(end - window, math.inf)
    before = history.between(-math.inf, end - window)
    if recent.count < LEAST or before.count < LEAST:
        return False
    best, noise = _best_level(before, sign)
    gained = max(sign * opening - best, 0.0)
    least = max(_DEVIATIONS * noise, _SHIFT * gained, _RELATIVE * abs(best))
    levels = [sign * mean for mean in recent.rows.means]
    newest = statistics.median(levels[-_NEWEST:])
    if newest - best <= least:
        return False
    if _runs_away(recent, levels, best + max(_RUNAWAY * gained, least), newest, end - window * _RUNAWAY_SHARE):
        return True
    lows = [-value for value in recent.rows.highs] if higher else recent.rows.lows
    if statistics.median(lows) - best <= least or min(lows) <= best + noise:
        return False
    return not _heals(levels, best)


def _runs_away(recent: View, levels: list[float], limit: float, newest: float, since: float) -> bool:
    """Whether everything since a step lies beyond a limit, and the newest values are about the worst."""
    lasting = [level for level, step in zip(levels, recent.rows.steps, strict=True) if step >= since]
    if len(lasting) < _NEWEST:
        lasting = levels[-_NEWEST:]
    return (
        min(lasting) > limit and newest >= statistics.median(sorted(levels)[-_NEWEST:]) - (limit - min(levels)) * 0.05
    )


def _best_level(view: View, sign: float) -> tuple[float, float]:
    """The best level of 5 rows in a row before the window, and the noise of one value around such levels.

    The noise is 1.4826 times the median jump from row to row, over the square root of 2.
    """
    levels = [sign * mean for mean in view.rows.means]
    size = min(_NEWEST, len(levels))
    medians = [statistics.median(levels[at : at + size]) for at in range(len(levels) - size + 1)]
    jumps = [abs(b - a) for a, b in itertools.pairwise(levels)]
    noise = 1.4826 * statistics.median(jumps) / math.sqrt(2) if jumps else 0.0
    return min(medians), noise


def _heals(levels: list[float], best: float) -> bool:
    """Whether the last third of the window has come back by a fifth of the way from the worst third to the best."""
    third = max(len(levels) // 3, 1)
    parts = [statistics.median(levels[at : at + third]) for at in (0, third, len(levels) - third)]
    worst = max(parts)
    return worst - parts[-1] > 0.2 * (worst - best)
