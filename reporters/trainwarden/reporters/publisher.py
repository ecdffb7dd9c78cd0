"""The background thread's work: take what the training left, send it, keep what can't be sent, answer commands."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import deque
from dataclasses import dataclass

from trainwarden.reporters.backlog import Backlog, Entry
from trainwarden.reporters.complaints import logger
from trainwarden.reporters.fitting import HEADER_BYTES, fit
from trainwarden.reporters.link import Link, LinkError, LinkLoop, Opening
from trainwarden.reporters.values import finite
from trainwarden.reporters.wire import Reply, Report, encode
from trainwarden.reporters.worker import Worker

__all__ = ["publish"]

TICK_SECONDS = 0.05
BATCH = 500
MAX_REPLIES = 256
ACK_ATTEMPTS = 2
FIRST_RETRY_SECONDS = 0.5
LAST_RETRY_SECONDS = 15.0


def publish(worker: Worker, opening: Opening) -> None:
    """Serve a worker until it is told to stop and all is sent, or its time is over."""
    loop = LinkLoop()
    loop.set_exception_handler(_quiet)
    try:
        loop.run_until_complete(_Publisher(worker, opening).run())
    finally:
        with contextlib.suppress(Exception):
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left, timeout=0.5))
        loop.abort_connections()
        with contextlib.suppress(Exception):
            loop.run_until_complete(asyncio.sleep(0))
            loop.close()


def _quiet(_: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    logger.debug("in the reporter's loop: %s", context.get("message"))


@dataclass(slots=True)
class _Outgoing:
    """A report with its number, which stays the same however often it is sent."""

    report: Report
    data: bytes
    acked: bool
    attempts: int = 0
    arrived: bool = False  # the server has it, be it in a stream or not


class _Publisher:
    def __init__(self, worker: Worker, opening: Opening) -> None:
        self._worker, self._opening = worker, opening
        self._backlog = Backlog()
        self._unconfirmed: list[_Outgoing] = []
        self._replies: deque[tuple[str, Reply]] = deque(maxlen=MAX_REPLIES)
        self._seq = 0
        self._spoken = float("-inf")  # when the last report was handed over, in monotonic seconds
        self._trouble: str | None = None
        self._awake = asyncio.Event()

    async def run(self) -> None:
        """Serve until told to stop."""
        loop = asyncio.get_running_loop()
        self._worker.wake = lambda: _wake(loop, self._awake)
        serving = asyncio.ensure_future(self._serve())
        while not serving.done():
            self._tick()
            deadline = self._worker.deadline
            if deadline is not None and time.monotonic() >= deadline:
                serving.cancel()
                await asyncio.wait({serving}, timeout=1.0)
                break
            await asyncio.wait({serving}, timeout=TICK_SECONDS)
        self._tick()
        unsent = len(self._backlog) + sum(not outgoing.arrived for outgoing in self._unconfirmed)
        self._worker.counts.dropped = self._backlog.dropped + unsent
        if unsent:
            logger.warning("reports not sent before the reporter closed count=%d run=%s", unsent, self._worker.run)
        if serving.done() and not serving.cancelled() and serving.exception() is not None:
            raise serving.exception()  # type: ignore[misc]  # just seen that it is one

    def _tick(self) -> None:
        try:
            self._worker.inbox.empty_into(self._backlog)
            self._worker.commands.expire()
        except Exception as error:
            self._worker.complaints.error("the background tick", error)

    async def _serve(self) -> None:
        wait = FIRST_RETRY_SECONDS
        while not self._over():
            try:
                link = await self._opening(self._receive)
            except LinkError as error:
                self._lost(error)
            else:
                self._found()
                began = time.monotonic()
                try:
                    await self._pump(link)
                except LinkError as error:
                    self._lost(error)
                except Exception as error:
                    self._worker.complaints.error("sending", error)
                finally:
                    await link.close()
                if time.monotonic() - began > LAST_RETRY_SECONDS:  # a link that lasted, not one that fails at once
                    wait = FIRST_RETRY_SECONDS
            if not self._over():
                await self._pause(random.uniform(0.1, 1.0) * wait)  # noqa: S311 - spreads reconnects, guards nothing
                wait = min(2 * wait, LAST_RETRY_SECONDS)

    async def _pump(self, link: Link) -> None:
        while not self._over():
            await self._answer(link)
            waiting = self._worker.waiting()  # before looking for reports: who waits later may wait for later ones
            if not self._unconfirmed:
                self._unconfirmed = self._next()
            if self._unconfirmed:
                await self._send(link)
            link.check()
            if not (self._unconfirmed or self._replies or len(self._backlog)):
                self._worker.flushed(waiting)
            if self._worker.deadline is None:
                await self._rest()  # one batch a tick: a flood of reports must not keep the GIL from the training
            elif not self._worker.idle():
                await self._rest()

    async def _send(self, link: Link) -> None:
        """Send what has its number, and forget it once the server has it. At most the last one wants an ack."""
        self._unconfirmed = [outgoing for outgoing in self._unconfirmed if self._passes(outgoing, link.max_bytes)]
        if not self._unconfirmed:
            return
        for outgoing in self._unconfirmed:
            if not outgoing.acked:
                await link.publish(outgoing.report, outgoing.data)
        await link.confirm()
        last = self._unconfirmed[-1]
        self._sent(self._unconfirmed if not last.acked else self._unconfirmed[:-1])
        if not last.acked:
            return
        while last.attempts < ACK_ATTEMPTS:
            last.attempts += 1
            if await link.publish_acked(last.report, last.data):
                break
            await link.confirm()  # nobody acks, as where no stream is set up: then this is all that can be known
            last.arrived = True
        self._sent([last])

    def _passes(self, outgoing: _Outgoing, most: int) -> bool:
        """Make a report smaller for a server that takes less than the wire allows; False when that is not enough."""
        if len(outgoing.data) + HEADER_BYTES > most:
            self._worker.complaints.add(
                "size", f"metrics left out of reports: this server takes {most} bytes a message"
            )
            outgoing.report, outgoing.data = fit(outgoing.report, most)
            self._worker.counts.trimmed = max(self._worker.counts.trimmed, outgoing.report.trimmed)
        passes = len(outgoing.data) + HEADER_BYTES <= most
        self._backlog.dropped += not passes
        return passes

    def _sent(self, outgoing: list[_Outgoing]) -> None:
        self._worker.counts.sent += len(outgoing)
        self._unconfirmed = self._unconfirmed[len(outgoing) :]
        self._spoken = time.monotonic()

    async def _answer(self, link: Link) -> None:
        answered = False
        while self._replies:
            subject, reply = self._replies[0]
            await link.reply(subject, encode(reply))
            self._replies.popleft()
            answered = True
        if answered:
            await link.confirm()

    def _next(self) -> list[_Outgoing]:
        """The oldest reports up to one that wants an ack, or a heartbeat when it is time for one, or none."""
        self._worker.inbox.empty_into(self._backlog)
        entries = self._backlog.take(BATCH)
        if not entries and self._heartbeat_due():
            now = self._worker.standing
            entries = [Entry(time.time(), now.phase, now.step, now.total, now.epoch, now.epochs, {})]
        return [outgoing for entry in entries if (outgoing := self._numbered(entry)) is not None]

    def _heartbeat_due(self) -> bool:
        silent = time.monotonic() - self._spoken
        return self._worker.deadline is None and silent >= self._worker.heartbeat_seconds

    def _numbered(self, entry: Entry) -> _Outgoing | None:
        try:
            return self._outgoing(entry)
        except Exception as error:
            self._worker.complaints.error("encoding a report", error)
            return None

    def _outgoing(self, entry: Entry) -> _Outgoing:
        worker = self._worker
        metrics, nonfinite = finite(entry.metrics, worker.complaints)
        report, data = fit(
            Report(
                run=worker.run,
                seq=self._seq,
                ts=entry.ts,
                pod=worker.identity.pod,
                phase=entry.phase,
                step=entry.step,
                rank=worker.identity.rank,
                world=worker.identity.world,
                total=entry.total,
                epoch=entry.epoch,
                epochs=entry.epochs,
                metrics=metrics,
                nonfinite=nonfinite,
                checkpoint=worker.standing.checkpoint,
                dropped=self._backlog.dropped,
                trimmed=worker.counts.trimmed,
                reason=worker.standing.reason if entry.phase == "failed" else None,
            )
        )
        if report.trimmed > worker.counts.trimmed:
            worker.complaints.add(
                "size", f"metrics left out of the report of step {entry.step}: more than fit one report"
            )
        worker.counts.trimmed = report.trimmed
        worker.counts.dropped = self._backlog.dropped
        self._seq += 1
        return _Outgoing(report, data, entry.acked)

    def _receive(self, data: bytes, subject: str) -> None:
        def reply(answer: Reply) -> None:
            self._replies.append((subject, answer))
            self._worker.wake()

        self._worker.commands.receive(data, reply)

    def _over(self) -> bool:
        """Whether there is nothing more to do: told to stop, and all is sent."""
        worker = self._worker
        if worker.deadline is None:
            return False
        idle = worker.idle()  # first, since what becomes idle leaves a report
        return idle and not (len(worker.inbox) or len(self._backlog) or self._unconfirmed or self._replies)

    async def _rest(self) -> None:
        """Sleep for a tick, or until someone waits for us."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._awake.wait(), TICK_SECONDS)
        self._awake.clear()

    async def _pause(self, seconds: float) -> None:
        """Sleep before the next attempt to connect; a reporter that closes doesn't sleep long."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self._over():
            if self._worker.deadline is not None:
                left = min(left, FIRST_RETRY_SECONDS)
                until = min(until, time.monotonic() + left)
            await asyncio.sleep(min(left, TICK_SECONDS))

    def _found(self) -> None:
        self._worker.counts.connects += 1
        if self._trouble is not None:
            logger.info("connected to NATS again waiting=%d", len(self._backlog) + len(self._unconfirmed))
        self._trouble = None

    def _lost(self, error: LinkError) -> None:
        """Tell of trouble when it changes, not at every attempt."""
        if str(error) != self._trouble:
            logger.warning("reports wait, training goes on, will retry reason=%s", error)
        self._trouble = str(error)


def _wake(loop: asyncio.AbstractEventLoop, awake: asyncio.Event) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has just closed: nobody is left to wake
        loop.call_soon_threadsafe(awake.set)
