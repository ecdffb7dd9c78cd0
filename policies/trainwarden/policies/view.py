"""A stretch of a metric's history as rows of merged points, and the statistics that detectors read from it."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from dataclasses import dataclass

__all__ = ["Fit", "Rows", "View"]


class Rows:
    """Columns of a view, oldest first. Steps and times are those of the middle of a row."""

    __slots__ = ("counts", "ends", "highs", "lows", "m2s", "means", "steps", "time_ends", "times")

    def __init__(self) -> None:
        self.steps: list[float] = []
        self.times: list[float] = []
        self.ends: list[int] = []  # step of the newest point of each row
        self.time_ends: list[float] = []
        self.counts: list[float] = []
        self.means: list[float] = []
        self.m2s: list[float] = []
        self.lows: list[float] = []
        self.highs: list[float] = []

    def take(
        self,
        step: array[int],
        time: array[float],
        count: array[int],
        mean: array[float],
        m2: array[float],
        low: array[float],
        high: array[float],
        start: int,
        first: tuple[int, float],
    ) -> None:
        """Take buckets from `start` on. Points in a bucket count as evenly spaced since the bucket before it.

        `first` is step and time of the first point of the very first bucket.
        """
        ends, moments, counts = step[start:].tolist(), time[start:].tolist(), count[start:].tolist()
        if start:
            before_step, before_time = float(step[start - 1]), time[start - 1]
        else:  # one even distance before the first point
            wider = counts[0] / max(counts[0] - 1, 1)
            before_step = ends[0] - (ends[0] - first[0]) * wider
            before_time = moments[0] - (moments[0] - first[1]) * wider
        shares = [(number - 1) / (2 * number) for number in counts]
        self.steps += [
            end - (end - before) * share
            for end, before, share in zip(ends, [before_step, *ends[:-1]], shares, strict=True)
        ]
        self.times += [
            end - (end - before) * share
            for end, before, share in zip(moments, [before_time, *moments[:-1]], shares, strict=True)
        ]
        self.ends += ends
        self.time_ends += moments
        self.counts += counts
        self.means += mean[start:].tolist()
        self.m2s += m2[start:].tolist()
        self.lows += low[start:].tolist()
        self.highs += high[start:].tolist()

    def trim_first(self, share: float) -> None:
        """Keep only a share of the first row's points, the newest ones."""
        self.steps[0] = self.ends[0] - (self.ends[0] - self.steps[0]) * share
        self.times[0] = self.time_ends[0] - (self.time_ends[0] - self.times[0]) * share
        self.counts[0] *= share
        self.m2s[0] *= share

    def take_exact(self, steps: array[int], times: array[float], values: array[float]) -> None:
        """Take points one by one."""
        points = values.tolist()
        self.ends += steps.tolist()
        self.steps += steps.tolist()
        self.times += times.tolist()
        self.time_ends += times.tolist()
        self.counts += [1.0] * len(points)
        self.m2s += [0.0] * len(points)
        self.means += points
        self.lows += points
        self.highs += points


@dataclass(frozen=True, slots=True)
class Fit:
    """Least-squares line through a view, over its steps."""

    slope: float  # per step
    start: float  # fitted value at the first row
    end: float  # fitted value at the last row
    noise: float  # standard deviation of one point around the line
    error: float  # standard error of `end - start`, for points that are independent

    @property
    def rise(self) -> float:
        """Fitted end minus fitted start."""
        return self.end - self.start


class View:
    """Statistics of a stretch of history. Empty ones have a count of 0 and nothing else."""

    __slots__ = ("_ranked", "count", "rows")

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self._ranked: list[tuple[float, float]] | None = None
        self.count = sum(rows.counts)  # of points; not whole where a bucket straddles the border

    def __len__(self) -> int:
        return len(self.rows.counts)

    @property
    def points(self) -> int:
        """Number of reported values, rounded."""
        return round(self.count)

    @property
    def first_step(self) -> float:
        return self.rows.steps[0]

    @property
    def last_step(self) -> int:
        return self.rows.ends[-1]

    @property
    def first_time(self) -> float:
        return self.rows.times[0]

    @property
    def last_time(self) -> float:
        return self.rows.time_ends[-1]

    @property
    def low(self) -> float:
        return min(self.rows.lows)

    @property
    def high(self) -> float:
        return max(self.rows.highs)

    @property
    def mean(self) -> float:
        rows = self.rows
        return math.fsum(n * m for n, m in zip(rows.counts, rows.means, strict=True)) / self.count

    @property
    def variance(self) -> float:
        """Sample variance (divided by n - 1); 0 for fewer than two points."""
        if self.count <= 1:
            return 0.0
        rows, mean = self.rows, self.mean
        between = math.fsum(n * (m - mean) * (m - mean) for n, m in zip(rows.counts, rows.means, strict=True))
        return (between + math.fsum(rows.m2s)) / (self.count - 1)

    def quantile(self, q: float) -> float:
        """Quantile of the points; those of a bucket count as half at mean - deviation and half at mean + deviation.

        Between two points it interpolates, as numpy does by default when every point is exact.
        """
        pairs = self._by_value()
        target = q * (self.count - 1)  # rank from 0
        before = -1.0  # rank of the newest point of the pairs before
        for index, (value, n) in enumerate(pairs):
            last = before + n
            if target <= last:
                return value
            if target < last + 1 and index + 1 < len(pairs):
                return value + (pairs[index + 1][0] - value) * (target - last)
            before = last
        return pairs[-1][0]

    def _by_value(self) -> list[tuple[float, float]]:
        """Values and numbers of points, least first."""
        if self._ranked is None:
            pairs: list[tuple[float, float]] = []
            rows = self.rows
            for n, mean, m2 in zip(rows.counts, rows.means, rows.m2s, strict=True):
                if m2 > 0 and n > 1:
                    spread = math.sqrt(m2 / n)
                    pairs += [(mean - spread, n / 2), (mean + spread, n / 2)]
                else:
                    pairs.append((mean, n))
            pairs.sort()
            self._ranked = pairs
        return self._ranked

    def fit(self) -> Fit:
        """Least-squares line over the steps, each row weighted by its points. At least two rows are needed."""
        rows = self.rows
        total = self.count
        steps, means, counts = rows.steps, rows.means, rows.counts
        middle = math.fsum(n * x for n, x in zip(counts, steps, strict=True)) / total
        level = self.mean
        sxx = sxy = syy = 0.0
        for n, x, y in zip(counts, steps, means, strict=True):
            dx, dy = x - middle, y - level
            sxx += n * dx * dx
            sxy += n * dx * dy
            syy += n * dy * dy
        slope = sxy / sxx if sxx > 0 else 0.0
        residual = max(syy - slope * sxy, 0.0) + math.fsum(rows.m2s)
        noise = math.sqrt(residual / max(total - 2, 1.0))
        span = steps[-1] - steps[0]
        return Fit(
            slope=slope,
            start=level + slope * (steps[0] - middle),
            end=level + slope * (steps[-1] - middle),
            noise=noise,
            error=noise * span / math.sqrt(sxx) if sxx > 0 else math.inf,
        )

    def between(self, low: float, high: float) -> View:
        """The rows whose middle step s has low <= s < high."""
        mine, picked = self.rows, Rows()
        start, end = bisect_left(mine.steps, low), bisect_left(mine.steps, high)
        for name in Rows.__slots__:
            setattr(picked, name, getattr(mine, name)[start:end])
        return View(picked)
