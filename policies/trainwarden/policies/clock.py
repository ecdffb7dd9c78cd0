"""The running time of a run: wall time without the stretches in which nothing was heard of it.

Windows, `sinceBest`, `age` and checkpoint ages are measured on it, so that a night in the queue, a suspension or an
outage of the network never looks like hours without progress.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

__all__ = ["SILENCE_FACTOR", "SILENCE_LEAST", "RunningClock"]

SILENCE_FACTOR = 10.0
"""So many usual intervals between reports without one are a silence."""

SILENCE_LEAST = 300.0
"""Seconds that are never a silence yet."""

_SEGMENTS = 64  # gaps remembered one by one
_WEIGHT = 0.1  # of the newest interval in the usual one


class RunningClock:
    """Counts the seconds between reports, silences left out. All moments are Unix seconds of receipt."""

    __slots__ = ("_intervals", "_passed", "_starts", "_starts_passed", "heard", "usual")

    def __init__(self) -> None:
        self.heard: float | None = None  # when the newest report came
        self.usual = 0.0  # usual seconds between two reports; 0 while unknown
        self._intervals = 0
        self._passed = 0.0
        self._starts = array("d")  # wall time at which each stretch without a silence began
        self._starts_passed = array("d")  # running time at that moment

    @property
    def silence(self) -> float:
        """Seconds without a report after which nothing that was heard holds any more."""
        return max(SILENCE_FACTOR * self.usual, SILENCE_LEAST)

    def hear(self, at: float) -> float:
        """Count a report, and give the running time at it. One from before the newest counts as of the newest."""
        heard = self.heard
        if heard is None:
            self._begin(at)
            return self._passed
        gap = at - heard
        if gap <= 0:
            return self._passed
        self.heard = at
        if gap <= self.silence:
            self._passed += gap
            self._intervals += 1
            self.usual += (gap - self.usual) * max(_WEIGHT, 1 / self._intervals)
            return self._passed
        if not self._intervals:
            self.usual, self._intervals = gap, 1
        self._begin(at)
        return self._passed

    def now(self, now: float) -> float:
        """Running time at a moment: it stands still once the silence is too long."""
        if self.heard is None:
            return 0.0
        gap = now - self.heard
        return self._passed + gap if 0 < gap <= self.silence else self._passed

    def silent_for(self, now: float) -> float:
        """Seconds since the newest report; 0 before the first."""
        return max(now - self.heard, 0.0) if self.heard is not None else 0.0

    def wall(self, passed: float) -> float:
        """Unix seconds at a running time; of gaps longest ago only the sum is known.

        Raises:
            ValueError: Nothing was heard yet.
        """
        if not self._starts:
            raise ValueError("the clock has heard nothing yet; hear a report first")
        at = max(bisect_right(self._starts_passed, passed) - 1, 0)
        return self._starts[at] + (passed - self._starts_passed[at])

    def _begin(self, at: float) -> None:
        self.heard = at
        self._starts.append(at)
        self._starts_passed.append(self._passed)
        if len(self._starts) > _SEGMENTS:
            del self._starts[1:2], self._starts_passed[1:2]
