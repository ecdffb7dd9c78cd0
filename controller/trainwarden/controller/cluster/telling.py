"""Kubernetes Events on TrainJobs and policies, so that `kubectl describe` tells what was decided and done."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

import msgspec
from httpx2 import HTTPError
from lightkube import ApiError, AsyncClient

from trainwarden.controller.bus import Bus, Entry, Reading
from trainwarden.controller.cancelling import end_all
from trainwarden.controller.cluster.resources import Event
from trainwarden.controller.payloads import decode
from trainwarden.controller.server_clock import server_time
from trainwarden.policies.decision import ActionState, Decision, PolicyRef, Verdict

__all__ = ["Events", "Subject", "write_event"]

log = logging.getLogger(__name__)

_OLDEST = 600.0  # seconds; older decisions were told by whoever led before
_MOST_WAITING = 1000
_TOLD = frozenset({ActionState.DONE, ActionState.FAILED, ActionState.REFUSED, ActionState.WOULD_ACT})


@dataclass(frozen=True, slots=True)
class Subject:
    """What an Event is of."""

    kind: str
    namespace: str  # empty for what belongs to the cluster
    name: str
    uid: str
    api_version: str = "trainer.kubeflow.org/v1alpha1"


class Events:
    """Writes one Event on the TrainJob and one on the policy for each decision that matters to a person.

    Args:
        client: With which it writes.
        bus: Where decisions are read.
    """

    def __init__(self, client: AsyncClient, bus: Bus) -> None:
        self._client: Any = client
        self._bus = bus
        self._oldest = 0.0  # Unix seconds at the server
        self._queue: asyncio.Queue[Decision] = asyncio.Queue(_MOST_WAITING)
        self._reading = Reading(bus, "TW_DECISIONS", take=self._take)

    async def run(self) -> None:
        """Work until cancelled."""
        self._oldest = await server_time(self._bus) - _OLDEST
        tasks = [asyncio.create_task(self._reading.run())]
        try:
            while True:
                await self._write(await self._queue.get())
        finally:
            await end_all(tasks)

    def _take(self, entry: Entry) -> None:
        if not self._reading.caught_up.is_set() and entry.time < self._oldest:
            return  # it was told when it came
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
        run, action, policy = decision.run, decision.action, decision.policy
        failed = decision.action_state in (ActionState.FAILED, ActionState.REFUSED)
        told = (
            (Subject("TrainJob", run.namespace, run.job, run.uid), f"{policy}/{decision.rule}", decision.id[:16]),
            (_of_policy(policy), f"{run.namespace}/{run.job}: {decision.rule}", decision.id[-16:]),
        )
        for subject, about, name in told:
            await write_event(
                self._client,
                subject,
                name=name,
                reason=f"{action.type.value}{decision.action_state}" if action is not None else decision.verdict.value,
                message=f"{about}: {decision.message}",
                warning=failed or decision.verdict is Verdict.FIRING,
                at=decision.time,
            )


def _of_policy(policy: PolicyRef) -> Subject:
    return Subject(policy.kind, policy.namespace, policy.name, policy.uid, "trainwarden.dev/v1alpha1")


async def write_event(
    client: AsyncClient, subject: Subject, *, name: str, reason: str, message: str, warning: bool, at: datetime
) -> None:
    """Write one Event; one that can't be written is lost.

    Args:
        client: With which it is written.
        subject: What it is of.
        name: Of the Event, unique for the subject; the same again is not written.
        reason: In one CamelCase word.
        message: For people.
        warning: Whether somebody should look at it.
        at: When it was.
    """
    time_ = at.isoformat(timespec="seconds").replace("+00:00", "Z")
    space = subject.namespace or "default"  # where Kubernetes keeps Events of what belongs to the cluster
    writer, kind = cast("Any", client), cast("Any", Event)
    event = kind(
        metadata={"name": f"{subject.name[:200]}.{name}", "namespace": space},
        involvedObject={
            "apiVersion": subject.api_version,
            "kind": subject.kind,
            **({"namespace": subject.namespace} if subject.namespace else {}),
            "name": subject.name,
            "uid": subject.uid,
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
        await writer.create(event, namespace=space)
    except ApiError as error:
        if error.status.code not in (409, 404, 403):
            log.warning("an event can't be written of=%s/%s reason=%s", space, subject.name, error)
    except (HTTPError, OSError):
        log.info("an event is lost, the API server is away of=%s/%s", space, subject.name)
