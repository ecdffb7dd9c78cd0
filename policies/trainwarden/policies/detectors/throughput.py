"""Whether the pace has dropped against the attempt's own pace before."""

from __future__ import annotations

from trainwarden.policies.view import View

__all__ = ["LEAST", "drops"]

LEAST = 5
"""Fewest timed blocks in the window, and fewest before it."""


def drops(before: View, recent: View, ratio: float) -> bool:
    """Whether the median pace over the window is below `ratio` times the median pace before it.

    Both views hold seconds per step in the train phase.
    """
    return before.quantile(0.5) < ratio * recent.quantile(0.5)
