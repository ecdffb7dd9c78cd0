"""A metric of a whole run in bounded memory: what was gained by a step, what was still to come, and a picture of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from trainwarden.policies.directions import higher_is_better

__all__ = ["MOST_BUCKETS", "Gain", "Point", "Track"]

MOST_BUCKETS = 128
"""A track is this many means at most, each of the same number of values: 0.8 to 1.6 % of the run."""

_MOST = 1e300  # greater values count as this one, so that differences of two are finite


@dataclass(slots=True)
class Point:
    """The mean of some values in a row."""

    step: int  # of the newest of them
    seconds: float
    mean: float
    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True)
class Gain:
    """How a metric fared around a time. Shares are of the run's total improvement, 0 to 1."""

    best_before: float
    best_after: float  # the best of the whole run
    to_come: float  # share that came after it


class Track:
    """All finite values of one metric, merged into equal buckets that double in size when there are too many.

    Up to MOST_BUCKETS values, as evaluations are, stay exact. Improvement is measured on the means, so that the luck of
    a single noisy value counts for nothing.
    """

    __slots__ = ("_size", "higher", "metric", "points")

    def __init__(self, metric: str) -> None:
        self.metric = metric
        self.higher = higher_is_better(metric)
        self.points: list[Point] = []
        self._size = 1

    def add(self, step: int, seconds: float, value: float) -> None:
        """Add a finite value; values come in order of time."""
        if not -_MOST < value < _MOST:
            value = math.copysign(_MOST, value)
        points = self.points
        last = points[-1] if points else None
        if last is not None and last.count < self._size:
            last.count += 1
            last.mean += (value - last.mean) / last.count
            last.step, last.seconds = step, seconds
            if value < last.low:
                last.low = value
            elif value > last.high:
                last.high = value
            return
        if len(points) >= MOST_BUCKETS:
            self.points = points = [_merged(a, b) for a, b in zip(points[::2], points[1::2], strict=True)]
            self._size *= 2
        points.append(Point(step, seconds, value, value, value, 1))

    def gain(self, seconds: float) -> Gain | None:
        """What had been gained by a time, and what came after; None before the first value.

        Steps would not tell: those that are done once more come later.
        """
        points, levels = self._levels()
        before = [level for level, point in zip(levels, points, strict=True) if point.seconds <= seconds]
        if not before:
            return None
        sign = -1.0 if self.higher else 1.0
        whole = levels[0] - min(levels)
        later = min(before) - min(levels)
        return Gain(sign * min(before), sign * min(levels), later / whole if whole > 0 else 0.0)

    def settled_after(self, share: float) -> float | None:
        """Seconds at which all but a share of the improvement had been made; None when nothing was ever gained."""
        points, levels = self._levels()
        if not levels:
            return None
        whole, best = levels[0] - min(levels), min(levels)
        if whole <= 0:
            return points[0].seconds
        for level, point in zip(levels, points, strict=True):
            if level - best <= share * whole:
                return point.seconds
        return None

    def _levels(self) -> tuple[list[Point], list[float]]:
        """The points and their means with lower as better; a last one with few values is too noisy to stand alone."""
        points = self.points
        if len(points) > 2 and points[-1].count * 2 < self._size:
            points = [*points[:-2], _merged(points[-2], points[-1])]
        sign = -1.0 if self.higher else 1.0
        return points, [sign * point.mean for point in points]


def _merged(a: Point, b: Point) -> Point:
    count = a.count + b.count
    mean = a.mean + (b.mean - a.mean) * (b.count / count)
    return Point(b.step, b.seconds, mean, min(a.low, b.low), max(a.high, b.high), count)
