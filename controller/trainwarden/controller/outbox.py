"""What the engine has decided, on its way to the streams: in order, until acknowledged."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Callable

import msgspec

from trainwarden.controller.bus import ApiError, Bus
from trainwarden.controller.cutting import cut
from trainwarden.controller.payloads import encode
from trainwarden.controller.status import RunStatus
from trainwarden.controller.subjects import job_subject
from trainwarden.policies.judge import Judgement

__all__ = ["Outbox"]

log = logging.getLogger(__name__)

_MOST = 20_000  # decided things that wait while NATS is away; then the engine stops reading

_MOST_BYTES = (512 * 1024, 64 * 1024, 16 * 1024)  # of a message; less when the server takes no more
_STATE = "tw.state."


class Outbox:
    """Publishes decisions before actions, actions before notices, and all of them before the state that has them done.

    A crash between two of these leaves an older state, from which the same things are derived with the same ids.
    """

    def __init__(self, bus: Bus, *, version: str) -> None:
        self._bus, self._version = bus, version
        self._queue: deque[tuple[str, bytes, str]] = deque()
        self._states: dict[tuple[str, str], Callable[[], RunStatus]] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._wake = asyncio.Event()

    @property
    def full(self) -> bool:
        """Whether reading must wait. What is put nevertheless is kept."""
        return len(self._queue) >= _MOST

    def put(self, namespace: str, job: str, judgement: Judgement, state: Callable[[], RunStatus]) -> None:
        """Take what follows from one look at a job, and the state that has it done.

        The state is made when it is published, so of several looks only the newest costs anything; with a decision it
        is made now, since a later one may hold what is still to be put.
        """
        queue = self._queue
        for decision in judgement.decisions:
            stamped = msgspec.structs.replace(decision, engine=self._version)
            queue.append((job_subject("decision", namespace, job), encode(stamped), decision.id))
        for request in judgement.requests:
            queue.append((job_subject("action", namespace, job), encode(request), request.action.id))
        for notice in judgement.notices:
            queue.append((job_subject("notice", namespace, job), encode(notice), notice.id))
        if judgement.decisions:
            self._states.pop((namespace, job), None)
            self._put_state(namespace, job, state)
        else:
            self._states[namespace, job] = state
        self._idle.clear()
        self._wake.set()

    async def settled(self) -> None:
        """Wait until all that was put is acknowledged."""
        await self._idle.wait()

    async def run(self) -> None:
        """Publish until cancelled."""
        while True:
            while self._queue:
                await self._store(*self._queue[0])
                self._queue.popleft()
            if self._states:
                key = next(iter(self._states))
                self._put_state(*key, self._states.pop(key))
            else:
                self._idle.set()
                self._wake.clear()
                await self._wake.wait()

    async def _store(self, subject: str, data: bytes, message_id: str) -> None:
        """Store it, cut when it is too large: a decision may lose some of its evidence, but is never lost itself."""
        for most in _MOST_BYTES:
            fitting = cut(data, most, entries=not subject.startswith(_STATE))
            try:
                await self._bus.store(subject, fitting, message_id=message_id)
            except ApiError as error:
                log.error(
                    "the stream does not take it subject=%s bytes=%d reason=%s",
                    subject,
                    len(fitting),
                    error.description,
                )
                continue
            if fitting is not data:
                log.warning("a message was cut subject=%s bytes=%d from=%d", subject, len(fitting), len(data))
            return

    def _put_state(self, namespace: str, job: str, state: Callable[[], RunStatus]) -> None:
        try:
            data = encode(state())
        except Exception:
            log.exception("the state of a run can't be told run=%s/%s", namespace, job)
            return
        self._queue.append((job_subject("state", namespace, job), data, uuid.uuid4().hex))
