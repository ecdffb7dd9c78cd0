"""Whether a metric has stopped improving.

A false stop is worse than a late one: a window says "plateau" only when even an optimistic reading of it, kept up for
as long again as the run has taken so far, would gain next to nothing of what the run has gained already.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from trainwarden.policies.detectors.gains import believable
from trainwarden.policies.detectors.levels import ROWS, levels_of
from trainwarden.policies.detectors.resolution import resolution, rise_error
from trainwarden.policies.view import Fit, View

__all__ = ["LEAST_DENSE", "LEAST_SPARSE", "Plateau", "plateaus"]

LEAST_SPARSE = 5
"""Fewest values in a window of a metric that is reported rarely (evaluations)."""

LEAST_DENSE = 20
"""Fewest values in a window of a metric that is reported often."""

NEGLIGIBLE = 0.015
"""Share of the improvement so far that may still be to come."""

CONFIDENCE = 2.0
"""Standard errors that an optimistic reading adds to the gain of a window."""

WORSE = 4.0
"""Standard errors by which a window must have got worse to need no other proof that it does not improve."""

LONGEST = 0.75
"""Share of the run so far that the evidence may be taken from, in windows doubled; noisy metrics need long ones."""

PATIENCE_ABOVE_BEST = 5.0
"""Windows without a new best that are needed when the metric has come back from a better level."""

_CORRELATED = 1.5  # training losses are correlated from one value to the next: errors are larger than independence says


@dataclass(frozen=True, slots=True)
class Plateau:
    """What the detector found."""

    found: bool
    gain: float  # fitted improvement over the window; below 0 when it got worse
    error: float  # its standard error
    negligible: float  # gain over the window below which nothing is to be expected any more


def plateaus(history: View, window: float, *, first: Sequence[float], end: float, higher: bool) -> Plateau:
    """Judge the end of a history by its window.

    Args:
        history: All of the metric's history, at least LEAST_SPARSE values in the window.
        window: Length of the window in steps.
        first: The first values of the metric; at least one.
        end: Step at which the window ends.
        higher: Higher is better.
    """
    sign = -1.0 if higher else 1.0
    age = end - history.first_step
    recent = history.between(end - window, math.inf)
    fit, step = recent.fit(), resolution(history)
    improved = _improved(history, first, sign, fit.noise)
    negligible = NEGLIGIBLE * improved
    shown = _shown(history, sign, window, age, end, negligible, step)
    found = (
        shown
        and not _still_improves(recent, sign, end, window, negligible / age, step)
        and _patient(history, sign, end, window, negligible)
    )
    return Plateau(found, -sign * fit.rise, _error(fit, recent, step), negligible * window / age)


def _shown(history: View, sign: float, window: float, age: float, end: float, negligible: float, step: float) -> bool:
    """Whether the window, or a longer stretch that ends with it, leaves next to nothing to be gained."""
    length = window
    while length <= max(age * LONGEST, window):
        part = history.between(end - length, math.inf)
        line = part.fit()
        won, doubt = -sign * line.rise, _error(line, part, step)
        most = max(won, 0.0) + CONFIDENCE * doubt if won > -WORSE * doubt else 0.0
        if most * age / length < negligible:
            return True
        length *= 2
    return False


def _error(fit: Fit, view: View, step: float) -> float:
    """Standard error of a fitted rise, with a margin for few points and for values that hang together.

    Where the spread around the line is more than the jumps from one value to the next explain, values are correlated or
    the line is the wrong shape; the error grows by that ratio, to 3 times at most.
    """
    return rise_error(fit, step) * _correlated(fit, view) * (1 + 2 / max(view.count - 2, 1.0))


def _correlated(fit: Fit, view: View) -> float:
    rows = view.rows
    jumps = [
        (b - a) * (b - a)
        for (a, n), (b, m) in itertools.pairwise(zip(rows.means, rows.counts, strict=True))
        if n == m == 1
    ]
    if len(jumps) < LEAST_SPARSE:
        return _CORRELATED
    explained = math.sqrt(sum(jumps) / len(jumps) / 2)
    return min(max(fit.noise / explained, 1.0), 3.0) if explained > 0 else 3.0


def _improved(history: View, first: Sequence[float], sign: float, noise: float) -> float:
    """Improvement from the first values to the best level that was held for a while, noise taken off; 0 or more."""
    best = min(levels_of([sign * mean for mean in history.rows.means]))
    began = [sign * value for value in first]
    return max(statistics.fmean(believable(began, best)) - best - noise, 0.0)


def _still_improves(recent: View, sign: float, end: float, window: float, pace: float, step: float) -> bool:
    """Whether the newest part of the window is clearly on its way down at more than a pace, whatever came before."""
    for share in (1.0, 0.5, 1 / 3):
        part = recent.between(end - window * share, math.inf)
        if part.count < LEAST_SPARSE or len(part) < 3:
            break
        line = part.fit()
        if -sign * line.rise > max(2 * _error(line, part, step), pace * window * share):
            return True
    return False


def _patient(history: View, sign: float, end: float, window: float, negligible: float) -> bool:
    """Whether a metric that was better before has had time to come back (schedules with restarts)."""
    rows = history.rows
    levels = [sign * mean for mean in rows.means]
    jumps = [abs(b - a) for a, b in itertools.pairwise(levels)]
    noise = 1.4826 * statistics.median(jumps) / math.sqrt(2) if jumps else 0.0
    now = statistics.median(levels[-ROWS:])
    best, best_step = min(zip(levels, rows.ends, strict=True))
    if now - best <= max(3 * noise, negligible):
        return True
    return end - best_step >= PATIENCE_ABOVE_BEST * window
