"""What the engine has decided, on its way to the streams: in order, until acknowledged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from trainwarden.controller.bus import ApiError, Bus
from trainwarden.controller.payloads import encode
from trainwarden.controller.status import RunStatus
from trainwarden.controller.subjects import job_subject
from trainwarden.policies.decision import ActionRequest, Decision
from trainwarden.policies.judge import Judgement
from trainwarden.policies.memory import derived_id
from trainwarden.policies.notice import Notice

__all__ = ["Outbox"]

log = logging.getLogger(__name__)

_MOST = 20_000  # decided things that wait while NATS is away; then the engine stops reading


class Outbox:
    """Publishes decisions before actions, actions before notices, and all of them before the state that has them done.

    A crash between two of these leaves an older state, from which the same things are derived with the same ids.
    """

    def __init__(self, bus: Bus, *, version: str) -> None:
        self._bus, self._version = bus, version
        self._queue: asyncio.Queue[tuple[str, bytes, str]] = asyncio.Queue(_MOST)
        self._states: dict[str, Callable[[], RunStatus]] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._wake = asyncio.Event()

    @property
    def full(self) -> bool:
        """Whether reading must wait."""
        return self._queue.qsize() > _MOST - 1000

    def put(self, namespace: str, job: str, judgement: Judgement, state: Callable[[], RunStatus]) -> None:
        """Take what follows from one look at a job, and the state that has it done.

        The state is made when it is published, so of several looks only the newest costs anything.
        """
        for decision in judgement.decisions:
            self._put_decision(namespace, job, decision)
        for request in judgement.requests:
            self._put_request(namespace, job, request)
        for notice in judgement.notices:
            self._put_notice(namespace, job, notice)
        if judgement.decisions:
            # The state of this very moment: a later one may hold what is still to be put.
            status = state()
            self._put_state(namespace, job, status)
        else:
            self._states[f"{namespace}/{job}"] = state
        self._idle.clear()
        self._wake.set()

    async def settled(self) -> None:
        """Wait until all that was put is acknowledged."""
        await self._idle.wait()

    async def run(self) -> None:
        """Publish until cancelled."""
        while True:
            while not self._queue.empty():
                subject, data, message_id = self._queue.get_nowait()
                await self._store(subject, data, message_id)
            if self._states:
                key = next(iter(self._states))
                status = self._states.pop(key)()
                namespace, job = key.split("/", 1)
                await self._store(job_subject("state", namespace, job), encode(status), _state_id(status))
                continue
            if self._queue.empty():
                self._idle.set()
                self._wake.clear()
                await self._wake.wait()

    async def _store(self, subject: str, data: bytes, message_id: str) -> None:
        try:
            await self._bus.store(subject, data, message_id=message_id)
        except ApiError as error:
            log.error("the stream does not take it subject=%s reason=%s", subject, error.description)

    def _put_decision(self, namespace: str, job: str, decision: Decision) -> None:
        fields = {name: getattr(decision, name) for name in decision.__struct_fields__}
        stamped = Decision(**{**fields, "engine": self._version})
        self._queue.put_nowait((job_subject("decision", namespace, job), encode(stamped), decision.id))

    def _put_request(self, namespace: str, job: str, request: ActionRequest) -> None:
        self._queue.put_nowait((job_subject("action", namespace, job), encode(request), request.action.id))

    def _put_notice(self, namespace: str, job: str, notice: Notice) -> None:
        self._queue.put_nowait((job_subject("notice", namespace, job), encode(notice), notice.id))

    def _put_state(self, namespace: str, job: str, status: RunStatus) -> None:
        self._states.pop(f"{namespace}/{job}", None)
        self._queue.put_nowait((job_subject("state", namespace, job), encode(status), _state_id(status)))


def _state_id(status: RunStatus) -> str:
    return derived_id("state", status.run.uid, status.time.timestamp(), status.judged)
