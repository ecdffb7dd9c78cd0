"""The engine: reports, facts and policies in; decisions, actions, notices and state out. NATS only, no Kubernetes.

All input has the time at which JetStream stored it, so that a replay after a restart gives the same ages. On its start
the engine reads policies, facts and states, replays the reports into runs, and judges from where the state had judged.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Literal

import msgspec

from trainwarden.controller.bus import Bus, Entry, Reading
from trainwarden.controller.decoding import HeardReport, RejectedError, decode_report
from trainwarden.controller.jobs import Early, Job
from trainwarden.controller.outbox import Outbox
from trainwarden.controller.payloads import decode, decode_policy
from trainwarden.controller.status import RunStatus, status_of
from trainwarden.controller.subjects import PARTITIONS, job_of, job_subject, partition_of, stored_reports
from trainwarden.policies.compiling import CompiledPolicy, compile_policy
from trainwarden.policies.decision import ActionResult
from trainwarden.policies.expressions.engines import engine as cel_engine
from trainwarden.policies.facts import RunFacts
from trainwarden.policies.judge import Judgement, apply_result, judge
from trainwarden.policies.memory import forget
from trainwarden.policies.problems import PolicyInvalidError
from trainwarden.policies.run import RunState

__all__ = ["Engine"]

log = logging.getLogger(__name__)

_APART = 0.1  # seconds between two looks at one run; reports in between are looked at together
_STATUS_EVERY = 1.0  # seconds between two states of one run without a decision
_MOST_EARLY = 1_000  # reports kept per job, and jobs, while nothing is known of the job
_TICK = 0.02


class Engine:
    """Judges all jobs of its partitions.

    Args:
        bus: The connection; the streams are there.
        partitions: Which of the 16 are ours.
        cel: The CEL engine; None takes the C++ one where there is a wheel.
        version: Put into each decision.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        partitions: range = range(PARTITIONS),
        cel: Literal["cpp", "python"] | None = None,
        version: str = "",
    ) -> None:
        self._bus = bus
        self._partitions = frozenset(partitions)
        self._cel = cel_engine(cel)
        self._outbox = Outbox(bus, version=version)
        self._jobs: dict[tuple[str, str], Job] = {}
        self._early: dict[tuple[str, str], Early] = {}
        self._remembered: dict[tuple[str, str], RunStatus] = {}
        self._policies: dict[str, CompiledPolicy] = {}
        self._problems: dict[str, str] = {}
        self._order: list[CompiledPolicy] = []
        self._wakes: list[tuple[float, tuple[str, str]]] = []
        self._live = False  # all that was stored before the start has been taken
        self.rejected = 0
        self.ready = asyncio.Event()

    async def run(self, stop: asyncio.Event | None = None) -> None:
        """Work until `stop` is set, or for ever."""
        stop = stop or asyncio.Event()
        bus = self._bus
        subjects = tuple(stored_reports(partition) for partition in sorted(self._partitions))
        reports = Reading(bus, "TW_REPORTS", take=self._take_report, subjects=subjects)
        results = Reading(bus, "TW_RESULTS", take=self._take_result)
        facts = Reading(bus, "TW_FACTS", take=self._take_facts, newest_only=True)
        policies = Reading(bus, "TW_POLICIES", take=self._take_policy, newest_only=True)
        states = Reading(bus, "TW_STATE", take=self._take_state, newest_only=True)
        tasks = [asyncio.create_task(self._outbox.run())]
        try:
            remembering = asyncio.create_task(states.run())
            await self._or_failure(states.caught_up.wait(), [remembering])
            remembering.cancel()
            tasks += [asyncio.create_task(reading.run()) for reading in (policies, facts)]
            await self._or_failure(policies.caught_up.wait(), tasks)
            await self._or_failure(facts.caught_up.wait(), tasks)
            tasks += [asyncio.create_task(reading.run()) for reading in (reports, results)]
            await self._or_failure(reports.caught_up.wait(), tasks)
            await self._or_failure(results.caught_up.wait(), tasks)
            self._live = True
            for key in list(self._jobs):
                self._look(key, time.time())
            self.ready.set()
            tasks.append(asyncio.create_task(self._keep_time()))
            await self._or_failure(stop.wait(), tasks)
            await asyncio.wait_for(self._outbox.settled(), 5)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _or_failure(self, waiting: Awaitable[object], tasks: list[asyncio.Task[None]]) -> None:
        """Wait, but not past the end of a task that must not end."""
        awaited = asyncio.ensure_future(waiting)
        done, _ = await asyncio.wait([awaited, *tasks], return_when=asyncio.FIRST_COMPLETED)
        if awaited in done:
            return
        awaited.cancel()
        for task in done:
            if task is not awaited:
                task.result()

    # ------------------------------------------------------------------ what comes in

    def _take_report(self, entry: Entry) -> Awaitable[None] | None:
        try:
            report = decode_report(entry.data)
        except RejectedError as error:
            return self._reject(entry, str(error))
        key = job_of(entry.subject)
        job = self._jobs.get(key)
        if job is None:
            self._keep_early(key, report, entry)
            return None
        self._observe(key, job, report, entry.sequence, entry.time)
        return self._wait_for_room() if self._outbox.full else None

    def _observe(self, key: tuple[str, str], job: Job, report: HeardReport, sequence: int, at: float) -> None:
        job.run.observe(report, datetime.fromtimestamp(at, UTC))
        job.seen = sequence
        job.changed = True
        if sequence <= job.judged:
            return  # an earlier engine has judged it
        if at - job.judged_at >= _APART:
            self._look(key, at)
        elif self._live:
            self._wake(key, job, job.judged_at + _APART)

    def _keep_early(self, key: tuple[str, str], report: HeardReport, entry: Entry) -> None:
        if partition_of(*key) not in self._partitions:
            return
        early = self._early.get(key)
        if early is None:
            if len(self._early) >= _MOST_EARLY:
                self._early.pop(next(iter(self._early)))
            early = self._early[key] = Early()
        early.reports.append((report, entry.sequence, entry.time))
        del early.reports[:-_MOST_EARLY]

    async def _reject(self, entry: Entry, reason: str) -> None:
        self.rejected += 1
        if not self._live:
            return  # it was kept when it came first
        namespace, name = job_of(entry.subject)
        client = await self._bus.client()
        headers = {"Trainwarden-Reason": reason[:200].encode("ascii", "replace").decode()}
        await client.publish(job_subject("rejected", namespace, name), entry.data[:65_536], headers=headers)
        log.warning("report rejected run=%s/%s reason=%s", namespace, name, reason)

    async def _wait_for_room(self) -> None:
        while self._outbox.full:  # noqa: ASYNC110 - a moment's rest, without a promise of the queue
            await asyncio.sleep(0.05)

    def _take_facts(self, entry: Entry) -> None:
        try:
            facts = decode(entry.data, RunFacts)
        except msgspec.DecodeError as error:
            log.error("facts can't be read subject=%s reason=%s", entry.subject, error)
            return
        key = (facts.namespace, facts.job)
        if partition_of(*key) not in self._partitions:
            return
        job = self._jobs.get(key)
        if job is None or job.run.facts.uid != facts.uid:
            job = self._jobs[key] = self._new_job(facts)
            for report, sequence, at in self._early.pop(key, Early()).reports:
                self._observe(key, job, report, sequence, at)
        else:
            job.run.learn(facts)
        job.changed = True
        if self._live:
            self._look(key, time.time())

    def _new_job(self, facts: RunFacts) -> Job:
        job = Job(RunState(facts))
        known = self._remembered.get((facts.namespace, facts.job))
        if known is not None and known.run.uid == facts.uid:
            job.memory, job.judged = known.memory, known.judged
        return job

    def _take_policy(self, entry: Entry) -> None:
        key = entry.subject
        old = self._policies.pop(key, None)
        self._problems.pop(key, None)
        if entry.data:
            try:
                self._policies[key] = compile_policy(decode_policy(entry.data), self._cel)
            except (PolicyInvalidError, ValueError) as error:
                self._problems[key] = f"{key.removeprefix('tw.policy.')}: {error}"
                log.error("policy can't be used and is not acted on policy=%s reason=%s", key, error)
        elif old is not None:
            for job in self._jobs.values():
                forget(old.uid, job.memory)
        self._order = [self._policies[name] for name in sorted(self._policies)]
        if self._live:
            for each in list(self._jobs):
                self._look(each, time.time())

    def _take_state(self, entry: Entry) -> None:
        try:
            self._remembered[job_of(entry.subject)] = decode(entry.data, RunStatus)
        except msgspec.DecodeError as error:
            log.error("a state can't be read, the run is judged anew subject=%s reason=%s", entry.subject, error)

    def _take_result(self, entry: Entry) -> None:
        try:
            result = decode(entry.data, ActionResult)
        except msgspec.DecodeError as error:
            log.error("a result can't be read subject=%s reason=%s", entry.subject, error)
            return
        key = (result.namespace, result.job)
        job = self._jobs.get(key)
        if job is not None:
            now = datetime.fromtimestamp(max(entry.time, job.judged_at), UTC)
            self._guarded(key, job, lambda: apply_result(result, self._order, job.run, job.memory, now))

    # ------------------------------------------------------------------ judging

    def _look(self, key: tuple[str, str], at: float) -> None:
        job = self._jobs[key]
        job.judged_at = at
        job.judged = max(job.judged, job.seen)
        now = datetime.fromtimestamp(at, UTC)
        self._guarded(key, job, lambda: judge(self._order, job.run, job.memory, now))

    def _guarded(self, key: tuple[str, str], job: Job, work: Callable[[], Judgement]) -> None:
        """One run that can't be judged must not stop the others."""
        try:
            judgement = work()
        except Exception as error:
            if job.faulty != str(error):
                log.exception("a run can't be judged run=%s/%s", *key)
            job.faulty = str(error)
            return
        job.faulty = ""
        if judgement.wake_at is not None:
            self._wake(key, job, judgement.wake_at.timestamp())
        at = max(job.judged_at, job.told_at)
        if judgement.decisions or (job.changed and at - job.told_at >= _STATUS_EVERY):
            job.told_at, job.changed = at, False
            self._outbox.put(*key, judgement, lambda: self._status(key, job))

    def _status(self, key: tuple[str, str], job: Job) -> RunStatus:
        now = datetime.fromtimestamp(max(job.judged_at, time.time() if self._live else 0.0), UTC)
        return status_of(job.run, job.memory, self._order, now, job.judged, tuple(self._problems.values()))

    def _wake(self, key: tuple[str, str], job: Job, at: float) -> None:
        if job.wake_at is None or at < job.wake_at:
            job.wake_at = at
            heapq.heappush(self._wakes, (at, key))

    async def _keep_time(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            now = time.time()
            wakes = self._wakes
            while wakes and wakes[0][0] <= now:
                at, key = heapq.heappop(wakes)
                job = self._jobs.get(key)
                if job is None or job.wake_at != at:
                    continue
                job.wake_at = None
                if job.run.facts.phase.ended and not job.changed:
                    continue
                job.changed = True
                self._look(key, now)
            if self._outbox.full:
                await self._wait_for_room()
