"""The background of one reporter: its thread, what it shares with the training, and its slow chores."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trainwarden.reporters import fork
from trainwarden.reporters.backlog import Entry
from trainwarden.reporters.commands import Commands
from trainwarden.reporters.complaints import Complaints, logger
from trainwarden.reporters.identity import Identity
from trainwarden.reporters.inbox import Inbox, Standing
from trainwarden.reporters.wire import Checkpoint, Phase

if TYPE_CHECKING:
    from trainwarden.reporters.link import Opening

__all__ = ["Counts", "Worker"]

LINGER_SECONDS = 30.0  # how long the thread of a reporter that was dropped without close may go on sending


class Counts:
    """What became of the reports of one run, for people."""

    __slots__ = ("connects", "dropped", "sent", "trimmed")

    def __init__(self) -> None:
        self.sent = 0  # reports that the server has
        self.dropped = 0  # reports that never will be sent
        self.trimmed = 0  # metrics left out of a report that would have been too large
        self.connects = 0


class Worker:
    """The background thread and what it shares. Knows nothing of the Reporter, which may be dropped at any time."""

    def __init__(self, run: str, identity: Identity, opening: Callable[[], Opening], heartbeat_seconds: float) -> None:
        self.run, self.identity, self.heartbeat_seconds = run, identity, heartbeat_seconds
        self.opening = opening
        """Called in the background thread, so that what it imports costs the training nothing."""
        self.inbox, self.standing, self.counts = Inbox(), Standing(), Counts()
        self.complaints = Complaints()
        self.commands = Commands(run, self)
        self.alive = True
        """Whether reports are taken; False once stopped, and in a forked child."""
        self.deadline: float | None = None
        """Monotonic time at which the thread gives up sending; None while nobody asked it to end."""
        self.wake: Callable[[], None] = _nothing
        self._done = threading.Event()
        self._chores: deque[Callable[[], None]] = deque()
        self._chores_lock = threading.RLock()
        self._chores_running = False
        self._announcement: object = None
        self._flushes: deque[threading.Event] = deque()

    # For the training thread.

    def start(self) -> None:
        """Start the background thread."""
        threading.Thread(target=self._body, name="trainwarden-reporter", daemon=True).start()
        fork.watch(self)

    def put(self, *, acked: bool = False) -> None:
        """Report where the training stands now, without metrics."""
        now = self.standing
        self.inbox.put(Entry(time.time(), now.phase, now.step, now.total, now.epoch, now.epochs, {}, acked))

    def set_phase(self, phase: Phase) -> None:
        """Say that another phase begins."""
        if self.standing.phase != phase:
            self.standing.phase = phase
            self.put()

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Be in phase `checkpoint` while the training holds."""
        before = self.standing.phase
        self.set_phase("checkpoint")
        try:
            yield
        finally:
            if self.alive:
                self.set_phase(before)

    def prove(self, path: str, step: int, done: Callable[[Checkpoint | str], None]) -> None:
        """Measure a checkpoint for a command; `done` is called in the background with the proof or what is wrong."""
        where = os.path.abspath(path)  # noqa: PTH100 - as the caller's working directory is now, without resolving links

        def chore() -> None:
            proof = self._measure(where, step)
            if isinstance(proof, Checkpoint):
                self._publish(proof)
            done(proof)

        self._run_chore(chore)

    def announce(self, path: str, step: int) -> None:
        """Measure and publish a checkpoint, unless a newer one is announced before its turn comes."""
        where = os.path.abspath(path)  # noqa: PTH100
        mine = self._announcement = object()

        def chore() -> None:
            if self._announcement is not mine:
                return
            proof = self._measure(where, step)
            if isinstance(proof, Checkpoint):
                self._publish(proof)
            else:
                self.complaints.add("checkpoint", f"checkpoint of step {step} is not announced: {proof}")

        self._run_chore(chore)

    def stop(self, linger: float = LINGER_SECONDS) -> None:
        """Take no more reports, and let the thread end once all is sent or `linger` seconds are over. Doesn't wait."""
        self.alive = False
        until = time.monotonic() + linger
        self.deadline = until if self.deadline is None else min(self.deadline, until)

    def close(self, timeout: float) -> bool:
        """Stop, and wait at most `timeout` seconds for the rest to be sent; whether the thread has ended."""
        self.stop(timeout)
        self.wake()
        return self._done.wait(max(0.0, timeout))

    def flush(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds until what was reported so far has been sent; whether it has."""
        if self._done.is_set():
            return not len(self.inbox)
        sent = threading.Event()
        self._flushes.append(sent)
        self.wake()
        return sent.wait(max(0.0, timeout))

    # For the background thread.

    def idle(self) -> bool:
        """Whether no chore and no proof is still to come."""
        return not self._chores_running and self.commands.settled()

    def waiting(self) -> int:
        """How many wait for everything to be sent; none count while a checkpoint is being measured."""
        return len(self._flushes) if self.idle() else 0

    def flushed(self, waiting: int) -> None:
        """Everything is sent: let so many go on who wait for it, those who have waited longest."""
        for _ in range(waiting):
            self._flushes.popleft().set()

    def abandon(self) -> None:
        """Fall silent in a forked child: the thread is not here, and its locks may be held for ever."""
        self.alive = False
        self.wake = _nothing
        self._done = threading.Event()
        self._done.set()
        self._chores_lock = threading.RLock()
        self._chores = deque()
        self._chores_running = True  # nothing is measured in a child
        self.commands.abandon()

    def _body(self) -> None:
        try:
            with fork.importing:
                from trainwarden.reporters.publisher import publish  # asyncio and nats take 100 ms

                opening = self.opening()
            publish(self, opening)
        except BaseException as error:
            logger.warning("the reporter's background thread ended by an error; training goes on", exc_info=error)
        finally:
            self.alive = False
            self.wake = _nothing
            self.commands.close()
            self._done.set()
            self.flushed(len(self._flushes))

    def _measure(self, path: str, step: int) -> Checkpoint | str:
        from trainwarden.reporters.proof import ProofError, measure

        try:
            found = measure(path)
        except ProofError as error:
            return str(error)
        except Exception as error:
            return f"measuring {path} failed: {type(error).__name__}: {error}"
        return Checkpoint(step=step, path=path, bytes=found.bytes, digest=found.digest)

    def _publish(self, proof: Checkpoint) -> None:
        newest = self.standing.checkpoint
        if newest is None or proof.step >= newest.step:
            self.standing.checkpoint = proof
            self.put(acked=True)

    def _run_chore(self, chore: Callable[[], None]) -> None:
        with self._chores_lock:
            self._chores.append(chore)
            if self._chores_running:
                return
            self._chores_running = True
        try:
            threading.Thread(target=self._do_chores, name="trainwarden-proof", daemon=True).start()
        except RuntimeError:  # the interpreter is shutting down: no threads any more, and no time to measure
            self._chores_running = False

    def _do_chores(self) -> None:
        while True:
            with self._chores_lock:
                if not self._chores:
                    self._chores_running = False
                    return
                chore = self._chores.popleft()
            try:
                chore()
            except Exception as error:
                self.complaints.error("measuring a checkpoint", error)


def _nothing() -> None:
    """Wake nobody: there is no thread."""
