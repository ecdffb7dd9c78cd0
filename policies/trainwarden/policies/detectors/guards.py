"""Guards for trainings whose loss says little, such as reinforcement learning: a size that explodes or dies away.

The distance from the reference model (KL) grows in a healthy run too, but not by leaps; the spread of rewards and the
entropy fall, but not to nothing. Both are judged by the size of a metric, without a direction that is better.
"""

from __future__ import annotations

import statistics

from trainwarden.policies.view import View

__all__ = ["LEAST", "collapses", "explodes"]

LEAST = 5
"""Fewest values in the window, and fewest before it."""

_TIMES = 4.0  # the usual size before the window that an explosion has
_PEAK = 1.5  # times the greatest size before
_LEFT = 0.05  # of the usual size before that a collapse has left


def _sizes(view: View) -> list[float]:
    return [abs(mean) for mean in view.rows.means]


def explodes(before: View, recent: View) -> bool:
    """Whether the median size in the window is 4 times that before it, beyond any size before, and still grows.

    A metric that was 0 before, as KL is at the start, is compared with its greatest size.
    """
    old, new = _sizes(before), _sizes(recent)
    half = max(len(new) // 2, 1)
    lately, middle = statistics.median(new[half:] or new), statistics.median(new)
    peak = max(abs(before.low), abs(before.high))
    return middle > _TIMES * statistics.median(old[-max(len(old) // 2, LEAST) :]) and (
        middle > _PEAK * peak and lately >= statistics.median(new[:half])
    )


def collapses(before: View, recent: View) -> bool:
    """Whether all of the window is below a twentieth of the median size before it."""
    return max(_sizes(recent)) < _LEFT * statistics.median(_sizes(before))
