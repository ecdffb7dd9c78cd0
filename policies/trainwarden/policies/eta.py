"""Pace of an attempt and the time left to its last step.

Time left = steps left * (median seconds per step in `train` + seconds of other phases per step so far). The band takes
the 10 % and 90 % quantiles of the seconds per step in place of the median. Only steps of this attempt count, so that a
resumed training is right from its first reports on.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from trainwarden.policies.series import Series

__all__ = ["BLOCK_SECONDS", "WARM_UP_BLOCKS", "WARM_UP_SECONDS", "WARM_UP_STEPS", "Eta", "Pace"]

BLOCK_SECONDS = 1.0
"""Steps are timed in blocks of at least so many seconds of the train phase."""

WARM_UP_BLOCKS = 3
WARM_UP_SECONDS = 5.0
WARM_UP_STEPS = 10
"""Blocks, seconds and steps in `train` before a pace is known; the first step of an attempt is never one of them."""

_RECENT = 3600.0  # seconds that the pace is taken from, or the newest blocks where these are more
_MARGIN = 0.03  # least half-width of the band, relative


@dataclass(frozen=True, slots=True)
class Eta:
    """Time left to the last step."""

    expected: timedelta
    low: timedelta
    high: timedelta


class Pace:
    """Times the steps of one attempt. All moments are Unix seconds of receipt."""

    __slots__ = (
        "_at",
        "_block_seconds",
        "_block_steps",
        "_other",
        "_phase",
        "_step",
        "_timed",
        "blocks",
        "seconds",
        "steps",
    )

    def __init__(self) -> None:
        self.blocks = Series()  # seconds per step, by step and running time
        self.restart()

    def restart(self) -> None:
        """Begin another attempt or training."""
        self.blocks = Series()
        self.steps = 0  # timed ones
        self.seconds = 0.0  # of the train phase, for them
        self._other = 0.0  # seconds of other phases since the first timed step
        self._at: float | None = None
        self._phase = ""
        self._step = -1
        self._timed = False  # the first step is behind
        self._block_steps = 0
        self._block_seconds = 0.0

    def observe(self, step: int, phase: str, at: float, passed: float, *, silence: float) -> None:
        """A report of this attempt, received `at`, at the running time `passed`.

        Args:
            silence: Seconds; over a longer gap nothing is timed, since what came in between is unknown.
        """
        before, then, phase_then = self._step, self._at, self._phase
        self._at, self._phase = max(at, then) if then is not None else at, phase
        if step < before:
            self._step = step
            self._block_steps, self._block_seconds = 0, 0.0
            return
        self._step = step
        if then is None:
            return
        gap = max(at - then, 0.0)
        done = step - before if before >= 0 else 0
        if not self._timed:
            self._timed = done > 0
            return
        if gap > silence:
            self._block_steps, self._block_seconds = 0, 0.0
            return
        if phase_then in ("eval", "checkpoint") and not done:
            self._other += gap
            return
        self._block_seconds += gap
        self._block_steps += done
        if self._block_steps and self._block_seconds >= BLOCK_SECONDS and done:
            self.steps += self._block_steps
            self.seconds += self._block_seconds
            self.blocks.add(step, passed, self._block_seconds / self._block_steps)
            self._block_steps, self._block_seconds = 0, 0.0

    def known(self) -> bool:
        """Whether enough was timed."""
        return self.steps >= WARM_UP_STEPS and self.seconds >= WARM_UP_SECONDS and self.blocks.count >= WARM_UP_BLOCKS

    def seconds_per_step(self) -> tuple[float, float, float] | None:
        """Median, 10 % and 90 % quantile of the newest blocks in the train phase; None during the warm-up."""
        newest = self.blocks.newest()
        if newest is None or not self.known():
            return None
        view = self.blocks.since_time(newest[1] - _RECENT)
        if view.count < WARM_UP_BLOCKS:
            view = self.blocks.whole()
        middle = view.quantile(0.5)
        return middle, min(view.quantile(0.1), middle), max(view.quantile(0.9), middle)

    def steps_per_second(self) -> float | None:
        """Pace in the train phase; None during the warm-up."""
        pace = self.seconds_per_step()
        return 1 / pace[0] if pace is not None and pace[0] > 0 else None

    def eta(self, step: int, total: int, *, since_step: float = 0.0) -> Eta | None:
        """Time left from now; None during the warm-up.

        Args:
            step: Steps done.
            total: Steps planned.
            since_step: Seconds since the newest step, which have already gone by.
        """
        pace = self.seconds_per_step()
        if pace is None:
            return None
        left = max(total - step, 0)
        other = self._other / self.steps
        middle, low, high = pace
        low, high = min(low, middle * (1 - _MARGIN)), max(high, middle * (1 + _MARGIN))
        gone = min(since_step, middle) if left else 0.0

        def time(seconds: float) -> timedelta:
            return timedelta(seconds=min(max(left * (seconds + other) - gone, 0.0), 3e9))

        return Eta(expected=time(middle), low=time(low), high=time(high))
