"""The notifier's role on NATS: notices in, messages out, and what became of them back to the engine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from datetime import UTC, datetime
from typing import Protocol

from trainwarden.controller.bus import Bus, BusError, Entry, Reading
from trainwarden.controller.cancelling import end_all
from trainwarden.controller.payloads import decode
from trainwarden.controller.publishing import publish_result
from trainwarden.notifiers.delivery import DeliveryResult
from trainwarden.policies.decision import ActionResult, ActionState
from trainwarden.policies.notice import Notice

__all__ = ["NotifierRole", "Sender"]

log = logging.getLogger(__name__)

_AT_ONCE = 8  # messages under way
_MOST_RESULTS = 10_000  # kept for whoever shows them
_LONGEST_ENDING = 45.0  # seconds that messages under way are given when the role is stopped


class Sender(Protocol):
    """Delivers a notice; `trainwarden.notifiers.delivery.Dispatcher` is one."""

    async def send(self, notice: Notice) -> tuple[DeliveryResult, ...]:
        """Deliver to all targets of the notice's channels; failures are results."""
        ...


class NotifierRole:
    """Sends each notice at least once: what results on the stream say was sent is passed over, but a kill before the
    result is stored sends it again.
    """

    def __init__(self, bus: Bus, sender: Sender) -> None:
        self._bus, self._sender = bus, sender
        self._sent: set[str] = set()
        self._running: set[asyncio.Task[None]] = set()
        self._places = asyncio.Semaphore(_AT_ONCE)
        self.results: list[tuple[Notice, tuple[DeliveryResult, ...]]] = []

    async def run(self, stop: asyncio.Event | None = None) -> None:
        """Work until `stop` is set; messages under way are given time to end."""
        stop = stop or asyncio.Event()
        results = Reading(self._bus, "TW_RESULTS", take=self._take_result)
        notices = Reading(self._bus, "TW_NOTICES", take=self._take_notice)
        tasks = [asyncio.create_task(results.run())]
        try:
            await results.caught_up.wait()
            tasks.append(asyncio.create_task(notices.run()))
            await stop.wait()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LONGEST_ENDING):
                    await self.settled()
        finally:
            await end_all([*tasks, *self._running])

    @property
    def busy(self) -> bool:
        """Whether messages are under way."""
        return bool(self._running)

    async def settled(self) -> None:
        """Wait for messages under way."""
        while self._running:
            await asyncio.wait(list(self._running))

    def _take_result(self, entry: Entry) -> None:
        result = decode(entry.data, ActionResult)
        if result.reason in ("Delivered", "NotDelivered", "NoChannel"):
            self._sent.update(each for each in (result.action_id, result.notice_id) if each)

    def _take_notice(self, entry: Entry) -> None:
        notice = decode(entry.data, Notice)
        if notice.id in self._sent or (notice.action_id and notice.action_id in self._sent):
            return
        self._sent.add(notice.id)
        task = asyncio.create_task(self._send(notice))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _send(self, notice: Notice) -> None:
        run = notice.decision.run
        delivered: tuple[DeliveryResult, ...] = ()
        problem = ""
        try:
            async with self._places:
                delivered = await self._sender.send(notice)
        except Exception as error:
            log.exception("a notice could not be sent run=%s/%s", run.namespace, run.job)
            problem = f"the message could not be made: {type(error).__name__}"
        self.results.append((notice, delivered))
        del self.results[:-_MOST_RESULTS]
        failed = [result for result in delivered if result.state != "delivered"]
        if problem:
            state, reason, message = ActionState.FAILED, "NotDelivered", problem
        elif not delivered:
            state, reason, message = ActionState.DONE, "NoChannel", "nobody was told: no channel is set"
        elif not failed:
            names = ", ".join(sorted({result.target for result in delivered}))
            state, reason, message = ActionState.DONE, "Delivered", f"told {names}"
        else:
            why = "; ".join(f"{result.target}: {result.reason}" for result in failed)
            state, reason, message = ActionState.FAILED, "NotDelivered", why
        result = ActionResult(
            action_id=notice.action_id,
            notice_id=notice.id,
            namespace=run.namespace,
            job=run.job,
            state=state,
            reason=reason,
            message=message,
            time=datetime.now(UTC),
        )
        try:
            await publish_result(self._bus, result)
        except BusError as error:
            log.error("what became of a notice is not told run=%s/%s reason=%s", run.namespace, run.job, error)
