"""When a step without metrics is worth a report: a loop of ten thousand steps a second need not tell of each."""

from __future__ import annotations

import time

__all__ = ["Progress"]

SECONDS = 0.2


class Progress:
    """Remembers the last step that was told."""

    __slots__ = ("_next", "_told")

    def __init__(self) -> None:
        self._next = 0.0
        self._told = -1

    def due(self, step: int) -> bool:
        """Whether the step should be told although nothing was measured at it; it counts as told then."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + SECONDS
        self._told = step
        return True

    def told(self, step: int) -> None:
        """The step was told, with metrics."""
        self._told = step

    def owed(self, step: int) -> bool:
        """Whether the step, the last one, has not been told."""
        return step != self._told
