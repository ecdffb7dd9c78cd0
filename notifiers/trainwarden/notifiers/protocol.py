"""What the dispatcher needs of a way to reach people, and how an attempt may end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from trainwarden.notifiers.compose import Message

__all__ = ["Attempt", "Ending", "Notifier"]


class Ending(StrEnum):
    """How one attempt ended."""

    DELIVERED = "delivered"
    RETRY = "retry"  # may work later
    LIMITED = "limited"  # the service asks to slow down
    PERMANENT = "permanent"  # will not work until someone changes something


@dataclass(frozen=True, slots=True)
class Attempt:
    """What came of one attempt. The reason holds no address, token or text of the service."""

    ending: Ending
    reason: str = ""


class Notifier(Protocol):
    """One target. `deliver` blocks, is called from a thread of its own, and never raises."""

    @property
    def target(self) -> str:
        """Name of the target without anything secret, such as `slack #1`."""

    def deliver(self, message: Message) -> Attempt:
        """Try once. Whoever calls bounds how long an answer is waited for."""
