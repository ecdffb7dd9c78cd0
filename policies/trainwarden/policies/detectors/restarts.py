"""How many restarts in a row have brought a training no further: the mark of a storm that burns GPUs for nothing.

Net progress is the furthest step that any attempt has reached, passed by a margin. An attempt that resumes, walks the
same way again and falls at the same place has made none, however busy it looked. Source: own.
"""

from __future__ import annotations

__all__ = ["LEAST_STEPS", "SHARE", "RestartWatch"]

LEAST_STEPS = 10
"""Steps by which an attempt must pass all before it to count as progress, at least."""

SHARE = 0.001
"""Share of the furthest step by which it must pass it."""


class RestartWatch:
    """Counts restarts since net progress was last made, told by the platform, by new trainings, or by both."""

    __slots__ = ("_furthest", "_told", "_told_then", "_trainings")

    def __init__(self, restarts: int = 0) -> None:
        """Begin with the restarts that were told of before."""
        self._furthest = 0  # step that was reached before the attempt that runs, or by it with a margin
        self._told = restarts  # restarts that the platform has told of
        self._told_then = restarts  # of them, those before the newest progress
        self._trainings = -1  # trainings begun since; the first is no restart

    def learn(self, restarts: int) -> None:
        """The platform tells how often it has restarted the job."""
        self._told = max(restarts, self._told)

    def start(self, *, after_done: bool) -> None:
        """A training begins; after one that was done it is a sequel that starts afresh, not a restart."""
        if after_done:
            self._furthest, self._told_then, self._trainings = 0, self._told, 0
        else:
            self._trainings += 1

    def reach(self, step: int) -> None:
        """A step was reached."""
        if self.fruitless == 0:
            self._furthest = max(self._furthest, step)
        elif step >= self._furthest + max(LEAST_STEPS, SHARE * self._furthest):
            self._furthest, self._told_then, self._trainings = step, self._told, 0

    @property
    def fruitless(self) -> int:
        """Restarts in a row without net progress."""
        return max(self._trainings, self._told - self._told_then, 0)
