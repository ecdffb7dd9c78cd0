"""Reports that wait to be sent. Bounded: the oldest gives way, but the newest value of every metric survives. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from trainwarden.reporters.wire import Phase

__all__ = ["Backlog", "Entry"]

MAX_ENTRIES = 10_000
MAX_VALUES = 200_000
MAX_KEPT = 1_000


class Entry(NamedTuple):
    """One call of the training, as it was at that moment."""

    ts: float  # Unix seconds
    phase: Phase
    step: int
    total: int | None
    epoch: float | None
    epochs: float | None
    metrics: Mapping[str, float]  # NaN and infinities included
    acked: bool = False  # wants the stream's ack: a checkpoint, or the end


class Backlog:
    """A queue of entries with room for so many entries and values."""

    def __init__(self, max_entries: int = MAX_ENTRIES, max_values: int = MAX_VALUES, max_kept: int = MAX_KEPT) -> None:
        self._max_entries, self._max_values, self._max_kept = max_entries, max_values, max_kept
        self._queue: deque[tuple[int, Entry]] = deque()
        self._values = 0
        self._order = 0
        self._newest: dict[str, int] = {}  # metric to the order of the newest entry that carries it
        self._kept: dict[int, Entry] = {}  # of dropped entries: what no later entry carries
        self.dropped = 0
        """Entries that were left out, wholly or but for the metrics that no later entry carries."""

    def __len__(self) -> int:
        return len(self._queue) + len(self._kept)

    def add(self, entry: Entry) -> None:
        """Append the newest entry; the oldest gives way when there is no room."""
        self._order += 1
        self._queue.append((self._order, entry))
        self._values += len(entry.metrics)
        for name in entry.metrics:
            self._newest[name] = self._order
        while len(self._queue) > self._max_entries or (self._values > self._max_values and len(self._queue) > 1):
            self._drop_oldest()

    def extend(self, entries: Iterable[Entry]) -> None:
        """Append entries, oldest first."""
        for entry in entries:
            self.add(entry)

    def take(self, most: int) -> list[Entry]:
        """Remove and give the oldest entries, oldest first: at most so many, and none beyond one that wants an ack."""
        taken: list[Entry] = []
        while self._kept and len(taken) < most:
            order = next(iter(self._kept))
            entry = self._kept.pop(order)
            current = self._current(order, entry)
            if current or entry.acked:
                taken.append(entry._replace(metrics=current))
                self._forget(order, current)
            if entry.acked:
                return taken
        while self._queue and len(taken) < most:
            order, entry = self._queue.popleft()
            self._values -= len(entry.metrics)
            self._forget(order, entry.metrics)
            taken.append(entry)
            if entry.acked:
                break
        return taken

    def _drop_oldest(self) -> None:
        order, entry = self._queue.popleft()
        self._values -= len(entry.metrics)
        self.dropped += 1
        current = self._current(order, entry)
        if current or entry.acked:
            self._kept[order] = entry._replace(metrics=current)
        if len(self._kept) > self._max_kept:
            self._tidy()

    def _tidy(self) -> None:
        """Leave out of the kept ones what newer entries carry by now, then the oldest while there are too many."""
        kept = ((order, entry, self._current(order, entry)) for order, entry in self._kept.items())
        self._kept = {order: entry._replace(metrics=now) for order, entry, now in kept if now or entry.acked}
        while len(self._kept) > self._max_kept:
            order = next(iter(self._kept))
            self._forget(order, self._kept.pop(order).metrics)

    def _current(self, order: int, entry: Entry) -> Mapping[str, float]:
        return {name: value for name, value in entry.metrics.items() if self._newest.get(name) == order}

    def _forget(self, order: int, names: Iterable[str]) -> None:
        for name in names:
            if self._newest.get(name) == order:
                del self._newest[name]
