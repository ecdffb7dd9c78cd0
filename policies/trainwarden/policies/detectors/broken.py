"""Whether a metric has stopped to say anything: frozen at one value, or a loss that hides what is not a number."""

from __future__ import annotations

from collections.abc import Sequence

from trainwarden.policies.view import View

__all__ = ["LEAST", "LEAST_ZEROS", "frozen", "masked"]

LEAST = 10
"""Fewest values in a row that make a metric frozen."""

LEAST_ZEROS = 3
"""Fewest values in a row of exactly 0.0 that make a masked loss."""

_BEFORE = 5  # values before the zeros, which must not have been on their way to 0
_NEAR = 0.1  # times the best level before that is on its way


def frozen(view: View) -> bool:
    """Whether all values of a window are one and the same, to the last bit."""
    return view.low == view.high


def masked(newest: Sequence[float]) -> bool:
    """Whether a loss has dropped to exactly 0.0 from one value to the next, and stays there.

    transformers' filter (`logging_nan_inf_filter`) adds nothing to the logged loss in a step whose loss is not a
    number, so that a training whose weights are lost logs 0.0. A loss that was 0.0 from the start (GRPO's first steps),
    or that came close to 0 before, is none.

    Args:
        newest: Newest values, oldest first.
    """
    zeros = 0
    for value in reversed(newest):
        if value != 0.0:
            break
        zeros += 1
    if zeros < LEAST_ZEROS:
        return False
    before = [abs(value) for value in newest[: len(newest) - zeros][-_BEFORE:]]
    return len(before) == _BEFORE and min(before) > _NEAR * max(before)
