"""Whether the newest value is far outside what came before it: a robust z-score on the bad side."""

from __future__ import annotations

from dataclasses import dataclass

from trainwarden.policies.view import View

__all__ = ["LEAST", "THRESHOLD", "Baseline", "baseline"]

LEAST = 20
"""Fewest values before the newest."""

THRESHOLD = 8.0
"""Robust standard deviations from the median that make a spike."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """Where values of a window lie."""

    middle: float
    spread: float  # robust standard deviation

    def spikes(self, value: float, *, higher: bool) -> bool:
        """Whether a value is a spike on the bad side."""
        away = self.middle - value if higher else value - self.middle
        return away > THRESHOLD * self.spread and away > 0


def baseline(view: View) -> Baseline:
    """Median and spread of a window; the spread is never below a thousandth of the median's size.

    The spread is the larger of (median - 10 %) / 1.2816 and (90 % - median) / 1.2816: as robust against a few spikes as
    is needed, and wide enough for losses whose batches differ.
    """
    middle = view.quantile(0.5)
    spread = max(middle - view.quantile(0.1), view.quantile(0.9) - middle) / 1.2816
    return Baseline(middle, max(spread, 1e-3 * abs(middle)))
