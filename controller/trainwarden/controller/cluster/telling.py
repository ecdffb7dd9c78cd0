"""Kubernetes Events on TrainJobs, so that `kubectl describe` tells what was decided and done."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import datetime
from typing import Any, cast

import msgspec
from httpx2 import HTTPError
from lightkube import ApiError, AsyncClient

from trainwarden.controller.bus import Bus, Entry, Reading
from trainwarden.controller.cancelling import end_all
from trainwarden.controller.cluster.resources import Event
from trainwarden.controller.payloads import decode
from trainwarden.policies.decision import ActionState, Decision, Verdict

__all__ = ["Events", "write_event"]

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
        failed = decision.action_state in (ActionState.FAILED, ActionState.REFUSED)
        await write_event(
            self._client,
            (run.namespace, run.job, run.uid),
            name=decision.id[:16],
            reason=f"{action.type.value}{decision.action_state}" if action is not None else decision.verdict.value,
            message=f"{decision.policy}/{decision.rule}: {decision.message}",
            warning=failed or decision.verdict is Verdict.FIRING,
            at=decision.time,
        )


async def write_event(
    client: AsyncClient, job: tuple[str, str, str], *, name: str, reason: str, message: str, warning: bool, at: datetime
) -> None:
    """Write one Event on a TrainJob; one that can't be written is lost.

    Args:
        client: With which it is written.
        job: Namespace, name and UID of the TrainJob.
        name: Of the Event, unique for the job; the same again is not written.
        reason: In one CamelCase word.
        message: For people.
        warning: Whether somebody should look at it.
        at: When it was.
    """
    time_, (namespace, job_name, uid) = at.isoformat(timespec="seconds").replace("+00:00", "Z"), job
    writer, kind = cast("Any", client), cast("Any", Event)
    event = kind(
        metadata={"name": f"{job_name[:200]}.{name}", "namespace": namespace},
        involvedObject={
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "namespace": namespace,
            "name": job_name,
            "uid": uid,
        },
        reason=reason,
        message=message[:1000],
        type="Warning" if warning else "Normal",
        firstTimestamp=time_,
        lastTimestamp=time_,
        count=1,
        source={"component": "trainwarden"},
        reportingComponent="trainwarden.dev/operator",
    )
    try:
        await writer.create(event, namespace=namespace)
    except ApiError as error:
        if error.status.code not in (409, 404, 403):
            log.warning("an event can't be written run=%s/%s reason=%s", namespace, job_name, error)
    except (HTTPError, OSError):
        log.info("an event is lost, the API server is away run=%s/%s", namespace, job_name)
