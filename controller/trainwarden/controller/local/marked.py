"""Find the processes of a command by a mark in their environment, when its keeper is no more there to name them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

__all__ = ["MARK", "end_marked"]

MARK = "TRAINWARDEN_COMMAND"
"""Variable with a value that only the processes of one command have: they inherit it, in whatever session they are."""

_WITHIN = 5.0  # seconds that a killed process may take to be gone
_LOOK = 0.02


def end_marked(mark: str) -> None:
    """SIGKILL for all that has the mark, until none is left; on other systems than Linux none are seen.

    A process with an environment of its own making is not found, nor one of another user.
    """
    until = time.monotonic() + _WITHIN
    while (found := _marked(mark)) and time.monotonic() < until:
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK)


def _marked(mark: str) -> list[int]:
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if wanted in entry.read_bytes().split(b"\0"):  # a zombie's is empty
                found.append(int(entry.parent.name))
    return found
