"""The error of a fitted rise where values are rounded: what rounding hides is no standstill."""

from __future__ import annotations

import itertools
import math

from trainwarden.policies.view import Fit, View

__all__ = ["LEAST_TIES", "resolution", "rise_error"]

LEAST_TIES = 2
"""Fewest values that repeat the one before, from which on values count as rounded."""

_HIDES = 0.5  # of a rounding step: with less spread than that, rounding errors do not average out


def rise_error(fit: Fit, step: float) -> float:
    """Standard error of the rise of a line over values that are rounded to a step; 0: they are not.

    That of independent values, or, where they are rounded more coarsely than they spread, what rounding both ends may
    hide: step / sqrt(6), however many values there are.
    """
    return max(fit.error, step / math.sqrt(6)) if fit.noise < _HIDES * step else fit.error


def resolution(view: View) -> float:
    """The step to which values seem to be rounded: the least difference between two of them.

    0 unless some that are still exact equal the one before, which those that are not rounded do not.
    """
    rows = view.rows
    exact = [mean for mean, count in zip(rows.means, rows.counts, strict=True) if count == 1]
    if sum(a == b for a, b in itertools.pairwise(exact)) < LEAST_TIES:
        return 0.0
    ranked = sorted({*rows.lows, *rows.highs})
    return min((b - a for a, b in itertools.pairwise(ranked)), default=0.0)
