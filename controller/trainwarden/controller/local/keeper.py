"""Run one command so that nothing of it outlives whoever asked: `python -m trainwarden.controller.local.keeper`.

The keeper is the command's parent and hears from us through a pipe. When that pipe closes, however we died, it ends the
command and all that came of it: SIGTERM, a grace, SIGKILL. On Linux orphans of the command become the keeper's own
children (PR_SET_CHILD_SUBREAPER), so that a process in a session of its own is found as well.

Control lines in: `signal N`, `end SECONDS`. Lines out: `started PID`, `failed ERRNO`, `exited STATUS` (as of waitpid),
`gone`. Standard library only, since it starts with every run.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

__all__ = ["main"]

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_ORPHAN_GRACE = 10.0  # seconds between SIGTERM and SIGKILL when whoever asked has died
_LEFTOVER_GRACE = 2.0  # the same for what the command leaves behind


def _descendants() -> set[int]:
    """All living processes below this one; on other systems than Linux none are seen."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = entry.read_text(errors="replace").rpartition(")")[2].split()
            if fields[0] != "Z":
                parents[int(entry.parent.name)] = int(fields[1])
    found: set[int] = set()
    level = {os.getpid()}
    while level:
        level = {pid for pid, parent in parents.items() if parent in level} - found
        found |= level
    return found


class _Keeper:
    def __init__(self, control: int, report: int, command: list[str]) -> None:
        self._control, self._report = control, report
        self._child: subprocess.Popen[bytes] | None = None
        self._command = command
        self._buffer = b""

    def run(self) -> None:
        try:
            self._child = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, start_new_session=True)
        except OSError as error:
            self._say(f"failed {error.errno}")
            return
        self._say(f"started {self._child.pid}")
        kill_at: float | None = None
        while self._child.poll() is None:
            if kill_at is not None and time.monotonic() >= kill_at:
                self._signal(signal.SIGKILL)
                kill_at = None
            kill_at = self._heed(kill_at)
        self._say(f"exited {self._child.returncode}")
        self._end_rest(_LEFTOVER_GRACE)
        self._say("gone")

    def _heed(self, kill_at: float | None) -> float | None:
        """Take one control line, or wait a moment; gives when to kill."""
        if self._control < 0:
            time.sleep(0.02)
            return kill_at
        ready, _, _ = select.select([self._control], [], [], 0.02)
        if not ready:
            return kill_at
        data = os.read(self._control, 4096)
        if not data:  # whoever asked is gone
            os.close(self._control)
            self._control = -1
            self._signal(signal.SIGTERM)
            return time.monotonic() + _ORPHAN_GRACE
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            word, _, value = line.decode().partition(" ")
            if word == "signal":
                self._signal(int(value))
            elif word == "end":
                self._signal(signal.SIGTERM)
                kill_at = time.monotonic() + float(value)
        return kill_at

    def _signal(self, number: int) -> None:
        assert self._child is not None  # noqa: S101 - called while it runs
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, number)
        if number == signal.SIGKILL:
            for pid in _descendants():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)

    def _end_rest(self, grace: float) -> None:
        """End what the command has left behind."""
        until = time.monotonic() + grace
        asked = False
        while True:
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            left = _descendants()
            if not left:
                break
            number = signal.SIGTERM if not asked else signal.SIGKILL
            if not asked or time.monotonic() >= until:
                for pid in left:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, number)
                asked = True
            time.sleep(0.02)
        self._signal(signal.SIGKILL)  # the group, where descendants can't be seen

    def _say(self, line: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self._report, f"{line}\n".encode())


def main(arguments: list[str]) -> None:
    """`CONTROL_FD REPORT_FD COMMAND…`."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, lambda *_: None)  # a handler, not SIG_IGN, which the command would inherit
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    control, report = int(arguments[0]), int(arguments[1])
    os.set_inheritable(control, False)
    os.set_inheritable(report, False)
    _Keeper(control, report, arguments[2:]).run()


if __name__ == "__main__":
    main(sys.argv[1:])
