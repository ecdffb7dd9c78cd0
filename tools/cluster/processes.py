"""Programs that run in the background: each with its log, told apart from a stranger with the same process id."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["ClusterError", "Processes", "answers", "free_port", "wait_until"]


_CHILDREN: list[subprocess.Popen[bytes]] = []
"""All that this process has started: kept, since who stops them may be another object, or another process."""


class ClusterError(Exception):
    """The cluster can't be started; the text says what to look at."""


@dataclass(frozen=True, slots=True)
class _Known:
    pid: int
    born: str
    command: list[str]
    environment: dict[str, str]


class Processes:
    """Programs of one cluster, recorded in a folder so that another process can stop them.

    Args:
        folder: For `<name>.log` and `processes.json`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._record = folder / "processes.json"
        self._known: dict[str, _Known] = {}
        self._mine: dict[str, subprocess.Popen[bytes]] = {}
        if self._record.exists():
            self._known = {name: _Known(**known) for name, known in json.loads(self._record.read_text()).items()}

    def start(self, name: str, command: Sequence[str | Path], *, environment: Mapping[str, str] | None = None) -> int:
        """Start a program; gives its process id."""
        return self._start(name, [str(part) for part in command], dict(environment or {}))

    def restart(self, name: str) -> int:
        """Start a program again, as it was started before, however it ended; gives its process id."""
        known = self._known[name]
        self.kill(name)
        return self._start(name, known.command, known.environment)

    def _start(self, name: str, command: list[str], environment: dict[str, str]) -> int:
        if name in self._mine:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._mine[name].wait(10)  # a zombie can't be reaped until its last thread is gone
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        self._mine[name] = process
        _CHILDREN.append(process)
        self._known[name] = _Known(process.pid, _born(process.pid), command, environment)
        self._save()
        return process.pid

    def pid(self, name: str) -> int:
        """Process id of a program that was started."""
        return self._known[name].pid

    def command(self, name: str) -> list[str]:
        """How a program was started; empty when it was not."""
        return self._known[name].command if name in self._known else []

    def environment(self, name: str) -> dict[str, str]:
        """What a program that was started has in its environment beside ours."""
        return dict(self._known[name].environment)

    def alive(self, name: str) -> bool:
        """Whether it still runs."""
        if name not in self._known:
            return False
        mine = self._mine.get(name)
        if mine is not None and mine.poll() is not None:
            return False
        known = self._known[name]
        return bool(known.born) and _born(known.pid) == known.born

    @property
    def any_alive(self) -> bool:
        """Whether any of them still runs."""
        return any(map(self.alive, self._known))

    def reap(self) -> None:
        """Take the end of those that we have started and somebody has stopped."""
        for process in self._mine.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1)

    def names(self) -> list[str]:
        """All that were started, in order."""
        return list(self._known)

    def kill(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal and, when it is SIGKILL or SIGTERM, wait for the end."""
        if not self.alive(name):
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid(name), how)
        if how in (signal.SIGKILL, signal.SIGTERM):
            self._wait(name, 30.0)

    def stop(self, name: str, *, within: float = 10.0) -> None:
        """End a program and its group: first asked, then killed."""
        if self.alive(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid(name), signal.SIGTERM)
            self._wait(name, within)
        if name in self._known:
            if self.alive(name):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid(name), signal.SIGKILL)
                self._wait(name, 10.0)
            del self._known[name]
            self._save()

    def tail(self, name: str, lines: int = 15) -> str:
        """The end of its log."""
        try:
            return "\n".join((self.folder / f"{name}.log").read_text(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return ""

    def need(self, name: str, ready: Callable[[], bool], what: str, *, within: float = 60.0) -> None:
        """Wait for a program to be of use.

        Raises:
            ClusterError: It ended, or it takes too long; with the end of its log.
        """
        until = time.monotonic() + within
        while not ready():
            if not self.alive(name):
                raise ClusterError(f"{name} has ended before {what}; {self.folder / name}.log ends:\n{self.tail(name)}")
            if time.monotonic() > until:
                raise ClusterError(f"{name}: not {what} within {within:g} s; its log ends:\n{self.tail(name)}")
            time.sleep(0.1)

    def _wait(self, name: str, within: float) -> None:
        until = time.monotonic() + within
        while self.alive(name) and time.monotonic() < until:
            time.sleep(0.05)

    def _save(self) -> None:
        self._record.write_text(json.dumps({name: asdict(known) for name, known in self._known.items()}))


def wait_until(ready: Callable[[], bool], what: str, *, within: float = 60.0) -> None:
    """Wait for something of the cluster.

    Raises:
        ClusterError: It takes too long.
    """
    until = time.monotonic() + within
    while not ready():
        if time.monotonic() > until:
            raise ClusterError(f"not {what} within {within:g} s")
        time.sleep(0.2)


def free_port() -> int:
    """A TCP port that nobody has on loopback now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def answers(port: int, address: str = "127.0.0.1") -> bool:
    """Whether somebody listens there."""
    try:
        with socket.create_connection((address, port), timeout=1):
            return True
    except OSError:
        return False


def _born(pid: int) -> str:
    """When a process was started, as the kernel counts; empty when it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]
