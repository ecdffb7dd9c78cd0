"""Which runs are to be written next, when many are: the urgent ones, then who has waited longest."""

from __future__ import annotations

from trainwarden.controller.cluster.reflector import Key

__all__ = ["DueRuns"]


class DueRuns:
    """Runs that wait to be written. Moments are seconds of one clock of the caller's choice."""

    def __init__(self) -> None:
        self._urgent: dict[Key, None] = {}
        self._at: dict[Key, float] = {}

    def add(self, key: Key, at: float) -> None:
        """Have a run written from a moment on, or earlier if it is to be already."""
        self._at[key] = min(self._at.get(key, at), at)

    def urge(self, key: Key) -> None:
        """Have a run written before all that are not urgent."""
        self._urgent[key] = None

    def take(self, now: float, most: int) -> list[Key]:
        """The next ones, which then wait no more: all urgent ones, and others up to so many in all."""
        keys, urgent = list(self._urgent), self._urgent
        self._urgent = {}
        waiting = sorted((at, key) for key, at in self._at.items() if at <= now and key not in urgent)
        keys += [key for _, key in waiting[: max(most - len(keys), 0)]]
        for key in keys:
            self._at.pop(key, None)
        return keys
