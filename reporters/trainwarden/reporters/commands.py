"""What trainwarden asks of this training, and what became of it: accepted at once, done at a step border, remembered.

The background thread receives; the training looks at `pending()` at each step border, saves, and calls `saved` or
`failed`. A command that is asked again is answered, not done again; all who asked get the final reply.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Protocol

from trainwarden.reporters.complaints import logger
from trainwarden.reporters.wire import Checkpoint, Command, Operation, Reply, WireError, decode_command

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Commands", "HoldEnd", "ReplyTo"]

_PAGE = "docs/reporter.md, Take commands"
MAX_REMEMBERED = 64
MAX_REASON = 2000
SLICE_SECONDS = 0.1  # how long a hold waits before Python may run a signal handler and `should_end` is asked again

ReplyTo = Callable[[Reply], None]
"""Sends one reply to one who asked; from any thread, without waiting, and without asking for commands again."""

HoldEnd = Literal["unheld", "released", "expired", "ended", "failed", "closed"]
"""Why `hold` came back: nothing to hold, `release`, `holdFor`, `should_end`, a failed command, a closed reporter."""


class Background(Protocol):
    """What commands need of the reporter's background: to measure a checkpoint, and to say that the training holds."""

    def prove(self, path: str, step: int, done: Callable[[Checkpoint | str], None]) -> None: ...
    def holding(self) -> AbstractContextManager[None]: ...


@dataclass(eq=False, slots=True)
class _Asked:
    """One command and all that is known of it."""

    command: Command
    received: float  # monotonic seconds
    replies: list[ReplyTo] = field(default_factory=list)  # of all who asked and have no final reply
    final: Reply | None = None
    overdue: bool = False
    holds: bool = False  # for itself, or for one that waited before it
    hold_end: HoldEnd | None = None
    ended: threading.Event = field(default_factory=threading.Event)


class Commands:
    """The commands of one training. Safe from any thread; never raises."""

    def __init__(self, run: str, background: Background | None = None) -> None:
        self._run = run
        self._background = background
        self._lock = threading.RLock()  # a signal handler may use the reporter in the middle of a call of ours
        self._supported: frozenset[Operation] = frozenset()
        self._asked: dict[str, _Asked] = {}  # by id, oldest first
        self._waiting: list[_Asked] = []  # accepted and not yet done, oldest first
        self._pending: Command | None = None
        self._closed = False
        self.on_supports: Callable[[], None] | None = None

    def supports(self, *operations: Operation) -> None:
        """Declare what this training can do at a step border; what is not declared is answered `unsupported`.

        `release` need not be declared: it comes with the others.
        """
        known: frozenset[Operation] = frozenset(operation for operation in operations if operation in _OPERATIONS)
        for unknown in set(operations) - known:
            logger.warning("commands.supports: %r is unknown; known are %s", unknown, ", ".join(_OPERATIONS))
        with self._lock:
            self._supported |= known
        if self.on_supports is not None:
            self.on_supports()

    def pending(self) -> Command | None:
        """The command to carry out at this step border, or None; it stays until `saved` or `failed` is called.

        When several wait, one checkpoint answers them all: this is the newest, as strong as the strongest (`stop` when
        one of them is, `hold` when one of them holds).
        """
        return self._pending

    def saved(self, command: Command, *, path: str | Path, step: int) -> None:
        """Say that the checkpoint is complete on disk. Returns at once: proof and reply are made in the background."""
        done = self._take(command)
        if self._background is None or not done:
            return

        def reply(proof: Checkpoint | str) -> None:
            if isinstance(proof, str):
                self._finish(done, "failed", reason=proof)
            else:
                self._finish(done, "saved", checkpoint=proof)

        self._background.prove(str(path), step, reply)

    def failed(self, command: Command, reason: str) -> None:
        """Say that the command can't be carried out, and why."""
        self._finish(self._take(command), "failed", reason=reason)

    def hold(self, command: Command, *, should_end: Callable[[], bool] | None = None) -> HoldEnd:
        """Stay at this step border until `release`, the command's `holdFor`, or `should_end()`; heartbeats go on.

        Blocks the calling thread, which is the point; Ctrl-C and signal handlers work meanwhile. Returns `unheld` at
        once when the command doesn't ask for a hold, and `failed` when it failed, since nobody waits for it then.
        """
        if not command.hold:
            return "unheld"
        with self._lock:
            asked = self._asked.get(command.id) or _Asked(command, time.monotonic())
        until = asked.received + command.holdFor
        with self._background.holding() if self._background is not None else nullcontext():
            while asked.hold_end is None:
                if self._closed:
                    asked.hold_end = "closed"
                elif should_end is not None and should_end():
                    asked.hold_end = "ended"
                elif (left := until - time.monotonic()) <= 0:
                    asked.hold_end = "expired"
                else:
                    asked.ended.wait(min(left, SLICE_SECONDS))
        return asked.hold_end

    # What follows is for the background thread and the recorder.

    def receive(self, data: bytes, reply: ReplyTo) -> None:
        """Take in a message from the command subject; what is malformed or for another training is left alone."""
        try:
            command = decode_command(data)
        except WireError as error:
            logger.warning("command ignored, it does not fit the wire: %s", error)
            return
        if command.run == self._run:
            self.ask(command, reply)

    def ask(self, command: Command, reply: ReplyTo) -> None:
        """Take in a command for this training; replies at once, and once more when it is done."""
        with self._lock:  # also while replying, so that nobody hears `saved` before `accepted`
            reply(self._ask(command, reply))

    def expire(self) -> None:
        """Fail what is overdue; called on the background thread's tick."""
        if not self._asked:
            return
        now = time.monotonic()
        with self._lock:
            overdue = [
                asked
                for asked in self._asked.values()
                if asked.final is None and not asked.overdue and now > asked.received + asked.command.timeout
            ]
            for asked in overdue:
                asked.overdue = True
            self._waiting = [asked for asked in self._waiting if not asked.overdue]
            self._combine()
        for asked in overdue:
            self._finish([asked], "failed", reason=f"no checkpoint within {asked.command.timeout:g} s of the command")

    def declared(self) -> bool:
        """Whether the training has said what it supports."""
        return bool(self._supported)

    def settled(self) -> bool:
        """Whether no proof of a saved checkpoint is still to come."""
        with self._lock:
            waiting = set(map(id, self._waiting))
            return all(asked.final is not None or id(asked) in waiting for asked in self._asked.values())

    def close(self) -> None:
        """End holds, and fail what was never carried out: the training is over."""
        with self._lock:
            left, self._waiting = self._waiting, []
            self._combine()
            self._closed = True
        self._finish(left, "failed", reason="the training ended before it came to a step border")
        for asked in list(self._asked.values()):
            asked.ended.set()

    def abandon(self) -> None:
        """Fall silent in a forked child, where the lock may be held by a thread that is not there."""
        self._lock = threading.RLock()
        self._background, self._pending, self._closed = None, None, True
        self._asked, self._waiting = {}, []

    def _ask(self, command: Command, reply: ReplyTo) -> Reply:
        """Take in a command; gives the reply that is due at once."""
        known = self._asked.get(command.id)
        if known is not None:
            if known.final is not None:
                return known.final
            known.replies.append(reply)
            return self._reply(command, "accepted")
        if command.op == "release" and self._supported:
            return self._release(command)
        asked = _Asked(command, time.monotonic(), holds=command.hold)
        if command.op not in self._supported:
            asked.final = self._reply(command, "unsupported", reason=_unsupported(command.op, self._supported))
        elif self._closed:
            asked.final = self._reply(command, "failed", reason="the training is over")
        else:
            asked.replies.append(reply)
            self._waiting.append(asked)
            self._combine()
        self._remember(asked)
        return asked.final or self._reply(command, "accepted")

    def _release(self, command: Command) -> Reply:
        """End every hold, also one that is still to come; `accepted` is final for a release."""
        held = [asked for asked in self._asked.values() if asked.holds and asked.hold_end is None]
        asked = _Asked(command, time.monotonic())
        if held:
            asked.final = self._reply(command, "accepted")
        else:
            asked.final = self._reply(command, "failed", reason="nothing is held")
        for each in held:
            each.hold_end = "released"
            each.ended.set()
        self._remember(asked)
        return asked.final

    def _remember(self, asked: _Asked) -> None:
        self._asked[asked.command.id] = asked
        surplus = len(self._asked) - MAX_REMEMBERED
        for old in [each for each in self._asked.values() if each.final is not None][: max(0, surplus)]:
            del self._asked[old.command.id]

    def _take(self, command: Command) -> list[_Asked]:
        """The command and all that waited before it: one checkpoint answers them all."""
        with self._lock:
            asked = self._asked.get(getattr(command, "id", ""))
            if asked is None:
                return []
            if asked not in self._waiting:
                late = asked.overdue and (asked.final is None or asked.final.state == "failed")
                return [asked] if late else []
            upto = self._waiting.index(asked) + 1
            taken, self._waiting = self._waiting[:upto], self._waiting[upto:]
            self._combine()
            return taken

    def _combine(self) -> None:
        if not self._waiting:
            self._pending = None
            return
        all_of = [asked.command for asked in self._waiting]
        self._waiting[-1].holds = any(command.hold for command in all_of)
        self._pending = replace(
            all_of[-1],
            op="stop" if any(command.op == "stop" for command in all_of) else "checkpoint",
            hold=self._waiting[-1].holds,
            holdFor=max((command.holdFor for command in all_of if command.hold), default=all_of[-1].holdFor),
        )

    def _finish(
        self,
        done: list[_Asked],
        state: Literal["saved", "failed"],
        *,
        reason: str = "",
        checkpoint: Checkpoint | None = None,
    ) -> None:
        for asked in done:
            with self._lock:
                asked.final = self._reply(asked.command, state, reason=reason[:MAX_REASON], checkpoint=checkpoint)
                replies, asked.replies = asked.replies, []
                for reply in replies:
                    reply(asked.final)
            if state == "failed" and asked.hold_end is None:
                asked.hold_end = "failed"
                asked.ended.set()

    def _reply(
        self,
        command: Command,
        state: Literal["accepted", "saved", "failed", "unsupported"],
        *,
        reason: str = "",
        checkpoint: Checkpoint | None = None,
    ) -> Reply:
        return Reply(id=command.id, run=self._run, state=state, reason=reason, checkpoint=checkpoint)


_OPERATIONS: tuple[Operation, ...] = ("checkpoint", "stop", "release")


def _unsupported(asked: str, supported: Collection[str]) -> str:
    """Why a command is not done, and what would help: the loop says at its start what it can do."""
    able = f"; it can: {', '.join(sorted(supported))}" if supported else ""
    return f"this training can't do {asked!r} when it is asked{able}; let its loop save when asked ({_PAGE})"
