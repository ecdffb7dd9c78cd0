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
_NEWEST = 5  # values whose median stands for now


def non_finite_for_good(series: Series) -> bool:
    """Whether the newest values are not finite, too many in a row for a skipped step."""
    return series.streak >= (_IN_A_ROW if series.count >= _EARLY else _IN_A_ROW_EARLY)


def diverges(history: View, window: float, *, end: float, higher: bool) -> bool:
    """Judge finite values: all of the window lies at a worse level than what was reached before it.

    Args:
        history: All of the metric's history.
        window: Length of the window in steps.
        end: Step at which the window ends.
        higher: Higher is better.

    A level shift must have lasted the whole window; a runaway (each third of the window worse than the one before,
    and the end outside all that was seen before) is found as soon as a third of a window is worse.
    """
    sign = -1.0 if higher else 1.0
    recent = history.between(end - window, math.inf)
    before = history.between(-math.inf, end - window)
    if recent.count < LEAST or before.count < LEAST:
        return False
    best, noise = _best_level(before, sign)
    first = sign * before.rows.means[0]
    least = max(_DEVIATIONS * noise, _SHIFT * max(first - best, 0.0))
    lows = [sign * value for value in (recent.rows.highs if higher else recent.rows.lows)]
    levels = [sign * mean for mean in recent.rows.means]
    newest = statistics.median(levels[-_NEWEST:])
    if newest - best <= least or newest - best <= 0.05 * abs(best):
        return False
    stuck = statistics.median(lows) - best > least and min(lows) > best + noise
    return stuck and not _heals(levels)


def _best_level(view: View, sign: float) -> tuple[float, float]:
    """The best level of 5 rows in a row before the window, and the noise of one value around such levels."""
    levels = [sign * mean for mean in view.rows.means]
    size = min(_NEWEST, len(levels))
    medians = [statistics.median(levels[at : at + size]) for at in range(len(levels) - size + 1)]
    jumps = [abs(b - a) for a, b in itertools.pairwise(levels)]
    noise = 1.4826 * statistics.median(jumps) / math.sqrt(2) if jumps else 0.0
    return min(medians), noise


def _heals(levels: list[float]) -> bool:
    """Whether the last third is on its way back: a fifth of the way from the worst third."""
    third = max(len(levels) // 3, 1)
    parts = [statistics.median(levels[at : at + third]) for at in (0, third, len(levels) - third)]
    worst = max(parts)
    return worst > 0 and parts[-1] < worst and worst - parts[-1] > 0.2 * abs(worst - min(parts[0], parts[1]))
