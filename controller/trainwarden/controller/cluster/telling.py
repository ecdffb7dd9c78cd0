"""Kubernetes Events on TrainJobs, so that `kubectl describe` tells what was decided and done."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import msgspec
from httpx2 import HTTPError
from lightkube import ApiError, AsyncClient

from trainwarden.controller.bus import Bus, Entry, Reading
from trainwarden.controller.cancelling import end_all
from trainwarden.controller.cluster.resources import Event
from trainwarden.controller.payloads import decode
from trainwarden.policies.decision import ActionState, Decision, Verdict

__all__ = ["Events"]

log = logging.getLogger(__name__)

_OLDEST = 600.0  # seconds; older decisions were told by whoever led before
_MOST_WAITING = 1000
_TOLD = frozenset({ActionState.DONE, ActionState.FAILED, ActionState.REFUSED, ActionState.WOULD_ACT})


class Events:
    """Writes one Event for each decision that matters to a person.

    Args:
        client: With which it writes.
        bus: Where decisions are read.
    """

    def __init__(self, client: AsyncClient, bus: Bus) -> None:
        self._client: Any = client
        self._bus = bus
        self._queue: asyncio.Queue[Decision] = asyncio.Queue(_MOST_WAITING)

    async def run(self) -> None:
        """Work until cancelled."""
        reading = Reading(self._bus, "TW_DECISIONS", take=self._take)
        tasks = [asyncio.create_task(reading.run())]
        try:
            while True:
                await self._write(await self._queue.get())
        finally:
            await end_all(tasks)

    def _take(self, entry: Entry) -> None:
        if entry.time < time.time() - _OLDEST:
            return
        try:
            decision = decode(entry.data, Decision)
        except msgspec.DecodeError:
            return
        matters = decision.action_state in _TOLD if decision.action is not None else decision.verdict in (
            Verdict.FIRING, Verdict.RESOLVED,
        )  # fmt: skip
        if matters and not self._queue.full():
            self._queue.put_nowait(decision)

    async def _write(self, decision: Decision) -> None:
        run, action = decision.run, decision.action
        at = decision.time.isoformat(timespec="seconds").replace("+00:00", "Z")
        failed = decision.action_state in (ActionState.FAILED, ActionState.REFUSED)
        kind: Any = Event
        event = kind(
            metadata={"name": f"{run.job[:200]}.{decision.id[:16]}", "namespace": run.namespace},
            involvedObject={
                "apiVersion": "trainer.kubeflow.org/v1alpha1",
                "kind": "TrainJob",
                "namespace": run.namespace,
                "name": run.job,
                "uid": run.uid,
            },
            reason=f"{action.type.value}{decision.action_state}" if action is not None else decision.verdict.value,
            message=f"{decision.policy}/{decision.rule}: {decision.message}"[:1000],
            type="Warning" if failed or decision.verdict is Verdict.FIRING else "Normal",
            firstTimestamp=at,
            lastTimestamp=at,
            count=1,
            source={"component": "trainwarden"},
            reportingComponent="trainwarden.dev/operator",
        )
        try:
            await self._client.create(event, namespace=run.namespace)
        except ApiError as error:
            if error.status.code not in (409, 404, 403):
                log.warning("an event can't be written run=%s/%s reason=%s", run.namespace, run.job, error)
        except (HTTPError, OSError):
            log.info("an event is lost, the API server is away run=%s/%s", run.namespace, run.job)
