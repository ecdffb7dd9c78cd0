"""Keeps one TrainingRun per TrainJob, and takes what people answer in its annotations."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from datetime import UTC, datetime
from typing import Any

import msgspec
from httpx2 import HTTPError
from lightkube import ApiError, AsyncClient
from lightkube.types import PatchType
from pydantic import ValidationError

from trainwarden.controller.bus import Bus, Entry, Reading
from trainwarden.controller.cancelling import end_all
from trainwarden.controller.cluster.due import DueRuns
from trainwarden.controller.cluster.reflector import Key, Object, Reflector
from trainwarden.controller.cluster.resources import TrainingRun
from trainwarden.controller.cluster.resuming import resume
from trainwarden.controller.cluster.run_status import status_of_run
from trainwarden.controller.cluster.telling import Subject, write_event
from trainwarden.controller.cluster.watching import Watcher
from trainwarden.controller.executor import REMAINS
from trainwarden.controller.payloads import decode
from trainwarden.controller.publishing import publish_result
from trainwarden.controller.status import RunStatus
from trainwarden.policies.decision import ActionRequest, ActionResult, ActionState, ActionType
from trainwarden.policies.facts import JobPhase, RunFacts
from trainwarden.policies.training_run import APPROVE, DENY, RESUME, TrainingRunStatus

__all__ = ["ANSWERED_BY", "TrainingRuns"]

log = logging.getLogger(__name__)

ANSWERED_BY = "trainwarden.dev/answered-by"
"""Annotation that admission writes: who has set an answer."""
_EVERY = 10.0  # seconds between two writes of one run without a decision
_TICK = 0.2
_AT_ONCE = 16  # writes under way
_BATCH = 64  # after which is looked again for what is urgent
_FIELD_MANAGER = "trainwarden"
_CONFLICT, _NOT_FOUND = 409, 404


class TrainingRuns:
    """Writes the TrainingRuns of all jobs that the watcher knows.

    Args:
        client: With which it reads and writes.
        bus: Where states and results are read, and answers are told.
        watcher: That knows the jobs.
    """

    def __init__(self, client: AsyncClient, bus: Bus, watcher: Watcher) -> None:
        self._client: Any = client
        self._bus, self._watcher = bus, watcher
        self._runs = Reflector(client, TrainingRun, self._run_changed)
        self._states: dict[Key, RunStatus] = {}
        self._asked: dict[str, tuple[str, str]] = {}  # UID and attempt that each suspension was asked for in
        self._suspensions: dict[Key, str] = {}  # newest action that has suspended a job
        self._due = DueRuns()  # by monotonic seconds
        self._written: dict[Key, tuple[float, TrainingRunStatus]] = {}
        self._answers: asyncio.Queue[tuple[Key, Object]] = asyncio.Queue()
        self._resumed: dict[Key, tuple[str, str]] = {}  # UID and question of a resume whose annotation is still there
        self._places = asyncio.Semaphore(_AT_ONCE)
        self.writes = 0

    def facts_changed(self, facts: RunFacts) -> None:
        """Take newer facts of a job."""
        key = (facts.namespace, facts.job)
        written = self._written.get(key)
        at_once = written is None or written[1].state != facts.phase.value or written[1].attempt != facts.attempt
        self._schedule(key, at_once=at_once)

    async def run(self) -> None:
        """Work until cancelled."""
        requests = Reading(self._bus, "TW_ACTIONS", take=self._take_request)
        results = Reading(self._bus, "TW_RESULTS", take=self._take_result)
        states = Reading(self._bus, "TW_STATE", take=self._take_state, newest_only=True)
        tasks = [asyncio.create_task(self._runs.run())]
        try:
            await self._runs.synced.wait()
            for reading in (requests, results, states):
                tasks.append(asyncio.create_task(reading.run()))
                await reading.caught_up.wait()
            tasks += [asyncio.create_task(self._write()), asyncio.create_task(self._answer())]
            await asyncio.gather(*tasks)
        finally:
            await end_all(tasks)

    # ------------------------------------------------------------------ what comes in

    def _take_state(self, entry: Entry) -> None:
        try:
            state = decode(entry.data, RunStatus)
        except msgspec.DecodeError as error:
            log.error("a state can't be read subject=%s reason=%s", entry.subject, error)
            return
        key = (state.run.namespace, state.run.job)
        before = self._states.get(key)
        self._states[key] = state
        self._schedule(key, at_once=before is None or _decided(before) != _decided(state))

    def _take_request(self, entry: Entry) -> None:
        with contextlib.suppress(msgspec.DecodeError):
            request = decode(entry.data, ActionRequest)
            if request.action.type is ActionType.SUSPEND:
                self._asked[request.action.id] = (request.decision.run.uid, request.decision.run.attempt)

    def _take_result(self, entry: Entry) -> None:
        try:
            result = decode(entry.data, ActionResult)
        except msgspec.DecodeError:
            return
        key = (result.namespace, result.job)
        if result.reason in ("Suspended", REMAINS):  # pods of a dead node go later, and the job is suspended by us
            self._suspensions[key] = result.action_id
            self._schedule(key, at_once=True)

    def _suspended_by(self, key: Key) -> str:
        """The action that has suspended the attempt of a job that is the newest still; empty when none has."""
        facts, action_id = self._watcher.facts.get(key), self._suspensions.get(key, "")
        if facts is None or facts.phase is JobPhase.RUNNING:
            return ""
        return action_id if self._asked.get(action_id) == (facts.uid, facts.attempt) else ""

    def _run_changed(self, key: Key, old: Object | None, new: Object | None) -> None:
        if new is None:
            self._written.pop(key, None)
            if key in self._watcher.trainjobs.objects:
                self._schedule(key, at_once=True)
            return
        annotations = new["metadata"].get("annotations") or {}
        if any(name in annotations for name in (APPROVE, DENY, RESUME)):
            self._answers.put_nowait((key, new))

    def _schedule(self, key: Key, *, at_once: bool) -> None:
        if at_once:
            self._due.urge(key)
        else:
            last = self._written[key][0] if key in self._written else -_EVERY
            self._due.add(key, last + _EVERY)

    # ------------------------------------------------------------------ what goes out

    async def _write(self) -> None:
        more = False
        while True:
            if not more:
                await asyncio.sleep(_TICK)
            due = self._due.take(time.monotonic(), _BATCH)
            await asyncio.gather(*(self._write_one(key) for key in due))
            more = len(due) >= _BATCH

    async def _write_one(self, key: Key) -> None:
        facts = self._watcher.facts.get(key)
        trainjob = self._watcher.trainjobs.objects.get(key)
        if facts is None or trainjob is None or trainjob["metadata"]["uid"] != facts.uid:
            self._states.pop(key, None)
            self._written.pop(key, None)
            return
        async with self._places:
            try:
                await self._put(key, facts)
            except ApiError as error:
                if error.status.code != _NOT_FOUND:  # else the job has just been deleted
                    log.warning("a TrainingRun can't be written run=%s reason=%s", "/".join(key), error)
                    self._due.add(key, time.monotonic() + 5.0)
            except (HTTPError, OSError) as error:
                log.info("a TrainingRun is written later run=%s reason=%s", "/".join(key), type(error).__name__)
                self._due.add(key, time.monotonic() + 2.0)
            except Exception:  # whatever is odd about one run, the others are written
                log.exception("a TrainingRun can't be made run=%s", "/".join(key))

    async def _put(self, key: Key, facts: RunFacts) -> None:
        old = self._written[key][1] if key in self._written else self._status(key)
        suspended_by = self._suspended_by(key)
        if not suspended_by and old is not None and facts.phase in (JobPhase.SUSPENDED, JobPhase.QUEUED):
            suspended_by = old.suspended_by
        status = status_of_run(facts, self._states.get(key), old, datetime.now(UTC), suspended_by=suspended_by)
        known = self._runs.objects.get(key)
        if known is not None and known["spec"].get("uid") != facts.uid:
            await self._client.delete(TrainingRun, key[1], namespace=key[0])  # of an earlier job of the same name
            known = None
        if known is None:
            await self._create(key, facts)
        elif old is not None and old.model_copy(update={"time": status.time}) == status:
            return
        body = {"status": status.model_dump(mode="json", by_alias=True)}
        await self._client.patch(
            TrainingRun.Status,
            key[1],
            body,
            namespace=key[0],
            patch_type=PatchType.MERGE,
            field_manager=_FIELD_MANAGER,
        )
        self.writes += 1
        self._written[key] = (time.monotonic(), status)

    async def _create(self, key: Key, facts: RunFacts) -> None:
        owner = {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "name": facts.job,
            "uid": facts.uid,
            "controller": False,
            "blockOwnerDeletion": False,
        }
        kind: Any = TrainingRun
        made = kind(
            apiVersion="trainwarden.dev/v1alpha1",
            kind="TrainingRun",
            metadata={
                "name": key[1],
                "namespace": key[0],
                "labels": dict(facts.labels),
                "ownerReferences": [owner],
            },
            spec={"trainJob": facts.job, "uid": facts.uid},
        )
        try:
            await self._client.create(made, namespace=key[0])
        except ApiError as error:
            if error.status.code != _CONFLICT:
                raise

    def _status(self, key: Key) -> TrainingRunStatus | None:
        status = (self._runs.objects.get(key) or {}).get("status")
        if not status:
            return None
        try:
            return TrainingRunStatus.model_validate(status, strict=False)
        except ValidationError:  # written by another version
            return None

    # ------------------------------------------------------------------ what people answer

    async def _answer(self) -> None:
        while True:
            key, run = await self._answers.get()
            annotations = run["metadata"].get("annotations") or {}
            who = annotations.get(ANSWERED_BY, "somebody")
            try:
                for name, reason in ((APPROVE, "Approved"), (DENY, "Denied")):
                    if name in annotations:
                        await self._tell_answer(key, str(annotations[name]), reason, who)
                asked = (str(run["metadata"]["uid"]), str(annotations.get(RESUME)))
                if RESUME in annotations and self._resumed.get(key) != asked:  # else only the annotation is there still
                    await self._resume(key, who)
                    self._resumed[key] = asked
                gone = dict.fromkeys((APPROVE, DENY, RESUME))
                await self._client.patch(
                    TrainingRun,
                    key[1],
                    {"metadata": {"annotations": gone}},
                    namespace=key[0],
                    patch_type=PatchType.MERGE,
                )
                self._resumed.pop(key, None)
            except (ApiError, HTTPError, OSError) as error:
                log.warning("an answer can't be taken now, will retry run=%s reason=%s", "/".join(key), error)
                await asyncio.sleep(2)
                if key in self._runs.objects:
                    self._answers.put_nowait((key, self._runs.objects[key]))

    async def _tell_answer(self, key: Key, action_id: str, reason: str, who: str) -> None:
        result = ActionResult(
            action_id=action_id,
            namespace=key[0],
            job=key[1],
            state=ActionState.WAITING,
            reason=reason,
            message=f"{reason.lower()} by {who}",
            time=datetime.now(UTC),
        )
        await publish_result(self._bus, result)
        log.info("answered run=%s action=%s answer=%s by=%s", "/".join(key), action_id, reason, who)

    async def _resume(self, key: Key, who: str) -> None:
        trainjob, status = self._watcher.trainjobs.objects.get(key), self._status(key)
        ours = bool(self._suspended_by(key)) or (status is not None and bool(status.suspended_by))
        if trainjob is None:
            return
        if not ours:
            await self._tell_resume(
                trainjob, "ResumeRefused", f"not resumed for {who}: trainwarden has not suspended it"
            )
            return
        try:
            told = await resume(self._client, trainjob, self._watcher.related(key).workload)
        except ApiError as error:
            if (error.status.code or 500) in (_CONFLICT, 429) or (error.status.code or 500) >= 500:
                raise
            told = f"not resumed for {who}: the API server refused it: {error.status.message}"
            await self._tell_resume(trainjob, "ResumeRefused", told)
            return
        await self._tell_resume(trainjob, "ResumeRequested", f"resume was asked for by {who}: {told}")

    async def _tell_resume(self, trainjob: Object, reason: str, message: str) -> None:
        metadata = trainjob["metadata"]
        job = Subject("TrainJob", str(metadata["namespace"]), str(metadata["name"]), str(metadata["uid"]))
        refused = reason == "ResumeRefused"
        log.log(logging.WARNING if refused else logging.INFO, "%s run=%s/%s", message, job.namespace, job.name)
        now = datetime.now(UTC)
        name = f"resume-{int(now.timestamp() * 1000):x}"
        await write_event(self._client, job, name=name, reason=reason, message=message, warning=refused, at=now)


def _decided(state: RunStatus) -> object:
    """What makes a status urgent when it changes."""
    return (
        state.problems,
        [
            (rule.policy, rule.rule, rule.verdict, [(step.state, step.reason) for step in rule.steps])
            for rule in state.rules
        ],
    )
