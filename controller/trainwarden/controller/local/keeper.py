"""Run one command so that nothing of it outlives whoever asked. Started as a file: `python -ISB keeper.py`.

The keeper is the command's parent and hears from us through a pipe. When that pipe closes, however we died, it ends the
command and all that came of it: SIGTERM, a grace, SIGKILL. On Linux orphans of the command become the keeper's own
children (PR_SET_CHILD_SUBREAPER), so that a process in a session of its own is found as well, and reaped.

Control lines in: `signal N`, `end SECONDS`. Lines out: `started PID`, `failed ERRNO`, `exited STATUS` (negative for a
signal), `gone`. Standard library only and no `-m`, so that no file of the command's folder is imported in its place.
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
_LOOK = 0.02  # seconds between two looks at what has still to end


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
        self._command = command
        self._pid = 0
        self._status: int | None = None  # of the command, once it has ended
        self._buffer = b""
        self._woken, wake = os.pipe()  # readable after a signal, SIGCHLD above all
        os.set_blocking(self._woken, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def run(self) -> None:
        try:
            child = subprocess.Popen(self._command, start_new_session=True)
        except OSError as error:
            self._say(f"failed {error.errno}")
            return
        self._pid = child.pid
        self._say(f"started {child.pid}")
        kill_at: float | None = None
        while not self._reap():
            if kill_at is not None and time.monotonic() >= kill_at:
                self._signal(signal.SIGKILL)
                kill_at = None
            kill_at = self._heed(kill_at)
        child.returncode = self._status
        self._say(f"exited {self._status}")
        self._end_rest(_LEFTOVER_GRACE)
        self._say("gone")

    def _reap(self) -> bool:
        """Take the status of all that has ended, orphans too; whether the command has."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self._pid:
                    self._status = os.waitstatus_to_exitcode(ended[1])
        return self._status is not None

    def _heed(self, kill_at: float | None) -> float | None:
        """Wait for a signal, for the time to kill, or for control lines, and take these; gives when to kill."""
        within = None if kill_at is None else max(0.0, kill_at - time.monotonic())
        watched = [self._woken] if self._control < 0 else [self._woken, self._control]
        ready, _, _ = select.select(watched, [], [], within)
        if self._woken in ready:
            os.read(self._woken, 4096)
        if self._control not in ready:
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
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, number)
        if number == signal.SIGKILL:
            for pid in _descendants():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)

    def _end_rest(self, grace: float) -> None:
        """End what the command has left behind."""
        until = time.monotonic() + grace
        asked = False
        while True:
            self._reap()
            left = _descendants()
            if not left:
                break
            number = signal.SIGTERM if not asked else signal.SIGKILL
            if not asked or time.monotonic() >= until:
                for pid in left:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, number)
                asked = True
            time.sleep(_LOOK)
        self._signal(signal.SIGKILL)  # the group, where descendants can't be seen

    def _say(self, line: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self._report, f"{line}\n".encode())


def main(arguments: list[str]) -> None:
    """`CONTROL_FD REPORT_FD COMMAND…`."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD):
        if (
            signal.getsignal(number) is not signal.SIG_IGN or number == signal.SIGCHLD
        ):  # nohup's is for the command, too
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
