"""Make all ranks of a training act on a command at the same step, without a collective or a device synchronisation.

Saving is collective, so a command that only rank 0 heard must begin on every rank after the same step. The ranks agree
through the key-value store that torch.distributed has anyway; each rank has a thread that polls it, and the training
thread reads one attribute in an ordinary step.

```
          rank 0's thread              store               thread of rank r            training thread of rank r
 command ─▶ p/n = what to do ──────▶ p/n ───────────────▶ sees it, raises the gate
                                     b/n/r ◀───────────── promises border = step + 2   runs on, but not past the border
            has all promises ◀────── b/n/*
            d/n: "" → max(border) ─▶ d/n ───────────────▶ knows the step ────────────▶ acts after that step
```

A rank does not pass its border before it knows the decision, and the decided step is the furthest border, so no rank
has passed it. The decision is one key that is written once, by compare-and-set: `step` by rank 0 when all promises are
there, or `cancelled` by whoever has waited too long, or leaves. Whoever comes second reads what the first one wrote, so
all ranks decide alike. A cancelled round costs nothing but its wait: training goes on, and the command is answered
`failed` with the reason. `here/r` says that rank r takes part (without all of them nothing is proposed), `left` that a
rank has ended its training, `h/n` how a hold ended, and `t/<topic>/r` that rank r has done its part of a save.

When the store is gone no more commands are taken, and training goes on.
"""

from __future__ import annotations

import atexit
import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from trainwarden.reporters.wire import Command

__all__ = ["Agreed", "Agreement", "Store"]

log = logging.getLogger(__name__)

MARGIN = 2  # steps from the step done to the border: one may be passed while the gate is being raised
_FAULTS = 3  # failed polls in a row after which the store counts as gone
_FAREWELL = 2.0  # seconds that `leave` waits for the thread
_LAST_SAVE = 10.0  # seconds that rank 0 waits at the end of its training for the others' part of the last save


class Store(Protocol):
    """What is used of torch.distributed's Store."""

    def check(self, keys: list[str], /) -> bool: ...  # all of them are there; does not wait
    def get(self, key: str, /) -> bytes: ...
    def set(self, key: str, value: str, /) -> None: ...
    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes: ...  # the value that holds afterwards


@dataclass(frozen=True, slots=True)
class Agreed:
    """A command that all ranks act on after this step."""

    number: int  # of the round, the same on all ranks
    command: Command
    step: int  # the first step from which on all ranks act


@dataclass(slots=True)
class _Round:
    number: int
    command: Command
    border: int
    patience: float  # seconds
    since: float  # monotonic
    waiting_since: float | None = None  # the training thread stands at the border
    step: int | None = None  # decided


@dataclass(slots=True)
class _Gathering:
    """Rank 0 waits for the other ranks' part of a save."""

    topic: str
    until: float
    then: Callable[[str], None]


class Agreement:
    """One rank's part in the agreement. `at` is for the training thread, `poll` for the thread that `start` begins.

    Args:
        store: Shared by the ranks of this training, under a prefix of its own.
        rank: Of this process, 0 to world - 1.
        world: How many ranks.
        step: Steps done so far.
        source: Rank 0 only: the command that waits for a step border, or None. Called by the thread.
        cancelled: Rank 0 only: called with a command that the ranks could not agree on, and why.
        patience: Longest wait for the other ranks, in seconds.
        idle: Rank 0 only: no commands will come; the other ranks are told so and stop asking.
    """

    def __init__(
        self,
        store: Store,
        *,
        rank: int,
        world: int,
        step: int = 0,
        source: Callable[[], Command | None] | None = None,
        cancelled: Callable[[Command, str], None] | None = None,
        patience: float = 30.0,
        idle: bool = False,
    ) -> None:
        self.rank, self.world = rank, world
        self._store = store
        self._source = source
        self._cancelled = cancelled
        self._patience = patience
        self._step = step
        self._gate = False  # read by the training thread in every step; True: look closer
        self._news = threading.Condition()
        self._round: _Round | None = None
        self._number = 0
        self._handled = ""  # id of the newest command that was proposed
        self._incomplete_since: float | None = None
        self._outbox: deque[tuple[str, str]] = deque()
        self._gatherings: list[_Gathering] = []
        self._topics = 0
        self._awaited_hold: int | None = None
        self._hold_ends: dict[int, str] = {}
        self._faults = 0
        self._gone = False
        self._leaving = threading.Event()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._off = False  # no commands will come, so there is nothing to agree on
        self._send("off" if idle else f"here/{rank}", "1")

    # ------------------------------------------------------------------ training thread

    def at(self, step: int) -> Agreed | None:
        """Say that a step is done, and hear whether all ranks act now. Waits only at a promised border."""
        self._step = step
        if not self._gate:
            return None
        return self._at_gate(step)

    def _at_gate(self, step: int) -> Agreed | None:
        with self._news:
            while (current := self._round) is not None:
                if current.step is not None:
                    if step < current.step:
                        return None
                    self._close_round()
                    return Agreed(current.number, current.command, current.step)
                if step < current.border:
                    return None
                now = time.monotonic()
                if current.waiting_since is None:
                    current.waiting_since = now
                # The thread cancels after `patience`; that it can't even do that means that the store hangs.
                if now > current.waiting_since + 2 * current.patience + 1 or self._gone:
                    self._give_up(current, "the ranks' store does not answer")
                    return None
                self._wake.set()
                self._news.wait(min(1.0, current.patience))
            return None

    def hold_ended(self, agreed: Agreed, how: str) -> None:
        """Rank 0: tell the other ranks that the hold is over."""
        self._send(f"h/{agreed.number}", how)

    def wait_for_hold_end(self, agreed: Agreed) -> str:
        """Other ranks: stay at the step border until rank 0 tells how the hold ended; "" when it never told.

        The wait is bounded by the times the command gives for saving and holding.
        """
        until = time.monotonic() + agreed.command.timeout + agreed.command.holdFor + self._patience
        with self._news:
            self._awaited_hold = agreed.number
            while agreed.number not in self._hold_ends and not self._gone and not self._leaving.is_set():
                left = until - time.monotonic()
                if left <= 0:
                    break
                self._news.wait(min(1.0, left))
            self._awaited_hold = None
            return self._hold_ends.pop(agreed.number, "")

    def together(self, then: Callable[[str], None], *, problem: str = "", within: float = 600.0) -> None:
        """Say that this rank has done its part of something that all ranks do; each rank calls it equally often.

        On rank 0 `then` is called by the thread with "" once all ranks have, else with what went wrong.
        """
        topic = str(self._topics)
        self._topics += 1
        if self._off:
            return
        if self.rank == 0:
            with self._news:
                self._gatherings.append(_Gathering(topic, time.monotonic() + within, then))
        self._send(f"t/{topic}/{self.rank}", problem or "ok")

    def leave(self, *, patient: bool = False) -> None:
        """This rank's training has ended: it will pass no border any more. Waits two seconds at most.

        Args:
            patient: Wait ten seconds more for the other ranks' part of a save that is not complete yet.
        """
        if patient:
            with self._news:
                self._news.wait_for(lambda: not self._gatherings or self._gone, _LAST_SAVE)
        atexit.unregister(self.leave)
        self._leaving.set()
        self._wake.set()
        with self._news:
            self._news.notify_all()
        thread = self._thread
        if thread is None:
            if patient:
                self.poll()
            self._say_farewell()
        elif thread is not threading.current_thread():
            thread.join(_FAREWELL)

    # ------------------------------------------------------------------ the thread

    def start(self) -> None:
        """Begin to poll the store in a daemon thread, which ends with `leave`, or at exit."""
        self._thread = threading.Thread(target=self._run, name="trainwarden-agreement", daemon=True)
        self._thread.start()
        # A daemon thread inside the store's code at interpreter shutdown would abort the process.
        atexit.register(self.leave)

    def _run(self) -> None:
        # Few requests a second at the store however many ranks: 1,000 ranks ask once a second each.
        idle = max(0.1, self.world * 0.001)
        while not self._leaving.is_set() and not self._off:
            self.poll()
            busy = self._round is not None or self._gatherings or self._awaited_hold is not None
            if self._wake.wait(idle / 5 if busy else idle):
                self._wake.clear()
                self._leaving.wait(idle / 20)  # a training thread at its border wakes us often
        if not self._gone and not self._off:
            self._say_farewell()

    def poll(self) -> None:
        """Look into the store once, and do what is due. Never raises."""
        if self._gone:
            self._propose_nothing()
            return
        try:
            self._poll()
            self._faults = 0
        except Exception as error:  # whatever the store raises, training goes on
            self._faults += 1
            if self._faults >= _FAULTS:
                self._lose_store(error)

    def _poll(self) -> None:
        while self._outbox:
            self._store.set(*self._outbox[0])
            self._outbox.popleft()
        if self._round is None:
            if self.rank == 0:
                self._propose()
            elif self._store.check([f"p/{self._number}"]):
                self._promise(_command_from(self._store.get(f"p/{self._number}")))
        if self._store.check(["off"]):
            self._off = True
            self._outbox.clear()
        if self._round is not None and self._round.step is None:
            self._seek_decision(self._round)
        if self._gatherings:
            self._gather()
        awaited = self._awaited_hold
        if awaited is not None and self._store.check([f"h/{awaited}"]):
            how = self._store.get(f"h/{awaited}").decode()
            with self._news:
                self._hold_ends[awaited] = how
                self._news.notify_all()

    def _propose(self) -> None:
        command = self._source() if self._source is not None else None
        if command is None or command.id == self._handled:
            return
        if self._store.check(["left"]):
            self._refuse(command, "a rank has ended its training")
            return
        if not self._store.check([f"here/{rank}" for rank in range(self.world)]):
            now = time.monotonic()
            self._incomplete_since = self._incomplete_since or now
            if now > self._incomplete_since + self._patience:
                self._refuse(command, f"no trainwarden reporter on {self._ranks_without('here')}")
            return
        self._incomplete_since = None
        self._handled = command.id
        self._store.set(f"p/{self._number}", _command_text(command))
        self._promise(command)

    def _promise(self, command: Command) -> None:
        with self._news:
            self._gate = True
        with self._news:  # the step is read after the gate is seen by all: what was passed by then is counted
            border = self._step + MARGIN
            patience = min(self._patience, command.timeout / 2)
            self._round = _Round(self._number, command, border, patience, time.monotonic())
        self._store.set(f"b/{self._number}/{self.rank}", str(border))

    def _seek_decision(self, current: _Round) -> None:
        number, now = current.number, time.monotonic()
        key = f"d/{number}"
        if self._store.check([key]):
            self._learn(current, self._store.get(key).decode())
        elif self.rank == 0:
            promises = [f"b/{number}/{rank}" for rank in range(self.world)]
            if self._store.check(promises):
                furthest = max(int(self._store.get(promise)) for promise in promises)
                self._learn(current, self._decide(number, str(furthest)))
            elif self._store.check(["left"]):
                self._learn(current, self._decide(number, "cancelled: a rank has ended its training"))
            elif now > current.since + current.patience:
                who = self._ranks_without(f"b/{number}")
                self._learn(current, self._decide(number, f"cancelled: no answer of {who} in time"))
        elif current.waiting_since is not None and now > current.waiting_since + current.patience:
            reason = f"cancelled: rank {self.rank} waited {current.patience:.0f} s at its border for rank 0"
            self._learn(current, self._decide(number, reason))

    def _decide(self, number: int, decision: str) -> str:
        """Write the decision unless there is one, and give the one that holds."""
        return self._store.compare_set(f"d/{number}", "", decision).decode()

    def _learn(self, current: _Round, decision: str) -> None:
        with self._news:
            if self._round is not current:
                return
            if decision.startswith("cancelled"):
                self._give_up(current, decision.removeprefix("cancelled: "))
            else:
                current.step = int(decision)
            self._news.notify_all()

    def _give_up(self, current: _Round, reason: str) -> None:
        self._close_round()
        if self.rank == 0 and self._cancelled is not None:
            self._cancelled(current.command, f"the ranks did not agree on a step: {reason}")

    def _close_round(self) -> None:
        self._round = None
        self._gate = False
        self._number += 1

    def _propose_nothing(self) -> None:
        command = self._source() if self._source is not None else None
        if command is not None and command.id != self._handled:
            self._refuse(command, "the ranks' store is gone, so they can't agree on a step")

    def _refuse(self, command: Command, reason: str) -> None:
        self._handled = command.id
        self._incomplete_since = None
        if self._cancelled is not None:
            self._cancelled(command, reason)

    def _gather(self) -> None:
        for gathering in list(self._gatherings):
            keys = [f"t/{gathering.topic}/{rank}" for rank in range(self.world)]
            if self._store.check(keys):
                said = {rank: self._store.get(key).decode() for rank, key in enumerate(keys)}
                problem = "; ".join(f"rank {rank}: {text}" for rank, text in said.items() if text != "ok")
            elif time.monotonic() > gathering.until:
                problem = f"{self._ranks_without(f't/{gathering.topic}')} did not finish in time"
            else:
                continue
            gathering.then(problem)
            with self._news:
                self._gatherings.remove(gathering)
                self._news.notify_all()

    def _ranks_without(self, prefix: str) -> str:
        missing = [rank for rank in range(self.world) if not self._store.check([f"{prefix}/{rank}"])]
        shown = ", ".join(str(rank) for rank in missing[:8])
        more = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
        return f"rank{'s' if len(missing) > 1 else ''} {shown}{more}"

    def _send(self, key: str, value: str) -> None:
        if self._off:
            return
        self._outbox.append((key, value))
        self._wake.set()

    def _say_farewell(self) -> None:
        try:
            while self._outbox:
                self._store.set(*self._outbox.popleft())
            self._store.set("left", str(self.rank))
            current = self._round
            if current is not None and current.step is None:
                self._learn(
                    current, self._decide(current.number, f"cancelled: rank {self.rank} has ended its training")
                )
            if self._gatherings:
                self._gather()
        except Exception as error:  # the store may have gone before us
            log.debug("agreement ended without its store error=%s", type(error).__name__)
        with self._news:
            if (current := self._round) is not None:
                self._give_up(current, f"training ended before step {current.step or current.border}")
            waiting, self._gatherings = self._gatherings, []
        for gathering in waiting:
            gathering.then("training ended before all ranks had finished")

    def _lose_store(self, error: Exception) -> None:
        log.warning("the ranks' store is gone; commands are refused from now on error=%s", type(error).__name__)
        with self._news:
            self._gone = True
            if (current := self._round) is not None:
                self._give_up(current, "the ranks' store is gone")
            waiting, self._gatherings = self._gatherings, []
            self._news.notify_all()
        for gathering in waiting:
            gathering.then("the ranks' store is gone")


def _command_text(command: Command) -> str:
    """All of a command that other ranks act by."""
    return json.dumps([command.id, command.run, command.op, command.hold, command.timeout, command.holdFor])


def _command_from(text: bytes) -> Command:
    id_, run, op, hold, timeout, hold_for = json.loads(text)
    return Command(id=id_, run=run, op=op, hold=hold, timeout=timeout, holdFor=hold_for)
