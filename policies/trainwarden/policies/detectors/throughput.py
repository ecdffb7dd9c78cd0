"""Whether the pace has dropped against the run's own pace before."""

from __future__ import annotations

from trainwarden.policies.view import View

__all__ = ["LEAST", "drops"]

LEAST = 5
"""Fewest timed blocks in the window, and fewest before it."""


def drops(usual: float, recent: View, ratio: float) -> bool:
    """Whether the median pace over the window is below `ratio` times the usual pace.

    Args:
        usual: Seconds per step before: the median of this attempt, or of the attempt before on as many GPUs.
        recent: Seconds per step of the window's blocks.
        ratio: Share of the usual pace, 0 to 1.
    """
    return usual < ratio * recent.quantile(0.5)
