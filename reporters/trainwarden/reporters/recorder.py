"""Stands in place of NATS in a user's own tests: keeps what a training reports, and sends it commands."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING

from trainwarden.reporters import ambient
from trainwarden.reporters.wire import MAX_BYTES, Command, Reply, Report

if TYPE_CHECKING:
    from trainwarden.reporters.link import Link, Opening, Receive
    from trainwarden.reporters.worker import Worker

__all__ = ["Recorder"]

WAIT_SECONDS = 5.0
_FINAL = ("saved", "failed", "unsupported")


class Recorder:
    """Records what reporters send. Inside `with Recorder() as recorder:` every Reporter made reports to it.

    It goes the way to the wire and stops just short of it, so limits, refusals and heartbeats are the real ones.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._reports: list[Report] = []
        self._workers: list[Worker] = []
        self._unsent: list[tuple[Command, list[Reply]]] = []

    @property
    def reports(self) -> list[Report]:
        """All reports so far, in order; waits until those are in that were made before."""
        for worker in self._workers:
            worker.flush(WAIT_SECONDS)
        with self._changed:
            return list(self._reports)

    def metrics(self, name: str) -> list[tuple[int, float]]:
        """Step and value of one metric, in order, NaN and infinities included."""
        found: list[tuple[int, float]] = []
        for report in self.reports:
            if name in report.metrics:
                found.append((report.step, report.metrics[name]))
            elif name in report.nonfinite:
                found.append((report.step, float(report.nonfinite[name])))
        return found

    def send(self, command: Command, *, until_final: bool = False, timeout: float = WAIT_SECONDS) -> list[Reply]:
        """Send a command to the newest training and give the replies.

        The list goes on filling while the training acts. A command with an empty `run` goes to whichever training is
        the newest; sent before a training has declared what it supports, it waits until one does.

        Args:
            command: What is asked.
            until_final: Wait for the final reply, which only helps in a thread that is not the training's.
            timeout: Longest wait in seconds.
        """
        replies: list[Reply] = []
        with self._changed:
            worker = next((each for each in reversed(self._workers) if each.commands.declared()), None)
            if worker is None:
                self._unsent.append((command, replies))
        if worker is not None:
            self._ask(worker, command, replies)
        if until_final:
            self.wait(replies, timeout=timeout)
        return replies

    def wait(self, replies: list[Reply], *, timeout: float = WAIT_SECONDS) -> Reply | None:
        """Wait for the final reply among replies that `send` gave; None when it doesn't come in time."""
        until = time.monotonic() + timeout
        with self._changed:
            while True:
                for reply in replies:
                    if reply.state in _FINAL:
                        return reply
                left = until - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    return None

    def __enter__(self) -> Recorder:
        ambient.enter(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        ambient.leave(self)

    # What follows is for the reporter.

    def attach(self, worker: Worker) -> None:
        """Take in another reporter."""
        with self._changed:
            self._workers.append(worker)
        worker.commands.on_supports = lambda: self._declared(worker)

    def opening(self) -> Opening:
        """How the background thread reaches this recorder."""

        async def opening(receive: Receive) -> Link:
            return _RecorderLink(self._add)

        return opening

    def _declared(self, worker: Worker) -> None:
        with self._changed:
            unsent, self._unsent = self._unsent, []
        for command, replies in unsent:
            self._ask(worker, command, replies)

    def _ask(self, worker: Worker, command: Command, replies: list[Reply]) -> None:
        def reply(answer: Reply) -> None:
            with self._changed:
                replies.append(answer)
                self._changed.notify_all()

        if command.run in ("", worker.run):
            worker.commands.ask(replace(command, run=worker.run), reply)

    def _add(self, report: Report) -> None:
        with self._changed:
            self._reports.append(report)
            self._changed.notify_all()


class _RecorderLink:
    """A link whose other end is a list."""

    def __init__(self, add: Callable[[Report], None]) -> None:
        self._add = add

    @property
    def max_bytes(self) -> int:
        return MAX_BYTES

    async def publish(self, report: Report, data: bytes) -> None:
        self._add(report)

    async def publish_acked(self, report: Report, data: bytes) -> bool:
        self._add(report)
        return True

    async def reply(self, subject: str, data: bytes) -> None:
        """Replies reach a recorder without the link."""

    async def confirm(self) -> None:
        """A list has what was added."""

    def check(self) -> None:
        """A list is never lost."""

    async def close(self) -> None:
        """Nothing is open."""
