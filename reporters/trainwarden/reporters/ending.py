"""Tell that a training failed when nobody else does: frameworks without a hook for exceptions.

A training whose end was never announced is reported `failed` when an exception ends the process, when the process ends
in another way, or when the next training begins.
"""

from __future__ import annotations

import atexit
import sys
import weakref
from types import TracebackType
from typing import Protocol

__all__ = ["Ending", "watch"]


class Ending(Protocol):
    """A training that can be ended from outside."""

    def end_failed(self, reason: str) -> None: ...


_open: weakref.WeakSet[Ending] = weakref.WeakSet()
_previous = sys.excepthook
_watching = False


def watch(training: Ending) -> None:
    """End this training as failed if the process ends first; `end_failed` must not raise."""
    global _watching, _previous  # the interpreter has one hook
    _open.add(training)
    if not _watching:
        _watching = True
        _previous, sys.excepthook = sys.excepthook, _on_exception
        atexit.register(_at_exit)


def forget(training: Ending) -> None:
    """This training's end has been told."""
    _open.discard(training)


def _fail_all(reason: str) -> None:
    for training in list(_open):
        _open.discard(training)
        training.end_failed(reason)


def _on_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    _fail_all(f"{kind.__name__}: {error}")
    _previous(kind, error, trace)


def _at_exit() -> None:
    _fail_all("the process ended before the training did")
