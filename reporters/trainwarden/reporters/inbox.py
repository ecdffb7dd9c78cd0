"""Where the training thread leaves its reports: one append, no lock, no wake-up.

The background thread empties it on its tick. Should that thread be starved, the inbox stays bounded: the oldest entry
makes room, and the newest value of every metric survives (see `backlog`).
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

from trainwarden.reporters.backlog import Backlog, Entry
from trainwarden.reporters.wire import Checkpoint, Phase

__all__ = ["Inbox", "Standing"]

ROOM = 10_000


@dataclass(slots=True)
class Standing:
    """Where the training stands: what a heartbeat says."""

    phase: Phase = "init"
    step: int = 0
    total: int | None = None
    epoch: float | None = None
    epochs: float | None = None
    checkpoint: Checkpoint | None = None
    reason: str | None = None


class Inbox:
    """Entries on their way from the training threads to the background thread."""

    def __init__(self, room: int = ROOM) -> None:
        self._room = room
        self._entries: deque[Entry] = deque()
        self._lock = threading.RLock()  # by the training thread only when there is no room; a signal may come between
        self._overflow: Backlog | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, entry: Entry) -> None:
        """Leave an entry; from any thread, without waiting."""
        self._entries.append(entry)
        if len(self._entries) > self._room:
            self._make_room()

    def empty_into(self, backlog: Backlog) -> None:
        """Move all that is there into the backlog, oldest first."""
        if not self._entries and self._overflow is None:
            return
        with self._lock:
            overflow, self._overflow = self._overflow, None
            entries = [self._entries.popleft() for _ in range(len(self._entries))]
        if overflow is not None:
            backlog.dropped += overflow.dropped
            while len(overflow):
                backlog.extend(overflow.take(len(overflow)))
        backlog.extend(entries)

    def _make_room(self) -> None:
        with self._lock:
            if self._overflow is None:
                self._overflow = Backlog(max_entries=max(1, self._room // 10))
            while len(self._entries) > self._room:
                self._overflow.add(self._entries.popleft())
