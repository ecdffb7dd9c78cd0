"""Tell people with each message how they can object, which depends on where trainwarden runs."""

from __future__ import annotations

from pathlib import Path

import msgspec

from trainwarden.controller.notifier_role import Sender
from trainwarden.notifiers.delivery import DeliveryResult
from trainwarden.policies.notice import Notice

__all__ = ["IN_CLUSTER", "Contestable", "locally"]

IN_CLUSTER = (
    "the stream of decisions has all values under this id; change or delete the rule, and the next report obeys"
)
"""How to object where policies are resources."""


def locally(log: Path | None) -> str:
    """How to object in local mode, where a run keeps copies of its policies."""
    edit = "edit the policy, and give it with --policy when you run or resume"
    return f"{log.absolute()} has all values under this id; {edit}" if log is not None else edit


class Contestable:
    """A sender that adds to each notice how to object.

    Args:
        sender: Delivers.
        contest: The sentence, without an end.
    """

    def __init__(self, sender: Sender, contest: str) -> None:
        self._sender, self._contest = sender, contest

    async def send(self, notice: Notice) -> tuple[DeliveryResult, ...]:
        """Deliver the notice with its sentence."""
        return await self._sender.send(msgspec.structs.replace(notice, contest=self._contest))
