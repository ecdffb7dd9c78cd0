"""Whether an evaluation metric gets worse while the training metric still gets better."""

from __future__ import annotations

from trainwarden.policies.detectors.resolution import resolution, rise_error
from trainwarden.policies.view import View

__all__ = ["LEAST", "overfits"]

LEAST = 5
"""Fewest values of either metric in the window."""

_ERRORS = 2.0  # standard errors by which each must have moved
_SHARE = 0.02  # of what the evaluation metric has gained that must be lost again


def overfits(evaluation: View, training: View, gained: float, *, higher: tuple[bool, bool]) -> bool:
    """Judge a window of both metrics.

    Args:
        evaluation: The evaluation metric in the window.
        training: The training metric in the window.
        gained: Improvement of the evaluation metric from its first value to its best, 0 or more.
        higher: Whether higher is better, of each.
    """
    worse, better = evaluation.fit(), training.fit()
    lost = -worse.rise if higher[0] else worse.rise
    won = better.rise if higher[1] else -better.rise
    surely_lost = lost > max(_ERRORS * rise_error(worse, resolution(evaluation)), _SHARE * gained)
    return surely_lost and won > _ERRORS * rise_error(better, resolution(training))
