"""What becomes of the reporters of a process when it forks, and when it ends.

A forked child (a DataLoader worker, `os.fork`) has the parent's objects, but neither its background thread nor a right
to its connection: every reporter in it falls silent. At exit all reporters together get one bounded time to send the
rest.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from typing import Protocol

__all__ = ["EXIT_SECONDS", "importing", "watch"]

EXIT_SECONDS = 2.0
IMPORT_SECONDS = 10.0

importing = threading.Lock()
"""Held while the background thread imports: a fork in the middle would leave its import locks held in the child."""


class Watched(Protocol):
    """What has a background thread of this process."""

    def abandon(self) -> None: ...
    def stop(self, linger: float) -> None: ...
    def close(self, timeout: float) -> bool: ...


_watched: weakref.WeakSet[Watched] = weakref.WeakSet()
_held_by_fork = False


def watch(one: Watched) -> None:
    """Silence it in forked children, and close it at exit, for as long as it lives."""
    _watched.add(one)


def _before() -> None:
    global _held_by_fork  # the hooks of os.register_at_fork share nothing else
    _held_by_fork = importing.acquire(timeout=IMPORT_SECONDS)


def _after_in_parent() -> None:
    if _held_by_fork:
        importing.release()


def _after_in_child() -> None:
    global importing, _watched
    importing = threading.Lock()
    left, _watched = list(_watched), weakref.WeakSet()
    for one in left:
        one.abandon()


def _at_exit() -> None:
    """Give all of them together EXIT_SECONDS, so that ten reporters hold an exit up no longer than one."""
    deadline = time.monotonic() + EXIT_SECONDS
    left = list(_watched)
    for one in left:
        one.stop(EXIT_SECONDS)
    for one in left:
        one.close(max(0.0, deadline - time.monotonic()))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
atexit.register(_at_exit)
