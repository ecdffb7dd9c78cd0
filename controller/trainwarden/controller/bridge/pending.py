"""Posts that wait for NATS: of each job the newest, and not more jobs than there is room for."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from trainwarden.controller.bridge.training import Post

__all__ = ["Key", "Pending", "Taken"]

Key = tuple[str, str]
"""Namespace and job."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A post to be sent; until it is done its job's later ones wait."""

    key: Key
    post: Post


class Pending:
    """Newer posts of a job stand in for older ones; what is not sent is counted."""

    def __init__(self, *, most: int = 10_000) -> None:
        self._most = most
        self._waiting: dict[Key, Post] = {}  # the job that waits longest first
        self._busy: set[Key] = set()
        self._changed = asyncio.Event()
        self.dropped = 0  # posts that were answered and never sent

    def __len__(self) -> int:
        return len(self._waiting) + len(self._busy)

    def offer(self, post: Post) -> None:
        """Keep a post; never waits."""
        key = (post.sender.namespace, post.sender.job)
        earlier = self._waiting.get(key)
        if earlier is not None:
            self.dropped += 1
            post = post.after(earlier)
        self._waiting[key] = post
        if len(self._waiting) > self._most:
            del self._waiting[next(iter(self._waiting))]
            self.dropped += 1
        self._changed.set()

    async def take(self) -> Taken:
        """Wait for a post of a job that nothing is being sent of."""
        while True:
            key = next((key for key in self._waiting if key not in self._busy), None)
            if key is not None:
                self._busy.add(key)
                return Taken(key, self._waiting.pop(key))
            self._changed.clear()
            await self._changed.wait()

    def newest(self, taken: Taken) -> Taken:
        """What was taken, or what has come since in its place."""
        later = self._waiting.pop(taken.key, None)
        if later is None:
            return taken
        self.dropped += 1
        return Taken(taken.key, later.after(taken.post))

    def done(self, key: Key) -> None:
        """Nothing is being sent of this job any more."""
        self._busy.discard(key)
        self._changed.set()

    async def settled(self) -> None:
        """Wait until nothing waits and nothing is being sent; for when no more posts come."""
        while self:
            await self._changed.wait()
            self._changed.clear()
