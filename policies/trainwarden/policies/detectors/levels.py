"""Levels of a metric: medians of some rows in a row, which single odd values can't move."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

__all__ = ["ROWS", "levels_of"]

ROWS = 5
"""Rows whose median is a level."""


def levels_of(values: Sequence[float]) -> list[float]:
    """The median of each 5 values in a row, oldest first; of fewer than 5 values in all, their one median."""
    if len(values) < ROWS:
        return [statistics.median(values)]
    middle = ROWS // 2
    return [sorted(values[at : at + ROWS])[middle] for at in range(len(values) - ROWS + 1)]
