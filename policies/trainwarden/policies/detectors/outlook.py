"""How much a metric may still gain until its plan ends, at the pace of the last stretch and read optimistically.

Training slows down: what a doubling of the steps gains is about what the one before gained, or less. So the pace is
taken per logarithm of the steps, and kept up for what the plan leaves of it.
"""

from __future__ import annotations

import math

from trainwarden.policies.detectors.resolution import resolution, rise_error
from trainwarden.policies.view import View

__all__ = ["LEAST", "LEAST_WITHOUT_PLAN", "LEFT_AT_LEAST", "LEFT_WITHOUT_PLAN", "still_to_gain"]

LEAST = 5
"""Fewest values in a stretch."""

LEAST_WITHOUT_PLAN = 12
"""Fewest values of a whole history while no plan is known: a few of them may be the very beginning of a run."""

LEFT_WITHOUT_PLAN = math.log(2)
"""Taken for ln(last step of the plan / newest step) where no plan is known: the run may go on for as long again."""

LEFT_AT_LEAST = 0.1
"""Least of that logarithm: at the end of a plan little is left to gain, and nothing to save."""

_CONFIDENCE = 2.0  # standard errors that an optimistic reading adds to the fall


def still_to_gain(stretch: View, share: float, *, left: float, higher: bool) -> float:
    """The most by which a metric may still get better, in its own unit; 0 or more.

    Args:
        stretch: The end of a history: LEAST values and two rows at least.
        share: Step at which it begins over the step at which it ends, 0 < share < 1.
        left: ln(last step of the plan / newest step), 0 or more.
        higher: Higher is better.

    Source: own. (max(fall, 0) + 2 * error) * max(left, 0.1) / ln(1 / share). Fall is that of the least-squares line
    over the stretch, error its standard error (not below what rounding hides) times 1 + 2 / (n - 2) for n values. Exact
    for a metric that moves with the logarithm of the steps, too high for power laws and exponentials.
    """
    line = stretch.fit()
    fall = line.rise if higher else -line.rise
    error = rise_error(line, resolution(stretch)) * (1 + 2 / max(stretch.count - 2, 1.0))
    return (max(fall, 0.0) + _CONFIDENCE * error) * max(left, LEFT_AT_LEAST) / math.log(1 / share)
