"""What a training does about commands at the end of a step: on one rank at once, on several at the step they agree on.

One `StepBorder` per training and rank. The integrations call `reached` after each step; when it gives an `Order`, all
ranks save now, each says `saved` (or `failed`), and then calls `hold`.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwarden.reporters.agreement import Agreed, Agreement
from trainwarden.reporters.wire import Command

if TYPE_CHECKING:
    from trainwarden.reporters import Reporter

__all__ = ["Order", "StepBorder"]

log = logging.getLogger(__name__)

_GLANCE = 0.05  # seconds between two looks whether a proof is there
_agreements = 0  # made by this process; the same count on all ranks, since all run the same program


@dataclass(slots=True)
class Order:
    """Save after this step, on all ranks; then hold, and stop when `stop` says so."""

    command: Command
    agreed: Agreed | None = field(default=None, repr=False)
    answered: bool = False
    told: bool = False  # to the commands, whichever way
    lost: bool = False  # the save failed, so there is nothing to hold for

    @property
    def stop(self) -> bool:
        """Whether training ends after the save."""
        return self.command.op == "stop"


class StepBorder:
    """Commands of one training, taken at step borders.

    Args:
        reporter: Of this rank; only rank 0's is asked for commands.
        step: Steps done so far.
        world: Ranks of the training as its framework says; more than one need torch.distributed to agree through.
    """

    def __init__(self, reporter: Reporter, *, step: int = 0, world: int = 1) -> None:
        self._reporter = reporter
        self._commands = reporter.commands
        self._order: Order | None = None
        self.rank, ranks = _rank_and_world()
        self._agreement: Agreement | None = None
        if ranks > 1:
            self._agreement = self._join(step, ranks)
            if self._agreement is None:
                return
        elif world > 1:
            log.warning("several ranks without torch.distributed can't agree on a step; commands are not taken")
            return
        if reporter.active:
            self._commands.supports("checkpoint", "stop", "release")

    def _join(self, step: int, world: int) -> Agreement | None:
        store = _shared_store()
        if store is None:
            return None
        agreement = Agreement(
            store,
            rank=self.rank,
            world=world,
            step=step,
            source=self._commands.pending if self.rank == 0 else None,
            cancelled=self._commands.failed if self.rank == 0 else None,
            idle=self.rank == 0 and not self._reporter.active,
        )
        agreement.start()
        return agreement

    def reached(self, step: int) -> Order | None:
        """Say that a step is done, and hear what all ranks do now. An ordinary step reads one attribute."""
        if self._agreement is not None:
            agreed = self._agreement.at(step)
            if agreed is None:
                return None
            self._order = Order(agreed.command, agreed)
            return self._order
        command = self._commands.pending()
        if command is None:
            return None
        self._order = Order(command)
        return self._order

    @property
    def order(self) -> Order | None:
        """The order that is being carried out."""
        return self._order

    @property
    def alone(self) -> bool:
        """Whether there is only this rank."""
        return self._agreement is None

    def saved(self, path: str | PathLike[str] | None, *, step: int) -> None:
        """This rank has written its part of the checkpoint at `path`, whether asked for or made by the training itself.

        Rank 0 proves and announces it once all ranks have written theirs; a rank without a part has no path.
        """
        order, place = self._order, "" if path is None else fspath(path)
        if order is not None and order.answered:
            order = None
        if order is not None:
            order.answered = True

        def announce(problem: str) -> None:
            if not problem and not (place and Path(place).exists()):
                problem = f"nothing was written at {place!r}"
            if problem:
                self._lost(order, problem)
            elif order is not None:
                self._commands.saved(order.command, path=place, step=step)
                order.told = True
            else:
                self._reporter.checkpoint_saved(place, step=step)

        self._when_all_have(announce)

    def failed(self, reason: str) -> None:
        """This rank could not save what was asked for."""
        order = self._order
        if order is None or order.answered:
            return
        order.answered = order.lost = True
        self._when_all_have(lambda problem: self._lost(order, problem), reason)

    def _when_all_have(self, then: Callable[[str], None], problem: str = "") -> None:
        if self._agreement is None:
            then(problem)
        else:
            self._agreement.together(then, problem=problem)

    def _lost(self, order: Order | None, problem: str) -> None:
        if order is None:
            log.warning("checkpoint not announced reason=%s", problem)
            return
        self._commands.failed(order.command, problem)
        order.lost = order.told = True

    def hold(self) -> None:
        """Stay at the step border for as long as the order asks for; on all ranks. Closes the order."""
        order, self._order = self._order, None
        if order is None:
            return
        if not order.command.hold:
            if order.stop and self.rank == 0:
                self._wait_for_proof(order)
            return
        if order.agreed is None or self._agreement is None:
            if not order.lost:
                self._commands.hold(order.command, should_end=lambda: order.lost)
        elif self.rank == 0:
            how = self._commands.hold(order.command, should_end=lambda: order.lost)
            self._agreement.hold_ended(order.agreed, str(how))
        else:
            self._agreement.wait_for_hold_end(order.agreed)

    def _wait_for_proof(self, order: Order) -> None:
        """Before a training ends that was told to: otherwise its process would be gone before it has answered."""
        until = time.monotonic() + order.command.timeout
        while time.monotonic() < until and not (order.told and self._commands.settled()):
            time.sleep(_GLANCE)

    def close(self, reason: str = "") -> None:
        """No more borders will be reached: what is open is answered `failed`.

        Args:
            reason: Why training has failed; "" when it has ended well, so that a save may still be completed.
        """
        order, self._order = self._order, None
        if order is not None and not order.answered and self.rank == 0:
            order.answered = order.lost = True
            self._commands.failed(order.command, reason or "training has ended")
        if self._agreement is not None:
            self._agreement.leave(patient=not reason)


def _distributed() -> Any:
    """torch.distributed when the training uses it; never imports it."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


def _rank_and_world() -> tuple[int, int]:
    distributed = _distributed()
    return (0, 1) if distributed is None else (distributed.get_rank(), distributed.get_world_size())


def _shared_store() -> Any:
    """The ranks' key-value store under a prefix of our own, over a connection of our own where torch can make one."""
    global _agreements  # one count per process is what is meant
    number, _agreements = _agreements, _agreements + 1
    try:
        from torch.distributed import distributed_c10d

        store = distributed_c10d._get_default_store()
        try:
            store = store.clone()
        except (AttributeError, RuntimeError, NotImplementedError):
            log.debug("the ranks' store can't be cloned; its connection is shared")
        return distributed_c10d.PrefixStore(f"trainwarden/{number}", store)
    except Exception as error:  # torch's internals may change; training goes on without commands
        log.warning("no store to agree through; commands are not taken error=%s: %s", type(error).__name__, error)
        return None
