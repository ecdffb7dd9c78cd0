"""Tell that a training failed when nobody else does: for frameworks without a hook for exceptions.

A training whose end was never told is failed when an exception ends the process, when the process ends in another way,
or when what ran it has been thrown away.
"""

from __future__ import annotations

import atexit
import sys
import weakref
from collections.abc import Callable
from types import TracebackType

__all__ = ["Watch"]

_open: set[Watch] = set()
_previous = sys.excepthook
_watching = False


class Watch:
    """Calls `fail` with a reason, once, when the training ends and `done` was not called before.

    Args:
        owner: What runs the training; `fail` must not refer to it, so that it can be thrown away.
        fail: Reports the failure; must not raise.
    """

    def __init__(self, owner: object, fail: Callable[[str], None]) -> None:
        global _watching, _previous
        self._fail = fail
        self._thrown_away = weakref.finalize(owner, self.end, "the training was given up")
        self._thrown_away.atexit = False  # it would come after the reporter has closed
        _open.add(self)
        if not _watching:
            _watching = True
            _previous, sys.excepthook = sys.excepthook, _on_exception
            atexit.register(_at_exit)

    def end(self, reason: str) -> None:
        """The training has failed."""
        if self in _open:
            self.done()
            self._fail(reason)

    def done(self) -> None:
        """The training's end has been told."""
        _open.discard(self)
        self._thrown_away.detach()


def _fail_all(reason: str) -> None:
    for watch in list(_open):
        watch.end(reason)


def _on_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    try:
        reason = f"{kind.__name__}: {error}"
    except Exception:  # the text of someone else's exception may raise
        reason = kind.__name__
    _fail_all(reason)
    _previous(kind, error, trace)


def _at_exit() -> None:
    _fail_all("the process ended before the training did")
