"""One target of a channel: which message is whose turn, and the threads that attempts run in."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass

from trainwarden.notifiers.compose import Message
from trainwarden.notifiers.protocol import Attempt, Ending, Notifier

__all__ = ["Lane", "Turn"]

_MOST_HELD = 4  # attempts at one target that have no end; more would only pile up


@dataclass(frozen=True, slots=True)
class Turn:
    """A message's place among those of its incident at one target."""

    before: asyncio.Event | None  # set once the message before has ended, delivered or not
    over: asyncio.Event


class Lane:
    """One target; messages go one after another, those of one incident in the order they came.

    Each attempt has a daemon thread, so one that never ends keeps no process from its exit. A message whose attempt has
    not ended is waited for again, not sent again: the service has it, and is slow to say so.
    """

    def __init__(self, channel: str, notifier: Notifier, *, timeout: float) -> None:
        self.channel, self.notifier = channel, notifier
        self._timeout = timeout
        self._free = asyncio.Lock()
        self._attempts: dict[str, asyncio.Future[Attempt]] = {}  # by message
        self._last: dict[str, asyncio.Event] = {}  # of each incident, the newest message in line

    def line_up(self, incident: str) -> Turn:
        """Take a place behind the incident's earlier messages."""
        turn = Turn(self._last.get(incident), asyncio.Event())
        self._last[incident] = turn.over
        return turn

    def leave(self, incident: str, turn: Turn) -> None:
        """Let the incident's next message go."""
        turn.over.set()
        if self._last.get(incident) is turn.over:
            del self._last[incident]

    async def attempt(self, name: str, message: Message) -> Attempt:
        """Try to send the message of a name; returns within the time limit."""
        async with self._free:
            going = self._attempts.get(name)
            if going is None or (going.done() and going.result().ending is not Ending.DELIVERED):
                if sum(not each.done() for each in self._attempts.values()) >= _MOST_HELD:
                    return Attempt(Ending.RETRY, "the service has not ended its answers to earlier messages")
                going = self._attempts[name] = self._begin(message)
            await asyncio.wait({going}, timeout=self._timeout)
            if going.done():
                return going.result()
            return Attempt(Ending.RETRY, f"no answer within {self._timeout:g} s")

    def forget(self, name: str) -> None:
        """The message is over: an attempt that has not ended counts until it does."""
        going = self._attempts.get(name)
        if going is not None:
            going.add_done_callback(lambda _: self._attempts.pop(name, None))

    def _begin(self, message: Message) -> asyncio.Future[Attempt]:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Attempt] = loop.create_future()

        def work() -> None:
            try:
                attempt = self.notifier.deliver(message)
            except Exception as error:
                attempt = Attempt(Ending.RETRY, f"notifier raised {type(error).__name__}")
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(ended.set_result, attempt)

        threading.Thread(target=work, name="trainwarden-notify", daemon=True).start()
        return ended
