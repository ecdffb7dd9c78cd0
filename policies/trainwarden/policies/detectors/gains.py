"""Where a metric began, though some of its first values may be odd ones, and what it has gained since."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

__all__ = ["MOST_TIMES", "ODD_TIMES", "believable", "gain"]

MOST_TIMES = 100.0
"""A first value counts as no farther from the best than so many times the distance of the first values' median.

Random weights begin far away: of 1,268 recorded held-out losses half began 13 times farther and a tenth more than 130.
"""

ODD_TIMES = 10_000.0
"""A first value that lies so many times farther is an odd one, and tells nothing; 1 % of those losses began there."""

_FEW = 128  # up to so many values stand for themselves, as evaluations do; more are the noisy ones of training


def believable(first: Sequence[float], best: float) -> list[float]:
    """The first values as far as they can be believed; the median in place of odd ones.

    Args:
        first: The first values, lower being better; at least one.
        best: The best level so far.
    """
    median = statistics.median_low(first)
    since = median - best
    near = [value if value - best <= ODD_TIMES * since else median for value in first]
    return [min(value, best + MOST_TIMES * since) for value in near]


def gain(first: Sequence[float], best: float, *, values: float) -> float:
    """Improvement so far, lower being better; below 0 when there is none.

    From the worst of the first values to the best; for a metric with more than 128 values from their median, since the
    worst of many is noise.

    Args:
        first: The first values; at least one.
        best: Best level so far.
        values: Number of values.
    """
    return (statistics.median_low(first) if values > _FEW else max(believable(first, best))) - best
