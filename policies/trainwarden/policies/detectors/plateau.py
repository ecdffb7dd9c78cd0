"""Whether a metric has stopped improving.

A false stop is worse than a late one: a window says "plateau" only when even an optimistic reading of it, kept up for
as long again as the run has taken so far, would gain next to nothing of what the run has gained already.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from trainwarden.policies.view import View

__all__ = ["LEAST_DENSE", "LEAST_SPARSE", "Plateau", "plateaus"]

LEAST_SPARSE = 5
"""Fewest values in a window of a metric that is reported rarely (evaluations)."""

LEAST_DENSE = 20
"""Fewest values in a window of a metric that is reported often."""

NEGLIGIBLE = 0.02
"""Share of the improvement so far that may still be to come."""

CONFIDENCE = 1.0
"""Standard errors that an optimistic reading adds to the gain of a window."""

SCALES = (1.0, 2.0, 4.0)
"""Windows, as multiples of the asked one, whose evidence may be taken; noisy metrics need the longer ones."""

PATIENCE_ABOVE_BEST = 3.0
"""Windows without a new best that are needed when the metric has come back from a better level."""

_CORRELATED = 1.5  # training losses are correlated from one value to the next: errors are larger than independence says


@dataclass(frozen=True, slots=True)
class Plateau:
    """What the detector found."""

    found: bool
    gain: float  # fitted improvement over the window; below 0 when it got worse
    error: float  # its standard error
    negligible: float  # gain over the window below which nothing is to be expected any more


def plateaus(history: View, window: float, *, end: float, higher: bool) -> Plateau:
    """Judge the end of a history by its window.

    Args:
        history: All of the metric's history, at least LEAST_SPARSE values in the window.
        window: Length of the window in steps.
        end: Step at which the window ends.
        higher: Higher is better.
    """
    sign = -1.0 if higher else 1.0
    age = end - history.first_step
    recent = history.between(end - window, math.inf)
    fit = recent.fit()
    gain, error = -sign * fit.rise, _error(fit.error, recent)
    improved = _improved(history, sign)
    verdict = False
    negligible = NEGLIGIBLE * improved * window / max(age, window)
    for scale in SCALES:
        length = window * scale
        if length > age:
            break
        part = recent if scale == 1.0 else history.between(end - length, math.inf)
        line = part.fit()
        most = -sign * line.rise + CONFIDENCE * _error(line.error, part)
        if most * age / length < NEGLIGIBLE * improved:
            verdict = True
            break
    if verdict and _still_improves(recent, sign, end, window):
        verdict = False
    if verdict and not _patient(history, sign, end, window, fit.noise):
        verdict = False
    return Plateau(verdict, gain, error, negligible)


def _error(error: float, view: View) -> float:
    """Standard error with a margin for few points and for correlation."""
    return error * _CORRELATED * (1 + 2 / max(view.count - 2, 1.0))


def _improved(history: View, sign: float) -> float:
    """Improvement from the first values to the best level, 0 or more."""
    rows = history.rows
    first = rows.means[0]
    best = min(sign * mean for mean in rows.means)
    return max(sign * first - best, 0.0)


def _still_improves(recent: View, sign: float, end: float, window: float) -> bool:
    """Whether the newest half or third of the window is clearly on its way down, whatever came before."""
    for share in (1.0, 0.5, 1 / 3):
        part = recent.between(end - window * share, math.inf)
        if part.count < LEAST_SPARSE or len(part) < 3:
            break
        line = part.fit()
        if -sign * line.rise > 2 * _error(line.error, part):
            return True
    return False


def _patient(history: View, sign: float, end: float, window: float, noise: float) -> bool:
    """Whether a metric that was better before has had time to come back (schedules with restarts)."""
    rows = history.rows
    recent = history.between(end - window, math.inf)
    level = sign * recent.mean
    best, best_step = math.inf, 0.0
    for n, mean, step in zip(rows.counts, rows.means, rows.ends, strict=True):
        if n >= 1 and sign * mean < best:
            best, best_step = sign * mean, float(step)
    if level - best <= 3 * noise:
        return True
    return end - best_step >= PATIENCE_ABOVE_BEST * window
