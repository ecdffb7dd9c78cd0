"""A TrainJob as the executor's target: suspended, stopped or deleted, each write fenced by UID, and seen through."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from httpx2 import HTTPError
from lightkube import ApiError, AsyncClient
from lightkube.types import CascadeType, PatchType

from trainwarden.controller.cluster.brakes import Brakes
from trainwarden.controller.cluster.reflector import Key, Object
from trainwarden.controller.cluster.remains import DELETED, Remains
from trainwarden.controller.cluster.resources import TrainJob, Workload
from trainwarden.controller.cluster.watching import Watcher
from trainwarden.controller.executor import REMAINS, NotDoneError
from trainwarden.policies.decision import ActionRequest, ActionType, Proof, RunRef
from trainwarden.policies.facts import JobPhase, RunFacts

__all__ = ["Targets", "TrainJobTarget"]

log = logging.getLogger(__name__)

_WORKLOADS = 4  # looks for the Workload of a job while it is being replaced
_TRIES = 14  # of a write that others get in the way of, or that the API server can't take now
_LOOK = 0.5  # seconds between two looks at pods
_LISTS = 8  # of pods, at the same time
_FORBIDDEN_TRIES = 5  # an API server that has just started knows no roles for some seconds
_FORBIDDEN, _NOT_FOUND, _CONFLICT = 403, 404, 409


class _AnotherError(NotDoneError):
    """What was to be written has gone, and something else has its name."""


class Targets:
    """Finds the target of a decision.

    Args:
        client: With which it writes.
        watcher: That knows the jobs.
        brakes: Of the whole cluster.
    """

    def __init__(self, client: AsyncClient, watcher: Watcher, brakes: Brakes) -> None:
        self._client, self._watcher, self._brakes = client, watcher, brakes
        self._asking = asyncio.Semaphore(_LISTS)

    def __call__(self, run: RunRef) -> TrainJobTarget | None:
        """The job that a decision is about; None when it is gone, or another has its name."""
        facts = self._watcher.current((run.namespace, run.job))
        if facts is None or facts.uid != run.uid:
            return None
        return TrainJobTarget(self._client, self._watcher, self._brakes, facts, self._remains(run))

    async def remains(self, run: RunRef) -> str:
        """Wait for the pods of a job that is gone; gives what remains of it when that takes long."""
        return await self._remains(run).wait_gone()

    def _remains(self, run: RunRef) -> Remains:
        return Remains(self._client, self._watcher, self._asking, (run.namespace, run.job), run.uid)


class TrainJobTarget:
    """Implements the executor's Target for one TrainJob."""

    def __init__(
        self, client: AsyncClient, watcher: Watcher, brakes: Brakes, facts: RunFacts, remains: Remains
    ) -> None:
        self._client, self._watcher, self._brakes = client, watcher, brakes
        self._key: Key = (facts.namespace, facts.job)
        self._uid = facts.uid
        self._meant = ""  # attempt that is to be ended; any before that is known
        self._gone = remains.wait_gone

    @property
    def _facts(self) -> RunFacts | None:
        facts = self._watcher.current(self._key)
        return facts if facts is not None and facts.uid == self._uid else None

    @property
    def attempt(self) -> str:
        facts = self._facts
        return facts.attempt if facts is not None else ""

    @property
    def alive(self) -> bool:
        facts = self._facts
        return facts is not None and not facts.phase.ended

    @property
    def resume_command(self) -> str:
        return f"trainwarden resume {self._key[1]} --namespace {self._key[0]}"

    @property
    def sees_files(self) -> bool:
        return False

    async def wait_ended(self) -> None:
        while self._runs():  # noqa: ASYNC110 - the watcher has no promise to give for a pod
            await asyncio.sleep(_LOOK)

    def _runs(self) -> bool:
        return self.alive and bool(self._watcher.related(self._key).pods)

    async def problem_of(self, proof: Proof) -> str:
        """Files of a training can't be seen from here: its own digest, made from what it read back, is the proof."""
        return ""

    async def objection(self, request: ActionRequest) -> tuple[str, str] | None:
        facts, type_ = self._facts, request.action.type
        if facts is None:
            return "NoJob", "there is no such job any more"
        if type_ is ActionType.CHECKPOINT:
            return self._brakes.audit()
        if type_ is ActionType.SUSPEND and facts.phase is JobPhase.SUSPENDED:
            return "AlreadySuspended", "the job is suspended already"
        if type_ is ActionType.DELETE and not request.action.include_owned:
            owner = _controller(self._watcher.trainjobs.objects.get(self._key))
            if owner:
                remedy = "delete that, suspend the job, or say includeOwned: true"
                return "Owned", f"it belongs to {owner}, which may make it again; {remedy}"
        return self._brakes.take(request.action.id, facts.gpus, self._gpus_of_all(), time.monotonic())

    def forget(self, action_id: str) -> None:
        self._brakes.forget(action_id)

    def _gpus_of_all(self) -> int:
        return sum(each.gpus for each in self._watcher.facts.values() if each.phase is JobPhase.RUNNING)

    async def end(self, request: ActionRequest, *, proof: Proof | None) -> None:
        facts = self._facts
        if facts is not None and facts.phase in (JobPhase.COMPLETE, JobPhase.FAILED):
            raise NotDoneError("JobEnded", "the job ended by itself", refused=True)
        if facts is not None and facts.phase not in (JobPhase.SUSPENDED, JobPhase.DELETING):  # else the effect is there
            objection = self._brakes.take(request.action.id, facts.gpus, self._gpus_of_all(), time.monotonic())
            if objection is not None:
                raise NotDoneError(*objection, refused=True)
        self._meant = request.decision.run.attempt
        await (self._delete() if request.action.type is ActionType.DELETE else self._suspend())

    async def _suspend(self) -> None:
        """Ask for the suspension where it lasts, and wait until the pods are gone."""
        by_kueue = await self._deactivate()
        if not by_kueue:
            await self._suspend_itself()
        remains = await self._gone(suspended=True)
        if remains and by_kueue:
            # Kueue's own update of the job can be refused for ever; with its Workload inactive it leaves ours alone.
            await self._suspend_itself()
            remains = await self._gone(suspended=True)
        if remains:
            raise NotDoneError(REMAINS, f"it was asked for, but {remains}")

    async def _suspend_itself(self) -> None:
        try:
            await self._patch(TrainJob, self._key[1], {"suspend": True}, self._uid)
        except ApiError as error:
            if error.status.code != _NOT_FOUND:
                raise
            raise NotDoneError(*DELETED, refused=True) from error

    async def _deactivate(self) -> bool:
        """Have Kueue suspend the job, where it manages it; one Workload may just have taken another's place."""
        for _ in range(_WORKLOADS):
            workload = self._watcher.related(self._key).workload
            if workload is None:
                facts = self._facts
                if facts is None or not facts.queue or not self._watcher.has_workloads:
                    return False
                await asyncio.sleep(2.0)  # Kueue would soon undo a suspension of the TrainJob itself
                continue
            metadata = workload["metadata"]
            try:
                await self._patch(Workload, str(metadata["name"]), {"active": False}, str(metadata["uid"]))
            except (ApiError, _AnotherError):
                await asyncio.sleep(2.0)
            else:
                return True
        raise NotDoneError("NoWorkload", "Kueue manages the job, and its Workload can't be written")

    async def _delete(self) -> None:
        async def delete() -> None:
            inner: Any = self._client._client  # its own `delete` has no room for preconditions
            asked = inner.prepare_request(
                "delete",
                TrainJob,
                None,
                self._key[1],
                self._key[0],
                params={"propagationPolicy": CascadeType.BACKGROUND.value},
            )
            asked.data = {"preconditions": {"uid": self._uid}}
            inner.raise_for_status(await inner.send(inner.build_adapter_request(asked)))

        try:
            await self._tried(delete)
        except ApiError as error:
            if error.status.code != _NOT_FOUND:
                raise
        if remains := await self._gone():
            raise NotDoneError(REMAINS, f"it was deleted, but {remains}")

    async def _patch(self, kind: type[Any], name: str, spec: Object, uid: str) -> None:
        """Merge-patch these fields alone, of the object with this UID alone."""

        async def patch() -> None:
            client: Any = self._client
            body = {"metadata": {"uid": uid}, "spec": spec}
            await client.patch(kind, name, body, namespace=self._key[0], patch_type=PatchType.MERGE)

        await self._tried(patch)

    async def _tried(self, write: Callable[[], Awaitable[None]]) -> None:
        """Write, and again when the API server can't take it now.

        Raises:
            NotDoneError: It was refused.
        """
        wait = 0.5
        for attempt in range(_TRIES):
            facts = self._facts
            if self._meant and facts is not None and facts.attempt != self._meant:
                raise NotDoneError("AttemptOver", "another attempt has begun meanwhile", refused=True)
            try:
                await write()
                return  # noqa: TRY300 - what follows is for another try
            except ApiError as error:
                code = error.status.code or 0
                if code == _CONFLICT and "UID" in (error.status.message or ""):
                    raise _AnotherError("NoJob", "another job has its name now", refused=True) from error
                if code == _NOT_FOUND:
                    raise
                refused = code not in (_CONFLICT, _FORBIDDEN, 429) and code < 500
                if refused or attempt == _TRIES - 1 or (code == _FORBIDDEN and attempt >= _FORBIDDEN_TRIES):
                    raise NotDoneError("ApiRefused", f"the API server refused it: {error.status.message}") from error
                log.info("a write will be tried again job=%s reason=%s", "/".join(self._key), error.status.message)
            except (HTTPError, OSError) as error:
                if attempt == _TRIES - 1:
                    raise NotDoneError("ApiAway", f"the API server can't be reached: {type(error).__name__}") from error
            await asyncio.sleep(wait)
            wait = min(wait * 2, 15.0)


def _controller(item: Object | None) -> str:
    owners = ((item or {}).get("metadata") or {}).get("ownerReferences") or ()
    return next((f"{each['kind']} {each['name']}" for each in owners if each.get("controller")), "")
