"""The bounded history of one metric: newest points exact, older ones merged into buckets that grow with their age.

A bucket keeps count, mean, sum of squared deviations, least and greatest value, so that a window's statistics stay
right however old it is; only where a window begins gets coarser with age. `docs/memory.md` states the bytes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from statistics import fmean

from trainwarden.policies.view import Rows, View

__all__ = ["BUCKETS", "EXACT", "Best", "NonFinite", "Series"]

EXACT = 40
"""Most points that are kept one by one; at least half of it always are."""

BUCKETS = 52
"""Most buckets that older points are merged into."""

_FOLD = EXACT // 2  # points that leave the exact part together
_FINENESS = 8.0  # a bucket holds at most 1/8 of the number of points newer than it, at first
_KEPT = BUCKETS * 3 // 4  # buckets left after a compaction
_FIRST = 5  # values that tell where a metric began
_LARGEST = 3e38  # greatest squared deviation that a 4-byte float holds


@dataclass(frozen=True, slots=True)
class Best:
    """The best value of a series. After a rewind its step may be that of the end of its bucket."""

    value: float
    step: int
    time: float


@dataclass(frozen=True, slots=True)
class NonFinite:
    """The newest value that was not a finite number."""

    text: str  # "NaN", "Infinity" or "-Infinity"
    step: int
    time: float


class _Buckets:
    """Columns of merged points, oldest first."""

    __slots__ = ("count", "fineness", "high", "low", "m2", "mean", "step", "time")

    def __init__(self) -> None:
        self.fineness = _FINENESS  # falls as the history grows
        self.step = array("q")  # of the newest point in it
        self.time = array("d")  # of the newest point in it
        self.count = array("I")
        self.mean = array("d")
        self.m2 = array("f")
        self.low = array("d")
        self.high = array("d")

    def columns(self) -> tuple[array[int] | array[float], ...]:
        return self.step, self.time, self.count, self.mean, self.m2, self.low, self.high


class Series:
    """History of one metric by step. Times are seconds on one clock of the caller's choice; it never runs backwards."""

    __slots__ = (
        "_highest",
        "_lowest",
        "_old",
        "_steps",
        "_times",
        "_values",
        "count",
        "first",
        "first_step",
        "first_time",
        "nonfinite",
        "nonfinite_count",
        "streak",
        "version",
    )

    def __init__(self) -> None:
        self._steps = array("q")
        self._times = array("d")
        self._values = array("d")
        self._old: _Buckets | None = None
        self._lowest: Best | None = None
        self._highest: Best | None = None
        self.count = 0  # finite values held, merged ones included
        self.first_step = 0  # of the first finite value; 0 while there is none
        self.first_time = 0.0
        self.first = array("d")  # the first 5 finite values
        self.nonfinite: NonFinite | None = None
        self.nonfinite_count = 0
        self.streak = 0  # newest values in a row that are not finite
        self.version = 0  # changes when history changes in other ways than by a newer finite value

    def add(self, step: int, time: float, value: float) -> None:
        """Add a finite value. An older step is put in its place as long as its neighbours are exact, else left out.

        A value for a step that is there already replaces it.
        """
        steps = self._steps
        newest = steps[-1] if steps else self._newest_merged()
        if step <= newest:
            self._insert(step, time, value)
            return
        steps.append(step)
        self._times.append(time)
        self._values.append(value)
        lowest, highest = self._lowest, self._highest
        if lowest is None or highest is None:
            self._lowest = self._highest = Best(value, step, time)
            self.first_step, self.first_time = step, time
        elif value < lowest.value:
            self._lowest = Best(value, step, time)
        elif value > highest.value:
            self._highest = Best(value, step, time)
        self.count += 1
        if self.count <= _FIRST:
            self._open()
        if self.streak:
            self.streak = 0
            self.version += 1
        if len(steps) > EXACT:
            self._fold()

    def add_nonfinite(self, step: int, time: float, text: str) -> None:
        """Count a value that is NaN or infinite. It enters no statistic."""
        if self.nonfinite is not None and step < self.nonfinite.step:
            return
        self.nonfinite_count += 1
        self.version += 1
        if step >= self.newest_step():
            self.streak += 1
        self.nonfinite = NonFinite(text, step, time)

    def rewind(self, step: int) -> None:
        """Forget what came after a step, and of the merged points the bucket that straddles it."""
        if self.newest_step() <= step and (self.nonfinite is None or self.nonfinite.step <= step):
            return
        self.version += 1
        kept = bisect_right(self._steps, step)
        for column in (self._steps, self._times, self._values):
            del column[kept:]
        old = self._old
        if old is not None and not kept:
            merged = bisect_right(old.step, step)
            for each in old.columns():
                del each[merged:]
        self.count = len(self._steps) + (sum(old.count) if old is not None else 0)
        if self.count < _FIRST:
            self._open()
        if not self.count:
            self._lowest = self._highest = None
        if self.nonfinite is not None and self.nonfinite.step > step:
            self.nonfinite = None
            self.streak = 0
        if self._lowest is not None and self._highest is not None:
            if self._lowest.step > step:
                self._lowest = self._search(lowest=True)
            if self._highest.step > step:
                self._highest = self._search(lowest=False)

    @property
    def opening(self) -> float:
        """Mean of the first 5 finite values; 0 while there is none."""
        return fmean(self.first) if self.first else 0.0

    def newest(self) -> tuple[int, float, float] | None:
        """Step, time and value of the newest finite value; None before the first."""
        if self._steps:
            return self._steps[-1], self._times[-1], self._values[-1]
        old = self._old
        if old is not None and old.step:
            return old.step[-1], old.time[-1], old.mean[-1]
        return None

    def newest_step(self) -> int:
        """Step of the newest finite value; -1 before the first."""
        return self._steps[-1] if self._steps else self._newest_merged()

    def best(self, *, higher: bool) -> Best | None:
        """The best value, its step and its time; the earliest of equals. None before the first."""
        return self._highest if higher else self._lowest

    def exact(self) -> tuple[list[int], list[float], list[float]]:
        """Steps, times and values of the points that are still exact, oldest first."""
        return self._steps.tolist(), self._times.tolist(), self._values.tolist()

    def since_step(self, step: int) -> View:
        """What was reported after a step."""
        return self._view(float(step), by_time=False)

    def since_time(self, time: float) -> View:
        """What was reported after a time."""
        return self._view(time, by_time=True)

    def whole(self) -> View:
        """All that is held."""
        return self._view(float("-inf"), by_time=False)

    def _view(self, start: float, *, by_time: bool) -> View:
        """Rows after `start`; of the bucket that straddles it, the share that lies after."""
        tail = bisect_right(self._times if by_time else self._steps, start)
        rows = Rows()
        old = self._old
        if old is not None and old.step and tail == 0:
            edges = old.time if by_time else old.step
            at = bisect_right(edges, start)
            if at < len(edges):
                first = self.first_step, self.first_time
                rows.take(old.step, old.time, old.count, old.mean, old.m2, old.low, old.high, at, first)
                before = edges[at - 1] if at else None
                if before is not None and before < start < edges[at]:
                    rows.trim_first((edges[at] - start) / (edges[at] - before))
        rows.take_exact(self._steps[tail:], self._times[tail:], self._values[tail:])
        return View(rows)

    def _newest_merged(self) -> int:
        old = self._old
        return old.step[-1] if old is not None and old.step else -1

    def _insert(self, step: int, time: float, value: float) -> None:
        steps, times, values = self._steps, self._times, self._values
        at = bisect_left(steps, step)
        if at < len(steps) and steps[at] == step:
            replaced, values[at] = values[at], value
            self.version += 1
            self._open()
            self._consider(step, times[at], value, replaced)
            if at == len(steps) - 1:
                self.streak = 0
            return
        if step <= self._newest_merged():
            return
        moment = min(time, times[at])
        if at:
            moment = max(moment, times[at - 1])
        steps.insert(at, step)
        times.insert(at, moment)
        values.insert(at, value)
        if step < self.first_step:
            self.first_step, self.first_time = step, moment
        self.count += 1
        self.version += 1
        self._open()
        self._consider(step, moment, value, None)
        if len(steps) > EXACT:
            self._fold()

    def _open(self) -> None:
        """Tell the first values anew, as long as they are exact."""
        if self._old is None or not self.count:
            self.first = self._values[:_FIRST]

    def _consider(self, step: int, time: float, value: float, replaced: float | None) -> None:
        """Keep the best values right after a change in the middle."""
        lowest, highest = self._lowest, self._highest
        if lowest is None or value < lowest.value:
            self._lowest = Best(value, step, time)
        elif lowest.step == step and replaced == lowest.value:
            self._lowest = self._search(lowest=True)
        if highest is None or value > highest.value:
            self._highest = Best(value, step, time)
        elif highest.step == step and replaced == highest.value:
            self._highest = self._search(lowest=False)

    def _search(self, *, lowest: bool) -> Best | None:
        """The best of what is held."""
        found: Best | None = None
        old = self._old
        if old is not None:
            for step, time, value in zip(old.step, old.time, old.low if lowest else old.high, strict=True):
                if found is None or (value < found.value if lowest else value > found.value):
                    found = Best(value, step, time)
        for step, time, value in zip(self._steps, self._times, self._values, strict=True):
            if found is None or (value < found.value if lowest else value > found.value):
                found = Best(value, step, time)
        return found

    def _fold(self) -> None:
        """Merge the oldest exact points in pairs into buckets."""
        old = self._old
        if old is None:
            old = self._old = _Buckets()
        values = self._values[:_FOLD].tolist()
        firsts, seconds = values[::2], values[1::2]
        old.step.extend(self._steps[1:_FOLD:2])
        old.time.extend(self._times[1:_FOLD:2])
        old.count.extend(array("I", (2,)) * (_FOLD // 2))
        old.mean.extend([a / 2 + b / 2 for a, b in zip(firsts, seconds, strict=True)])
        old.m2.extend([min((b - a) * (b - a) / 2, _LARGEST) for a, b in zip(firsts, seconds, strict=True)])
        old.low.extend([min(b, a) for a, b in zip(firsts, seconds, strict=True)])
        old.high.extend([max(a, b) for a, b in zip(firsts, seconds, strict=True)])
        del self._steps[:_FOLD], self._times[:_FOLD], self._values[:_FOLD]
        if len(old.step) > BUCKETS:
            self._compact(old)

    def _compact(self, old: _Buckets) -> None:
        """Merge neighbours until they fit: a bucket may hold a share of the number of points newer than it.

        Means and squared deviations are merged after Chan, Golub, LeVeque (1979), "Updating Formulae and a Pairwise
        Algorithm for Computing Sample Variances".
        """
        _merge(old, len(self._steps), old.fineness)
        while len(old.step) > _KEPT:
            old.fineness *= 0.85
            _merge(old, len(self._steps), old.fineness)


def _merge(old: _Buckets, newer: int, fineness: float) -> None:
    """One pass from the newest bucket to the oldest."""
    rows = list(zip(*(column.tolist() for column in old.columns()), strict=True))
    step, time, count, mean, m2, low, high = rows[-1]
    merged = []
    for before in reversed(rows[:-1]):
        other = before[2]
        both = count + other
        if both * fineness <= newer or both <= 2:
            delta = before[3] - mean
            mean += delta * (other / both)
            m2 = min(m2 + before[4] + delta * delta * (count * other / both), _LARGEST)
            count = both
            if before[5] < low:
                low = before[5]
            if before[6] > high:
                high = before[6]
        else:
            merged.append((step, time, count, mean, m2, low, high))
            newer += count
            step, time, count, mean, m2, low, high = before
    merged.append((step, time, count, mean, m2, low, high))
    merged.reverse()
    for column, values in zip(old.columns(), zip(*merged, strict=True), strict=True):
        column[:] = array(column.typecode, values)
