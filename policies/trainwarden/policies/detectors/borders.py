"""Whether a metric changed its scale where a training was resumed.

Another reduction (a sum for a mean), batch size, accumulation of gradients, or world size multiplies what is logged,
while the model is the one that was saved. Values from before such a border can't be compared with those after it.
"""

from __future__ import annotations

import itertools
import math
import statistics

from trainwarden.policies.view import View

__all__ = ["LEAST", "RATIO", "changes_scale"]

LEAST = 5
"""Fewest values on either side of the border."""

RATIO = 1.4
"""Times by which a level must have changed, up or down."""

_NEAR = 20  # rows on either side that are looked at
_NOISES = 6.0  # robust standard deviations by which the levels must differ


def changes_scale(history: View, border: float) -> float | None:
    """Level after the border over the level before it; None where both are of one scale, or too little is known.

    The change must be there from the first values on, so that a metric that gets worse after the border is none.

    Source: own; levels are medians, the noise is 1.4826 times the median jump between rows over the square root of 2.
    """
    before = history.between(-math.inf, border).rows.means[-_NEAR:]
    after = history.between(border, math.inf).rows.means[:_NEAR]
    if min(len(before), len(after)) < LEAST:
        return None
    old, first, new = statistics.median(before), statistics.median(after[:LEAST]), statistics.median(after)
    if old == 0 or new / old <= 0 or first / old <= 0:
        return None
    jumps = [abs(b - a) for part in (before, after) for a, b in itertools.pairwise(part)]
    noise = 1.4826 * statistics.median(jumps) / math.sqrt(2)
    for level in (first, new, statistics.median(after[:2])):
        ratio = level / old
        if max(ratio, 1 / ratio) < RATIO or abs(level - old) <= _NOISES * noise:
            return None
    if max(first / new, new / first) > math.sqrt(RATIO):
        return None  # it moves on: no change of scale stands still
    return new / old
