"""Pace of an attempt and the time left to its last step, with a band that the attempt's own forecasts have earned.

Time left = steps left * mean seconds per step over the newer half of what was timed, plus the pauses still to come. The
band is as wide as forecasts made earlier in this attempt, by the same formula, have been wrong about what followed.
Only steps of this attempt count, so that a resumed training is right from its first reports on. See
`docs/eta.md`.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from dataclasses import dataclass
from datetime import timedelta

from trainwarden.policies.pauses import Pauses
from trainwarden.policies.series import Series

__all__ = ["BLOCK_SECONDS", "WARM_UP_BLOCKS", "WARM_UP_SECONDS", "WARM_UP_STEPS", "Eta", "Pace"]

BLOCK_SECONDS = 1.0
"""Steps are timed in blocks of at least so many seconds of the train phase."""

WARM_UP_BLOCKS = 3
WARM_UP_SECONDS = 5.0
WARM_UP_STEPS = 10
"""Blocks, seconds and steps in `train` before a pace is known; the first step of an attempt is never one of them."""

_RECENT = 3600.0  # seconds that the pace is taken from, or the newest blocks where these are more
_MARKS = 128  # most places at which steps and seconds so far are kept; every second one goes when there are more
_NEWER = 0.5  # share of the timed steps that the mean is taken from
_CUTS = (0.35, 0.5, 0.7, 0.85)  # shares of the timed steps after which forecasts are made again and compared
_WIDTH = 1.1  # root mean square errors of those forecasts that make a band of 80 %
_FAR, _FAR_POWER = 3.0, 0.4  # further ahead than 3 times what was timed, the band grows by a power of the distance
_AGREE = 0.9  # share of the mean square that the squared mean must have for a drift
_DRIFT = 0.7  # of a drift, times 1 + 2 * distance: what a pace that changes evenly with the steps misses further ahead
_YOUNG = 0.02  # relative error of a pace from one mark, which falls with their number
_FLOOR = 0.0005  # least half-width of the band, relative
_PAUSE = 4.0  # times the usual length that make a block a pause without a name


@dataclass(frozen=True, slots=True)
class Eta:
    """Time left to the last step."""

    expected: timedelta
    low: timedelta
    high: timedelta


class _Timed:
    """Steps and seconds of the train phase so far, at up to 128 places of an attempt."""

    __slots__ = ("_seconds", "_steps", "_stride", "_waiting", "seconds", "steps")

    def __init__(self) -> None:
        self.steps = 0
        self.seconds = 0.0
        self._steps = array("q", (0,))
        self._seconds = array("d", (0.0,))
        self._stride = 1  # blocks from one mark to the next
        self._waiting = 0

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, steps: int, seconds: float) -> None:
        """Add a block."""
        self.steps += steps
        self.seconds += seconds
        self._waiting += 1
        if self._waiting < self._stride:
            return
        self._waiting = 0
        self._steps.append(self.steps)
        self._seconds.append(self.seconds)
        if len(self._steps) > _MARKS:
            del self._steps[1::2], self._seconds[1::2]
            self._stride *= 2

    def at(self, steps: float) -> float:
        """Seconds that the first so many steps took; between two marks evenly spread."""
        if steps >= self.steps:
            return self.seconds
        place = bisect_left(self._steps, steps)
        if place == 0:
            return 0.0
        known = place < len(self._steps)
        high, late = (self._steps[place], self._seconds[place]) if known else (self.steps, self.seconds)
        low, early = self._steps[place - 1], self._seconds[place - 1]
        return early + (late - early) * (steps - low) / (high - low)

    def mean(self, steps: float) -> float:
        """Mean seconds per step, over the newer half of the first so many steps."""
        return (self.at(steps) - self.at(steps * (1 - _NEWER))) / (steps * _NEWER)

    def missed(self) -> tuple[float, float]:
        """Of forecasts made earlier on what followed, the logarithm of true over forecast: root mean square, and drift.

        The drift is their mean where they agree on a direction, and 0 where they don't.
        """
        total, squares = 0.0, (_YOUNG / len(self._steps)) ** 2
        for cut in _CUTS:
            then = self.steps * cut
            forecast = self.mean(then) * (self.steps - then)
            came = self.seconds - self.at(then)
            if forecast > 0 and came > 0:
                missed = math.log(came / forecast) / len(_CUTS)
                total, squares = total + missed, squares + missed * missed * len(_CUTS)
        return math.sqrt(squares), total if total * total > _AGREE * squares else 0.0


class Pace:
    """Times the steps of one attempt. All moments are Unix seconds of receipt."""

    __slots__ = (
        "_at",
        "_block_seconds",
        "_block_steps",
        "_pauses",
        "_phase",
        "_step",
        "_timed",
        "_warm",
        "blocks",
        "earlier",
    )

    def __init__(self) -> None:
        self._pauses = Pauses()
        self.earlier: float | None = None  # median seconds per step of the attempt before, on as many GPUs
        self._begin()

    def _begin(self) -> None:
        self.blocks = Series()  # seconds per step, by step and running time
        self._timed = _Timed()
        self._at: float | None = None
        self._phase = ""
        self._step = -1
        self._warm = False  # the first step is behind
        self._block_steps = 0
        self._block_seconds = 0.0

    @property
    def steps(self) -> int:
        """Steps that were timed."""
        return self._timed.steps

    @property
    def seconds(self) -> float:
        """Seconds of the train phase that they took."""
        return self._timed.seconds

    def restart(self) -> None:
        """Begin another attempt or training."""
        if self.known():
            self.earlier = self.blocks.whole().quantile(0.5)
        self._pauses.restart()
        self._begin()

    def forget_earlier(self) -> None:
        """The job has another size now: what attempts before have taken says nothing."""
        self.earlier = None

    def observe(self, step: int, phase: str, at: float, passed: float, *, silence: float) -> None:
        """A report of this attempt, received `at`, at the running time `passed`.

        Args:
            silence: Seconds; over a longer gap nothing is timed, since what came in between is unknown.
        """
        before, then, phase_then = self._step, self._at, self._phase
        self._at, self._phase = max(at, then) if then is not None else at, phase
        self._step = step
        if step < before:
            self._block_steps, self._block_seconds = 0, 0.0
            return
        if then is None:
            return
        gap = max(at - then, 0.0)
        done = step - before if before >= 0 else 0
        paused = phase_then in ("eval", "checkpoint")
        if gap > silence:
            self._block_steps, self._block_seconds = 0, 0.0
            return
        if not self._warm:
            if paused and before >= 0:
                self._pauses.spend(phase_then, gap)
            self._warm = done > 0
            if self._warm:
                self._pauses.end(before)
                self._pauses.begin(step)
            return
        if paused:
            gap = self._leave_pause(phase_then, gap, done)
            if not done:
                return
        if done:
            self._pauses.end(before)
        self._block_seconds += gap
        self._block_steps += done
        if self._block_steps and self._block_seconds >= BLOCK_SECONDS and done:
            self._close_block(step, passed)

    def _leave_pause(self, kind: str, gap: float, done: int) -> float:
        """Give a gap that began in a pause to it, but for the time that the steps at its end took; that is returned."""
        usual = self._timed.mean(self.steps) if self.known() else 0.0
        stepping = min(done * usual, gap)
        self._pauses.spend(kind, gap - stepping)
        return stepping

    def _close_block(self, step: int, passed: float) -> None:
        steps, seconds = self._block_steps, self._block_seconds
        self._block_steps, self._block_seconds = 0, 0.0
        self.blocks.add(step, passed, seconds / steps)
        if self.known():
            usual = self._timed.mean(self.steps) * steps
            if seconds > _PAUSE * usual and seconds - usual > 2 * BLOCK_SECONDS:
                self._pauses.spend("", seconds - usual)
                self._pauses.end(step)
                seconds = usual
        self._timed.add(steps, seconds)

    def known(self) -> bool:
        """Whether enough was timed."""
        timed = self._timed
        return timed.steps >= WARM_UP_STEPS and timed.seconds >= WARM_UP_SECONDS and len(timed) > WARM_UP_BLOCKS

    def steps_per_second(self) -> float | None:
        """Median pace in the train phase over the newest hour; None during the warm-up."""
        newest = self.blocks.newest()
        if newest is None or not self.known():
            return None
        view = self.blocks.since_time(newest[1] - _RECENT)
        if view.count < WARM_UP_BLOCKS:
            view = self.blocks.whole()
        usual = view.quantile(0.5)
        return 1 / usual if usual > 0 else None

    def eta(self, step: int, total: int, *, since_step: float = 0.0) -> Eta | None:
        """Time left from now; None during the warm-up.

        Args:
            step: Steps done.
            total: Steps planned.
            since_step: Seconds since the newest step, which have already gone by.
        """
        if not self.known():
            return None
        timed, left = self._timed, max(total - step, 0)
        each = timed.mean(timed.steps)
        missed, drift = timed.missed()
        ahead = left / timed.steps
        half = _WIDTH * max(ahead / _FAR, 1.0) ** _FAR_POWER * missed + _FLOOR
        drift *= _DRIFT * (1 + 2 * min(ahead, _FAR))
        faster, slower = half + max(-drift, 0.0), half + max(drift, 0.0)
        pauses = self._pauses.to_come(step, total)
        gone = min(since_step, each) if left else 0.0

        def time(seconds: float, pausing: float) -> timedelta:
            return timedelta(seconds=min(max(left * seconds - gone, 0.0) + pausing, 3e9))

        return Eta(
            expected=time(each, pauses.expected),
            low=time(each * math.exp(-min(faster, 5.0)), pauses.low),
            high=time(each * math.exp(min(slower, 5.0)), pauses.high),
        )
