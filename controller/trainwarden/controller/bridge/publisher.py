"""Posts out as reports, in order for each job. What is known of a run is on the stream, so a restart goes on with it.

One source at a time: while a reporter of ours speaks from the same pod, what the pod posts is left out.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import msgspec
from nats.errors import Error as NatsError

from trainwarden.controller.bridge.pending import Pending, Taken
from trainwarden.controller.bridge.training import RUN_PREFIX, Post, Stored, Training, follow, recover
from trainwarden.controller.bus import ApiError, Bus, BusError
from trainwarden.controller.cancelling import end_all
from trainwarden.controller.subjects import partition_of
from trainwarden.reporters.fitting import fit
from trainwarden.reporters.wire import report_subject

__all__ = ["Publisher"]

log = logging.getLogger(__name__)

_WORKERS = 16
_TRUSTED = 30.0  # seconds that what the stream said holds: another bridge or a reporter may have spoken since
_SILENT = 60.0  # seconds after which a reporter, which speaks every 10 seconds, is gone
_LAST_RETRY = 2.0
_decode = msgspec.json.Decoder(Stored).decode


@dataclass(slots=True)
class _Known:
    """What is known of a job's pod."""

    training: Training | None = None
    looked_at: float = float("-inf")
    reporter: tuple[str, int] | None = None  # run and number of the newest report of a reporter in the same pod
    reporter_at: float = 0.0  # when that was first seen


class Publisher:
    """Sends what is pending until it is cancelled.

    Args:
        bus: The connection.
        pending: Posts to send.
        most: Pods that are kept in mind; of others the stream is asked.
        monotonic: Seconds that never go back.
    """

    def __init__(
        self, bus: Bus, pending: Pending, *, most: int = 10_000, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._bus, self._pending, self._most, self._monotonic = bus, pending, most, monotonic
        self._known: OrderedDict[tuple[str, str, str], _Known] = OrderedDict()
        self.published = 0
        self.repeated = 0  # posts that came twice, or late
        self.superseded = 0  # posts left out because a reporter of ours speaks from the pod

    async def run(self) -> None:
        """Send until cancelled."""
        workers = [asyncio.create_task(self._work()) for _ in range(_WORKERS)]
        try:
            await asyncio.gather(*workers)
        finally:
            await end_all(workers)

    async def _work(self) -> None:
        while True:
            taken = await self._pending.take()
            try:
                await self._send(taken)
            except (BusError, NatsError, OSError, TimeoutError, ValueError) as error:
                log.error("a post is lost run=%s/%s reason=%s", *taken.key, error)
            finally:
                self._pending.done(taken.key)

    async def _send(self, taken: Taken) -> None:
        known = self._of(taken.post)
        for attempt in count(1):
            if self._monotonic() - known.looked_at < _TRUSTED and not (taken.post.begins or taken.post.began):
                break
            try:
                await self._look(taken.post, known)
                break
            except (TimeoutError, NatsError, OSError) as error:
                log.debug("the stream does not answer, will retry reason=%s attempt=%d", type(error).__name__, attempt)
                await asyncio.sleep(min(0.1 * 2 ** min(attempt, 10), _LAST_RETRY))
                taken = self._pending.newest(taken)
                known = self._of(taken.post)
        if known.reporter is not None:
            self.superseded += 1
            known.training = None
            return
        training, report = follow(known.training, taken.post)
        if report is None:
            known.training = training
            self.repeated += 1
            return
        report, data = fit(report)
        namespace, job = taken.key
        try:
            await self._bus.store(report_subject(namespace, job), data, message_id=f"{report.run}:{report.seq}")
        except ApiError as error:  # it will never be taken; what comes next has another size
            log.error("a report is refused run=%s/%s reason=%s", namespace, job, error)
        known.training = training
        self.published += 1

    def _of(self, post: Post) -> _Known:
        sender = post.sender
        key = (sender.namespace, sender.job, sender.pod_uid)
        known = self._known.setdefault(key, _Known())
        self._known.move_to_end(key)
        while len(self._known) > self._most:
            self._known.popitem(last=False)
        return known

    async def _look(self, post: Post, known: _Known) -> None:
        """See what the stream has of the job, and what that says of this pod."""
        stored = await self._stored(post)
        now = self._monotonic()
        known.looked_at = now
        if stored is None or stored.pod != post.sender.host:
            known.reporter = None
            return
        if not stored.run.startswith(RUN_PREFIX):
            seen = (stored.run, stored.seq)
            if seen != known.reporter:
                known.reporter, known.reporter_at = seen, now
            if stored.phase in ("done", "failed") or now - known.reporter_at > _SILENT:
                known.reporter = None
            return
        known.reporter = None
        recovered = recover(stored, post.sender.pod_uid)
        if recovered is None:
            return
        ours = known.training
        if ours is None or ours.run != recovered.run or ours.seq < recovered.seq:
            known.training = recovered

    async def _stored(self, post: Post) -> Stored | None:
        namespace, job = post.sender.namespace, post.sender.job
        subject = f"tw.p.{partition_of(namespace, job)}.report.{namespace}.{job}"
        client = await self._bus.client()
        answer = await client.request(f"$JS.API.DIRECT.GET.TW_REPORTS.{subject}", b"", timeout=2)
        if answer.headers is not None and "Status" in answer.headers and not answer.data:
            if answer.headers["Status"] == "404":
                return None
            raise TimeoutError(f"the stream answers {answer.headers['Status']}")
        try:
            return _decode(answer.data)
        except (ValueError, RecursionError):
            return None  # it does not fit the wire; the engine says so
