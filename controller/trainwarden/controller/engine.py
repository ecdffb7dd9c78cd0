"""The engine: reports, facts and policies in; decisions, actions, notices and state out. NATS only, no Kubernetes.

All input has the time at which JetStream stored it, and the engine goes by that clock. On its start it reads states,
policies, facts and results, replays the reports into runs, and judges them from where the state had judged, each as it
would have been judged then. So what was decided before a crash is decided again with the same ids.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Literal

import msgspec
from nats.errors import Error as NatsError

from trainwarden.controller.bus import Bus, Entry, Reading
from trainwarden.controller.cancelling import end_all
from trainwarden.controller.decoding import RejectedError, decode_report
from trainwarden.controller.jobs import Allowance, EarlyReports, Heard, Job, Key, Remembered, begin, by_our_clock
from trainwarden.controller.looking import Next, Schedule
from trainwarden.controller.outbox import Outbox
from trainwarden.controller.payloads import decode, decode_policy
from trainwarden.controller.pulse import PULSE, keep_pulse
from trainwarden.controller.server_clock import ServerClock
from trainwarden.controller.status import RunStatus, status_of
from trainwarden.controller.subjects import PARTITIONS, job_of, job_subject, partition_of, stored_reports
from trainwarden.policies.compiling import CompiledPolicy, compile_policy
from trainwarden.policies.decision import ActionResult
from trainwarden.policies.expressions.engines import engine as cel_engine
from trainwarden.policies.facts import JobPhase, RunFacts
from trainwarden.policies.hearing import Hearing
from trainwarden.policies.judge import Judgement, apply_result, judge, withdraw

__all__ = ["Engine"]

log = logging.getLogger(__name__)

_EARLY_LOOKS = 1_000.0  # per second that are taken at once nevertheless, while few reports wait
_FEW = 20
_STATUS_EVERY = 1.0  # seconds between two states of one run without a decision
_TICK = 0.01
_MOST_ENDED = 200  # ended jobs that are held; of older ones only what is remembered
_MOST_REMEMBERED = 20_000
_WARN_EVERY = 10.0


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
        self._clock = ServerClock()
        self._hearing = Hearing()
        self._outbox = Outbox(bus, version=version)
        self._jobs: dict[Key, Job] = {}
        self._ended: OrderedDict[Key, None] = OrderedDict()
        self._early = EarlyReports()
        self._remembered: OrderedDict[Key, Remembered] = OrderedDict()
        self._policies: dict[str, CompiledPolicy] = {}
        self._problems: dict[str, str] = {}
        self._order: list[CompiledPolicy] = []
        self._replayed = False  # all that was stored before the start has been taken
        self._timed = asyncio.Event()  # something has come since, so that the time at the server is known
        self._live = False
        self._schedule = Schedule(self._clock.now, Allowance(_EARLY_LOOKS))
        self._warned_at = 0.0
        self.rejected = 0
        self.ready = asyncio.Event()

    @property
    def held(self) -> int:
        """Jobs whose runs are in memory."""
        return len(self._jobs)

    async def run(self, stop: asyncio.Event | None = None) -> None:
        """Work until `stop` is set, or for ever."""
        stop = stop or asyncio.Event()
        subjects = (PULSE, *(stored_reports(partition) for partition in sorted(self._partitions)))
        states = self._reading("TW_STATE", self._take_state, newest_only=True)
        policies = self._reading("TW_POLICIES", self._take_policy, newest_only=True)
        facts = self._reading("TW_FACTS", self._take_facts, newest_only=True)
        results = self._reading("TW_RESULTS", self._take_result)
        reports = self._reading("TW_REPORTS", self._take_report, subjects=subjects, renewed=self._reports_lost)
        tasks = [asyncio.create_task(self._outbox.run())]
        try:
            remembering = asyncio.create_task(states.run())
            try:
                await self._or_failure(states.caught_up.wait(), [remembering, *tasks])
            finally:
                await end_all([remembering])
            for reading in (policies, facts, results, reports):
                tasks.append(asyncio.create_task(reading.run()))
                await self._or_failure(reading.caught_up.wait(), tasks)
            self._replayed = True
            tasks.append(asyncio.create_task(keep_pulse(self._bus)))
            await self._or_failure(self._timed.wait(), tasks)
            self._go_live(reports.newest)
            tasks.append(asyncio.create_task(self._keep_time()))
            self.ready.set()
            await self._or_failure(stop.wait(), tasks)
            with contextlib.suppress(TimeoutError):  # what is not told now is decided again
                await asyncio.wait_for(self._outbox.settled(), 5)
        finally:
            await end_all(tasks)

    def _reading(
        self,
        stream: str,
        take: Callable[[Entry], Awaitable[None] | None],
        *,
        subjects: tuple[str, ...] = (),
        newest_only: bool = False,
        renewed: Callable[[int], None] | None = None,
    ) -> Reading:
        def taken(entry: Entry) -> Awaitable[None] | None:
            self._clock.see(entry.time)
            try:
                return take(entry)
            except Exception:  # whatever is wrong with one message, the others are read
                log.exception("a message can't be used and is passed over subject=%s", entry.subject)
                return None

        return Reading(self._bus, stream, take=taken, subjects=subjects, newest_only=newest_only, renewed=renewed)

    async def _or_failure(self, waiting: Awaitable[object], tasks: list[asyncio.Task[None]]) -> None:
        """Wait, but not past the end of a task that must not end."""
        awaited = asyncio.ensure_future(waiting)
        try:
            done, _ = await asyncio.wait([awaited, *tasks], return_when=asyncio.FIRST_COMPLETED)
        finally:
            awaited.cancel()
        for task in tasks:
            if task in done and awaited not in done:
                task.result()

    def _go_live(self, newest: int) -> None:
        """The stream has been replayed: from here on, time goes on by itself."""
        now = self._clock.now()
        for key, job in list(self._jobs.items()):
            if job.judged > newest:  # the stream has lost what was judged
                job.judged = job.seen
            self._catch_up(key, job, now)
            self._apply(key, job, math.inf)
        self._schedule.go_live(self._jobs.values())
        self._live = True
        self._look_at_all()

    # ------------------------------------------------------------------ what comes in

    def _take_report(self, entry: Entry) -> Awaitable[None] | None:
        if self._replayed:
            self._timed.set()
        if entry.subject == PULSE:
            self._hearing.pulse(entry.data[:80].decode(errors="replace"), entry.time)
            return None
        try:
            report = decode_report(entry.data)
        except RejectedError as error:
            return self._reject(entry, str(error))
        key = job_of(entry.subject)
        heard = Heard(report, entry.sequence, entry.time, fresh=entry.pending < _FEW)
        job = self._jobs.get(key)
        if job is None:
            if partition_of(*key) in self._partitions:
                self._early.keep(key, heard)
            return None
        self._observe(key, job, heard)
        return self._wait_for_room() if self._outbox.full else None

    def _observe(self, key: Key, job: Job, heard: Heard) -> None:
        at = heard.at
        if at < job.since:
            return
        anew = heard.sequence > job.judged  # no earlier engine has judged it
        if anew and not self._live:
            self._catch_up(key, job, at)
        job.run.observe(heard.report, datetime.fromtimestamp(at, UTC))
        job.seen = heard.sequence
        job.changed = True
        if anew and self._schedule.looks_at_once(key, job, at, fresh=heard.fresh):
            self._look(key, job, at)

    async def _reject(self, entry: Entry, reason: str) -> None:
        self.rejected += 1
        if not self._live:
            return  # it was kept when it came first
        namespace, name = job_of(entry.subject)
        headers = {"Trainwarden-Reason": reason[:200].encode("ascii", "replace").decode().replace("\n", " ")}
        if time.monotonic() - self._warned_at >= _WARN_EVERY:
            self._warned_at = time.monotonic()
            log.warning("report rejected run=%s/%s reason=%s total=%d", namespace, name, reason, self.rejected)
        with contextlib.suppress(NatsError, OSError, TimeoutError):
            client = await self._bus.client()
            await client.publish(job_subject("rejected", namespace, name), entry.data, headers=headers)

    async def _wait_for_room(self) -> None:
        while self._outbox.full:  # noqa: ASYNC110 - a moment's rest, without a promise of the queue
            await asyncio.sleep(0.05)

    def _reports_lost(self, newest: int) -> None:
        """The stream of reports has nothing after this sequence any more; what comes is new."""
        for job in self._jobs.values():
            job.judged, job.seen = min(job.judged, newest), min(job.seen, newest)

    def _take_facts(self, entry: Entry) -> None:
        facts = decode(entry.data, RunFacts)
        key = (facts.namespace, facts.job)
        if key != job_of(entry.subject):
            log.error("facts are of another job than their subject subject=%s job=%s", entry.subject, "/".join(key))
            return
        if partition_of(*key) not in self._partitions:
            return
        job = self._jobs.get(key)
        facts = by_our_clock(facts, entry.time, job.run.facts.time if job is not None else None)
        if job is not None and job.run.facts.uid == facts.uid:
            job.run.learn(facts)
        else:
            known = self._remembered.get(key)
            if known is not None and known.over and known.uid == facts.uid and facts.phase.ended:
                return  # all is decided and told
            self._ended.pop(key, None)
            if job is not None:
                self._end_replaced(key, job)
            job = self._jobs[key] = begin(facts, self._hearing, self._remembered.pop(key, None), predecessor=job)
            self._schedule.resume(job)
            for heard in self._early.pop(key):
                self._observe(key, job, heard)
        job.changed = True
        if self._live:
            self._look(key, job, self._clock.now())

    def _end_replaced(self, key: Key, job: Job) -> None:
        """Another job has the name now, so this one is gone, whether or not that was told."""
        if not job.run.facts.phase.ended:
            job.run.learn(msgspec.structs.replace(job.run.facts, phase=JobPhase.DELETING, ready=False))
            self._look(key, job, max(self._clock.now() if self._live else 0.0, job.judged_at))

    def _take_policy(self, entry: Entry) -> None:
        key = entry.subject
        old = self._policies.pop(key, None)
        self._problems.pop(key, None)
        if entry.data:
            try:
                self._policies[key] = compile_policy(decode_policy(entry.data), self._cel)
            except Exception as error:  # a policy is what a user wrote
                self._problems[key] = f"{key.removeprefix('tw.policy.')}: {error}"
                log.error("policy can't be used and is not acted on policy=%s reason=%s", key, error)
        new = self._policies.get(key)
        if old is not None and (new.uid != old.uid if new is not None else not entry.data):
            for each, job in list(self._jobs.items()):
                self._withdraw(each, job, old)
        self._order = [self._policies[name] for name in sorted(self._policies)]
        if self._live:
            self._look_at_all()

    def _withdraw(self, key: Key, job: Job, policy: CompiledPolicy) -> None:
        now = datetime.fromtimestamp(max(self._clock.now(), job.judged_at), UTC)
        self._guarded(key, job, lambda: withdraw(policy, job.run, job.memory, now))

    def _take_state(self, entry: Entry) -> None:
        key = job_of(entry.subject)
        if partition_of(*key) in self._partitions:
            status = decode(entry.data, RunStatus)
            self._remember(
                key,
                Remembered(
                    status.run.uid,
                    status.memory,
                    status.judged,
                    status.time.timestamp(),
                    JobPhase(status.job_phase).ended and not status.memory.engaged,
                ),
            )

    def _remember(self, key: Key, what: Remembered) -> None:
        self._remembered[key] = what
        self._remembered.move_to_end(key)
        if len(self._remembered) > _MOST_REMEMBERED:
            self._remembered.popitem(last=False)

    def _take_result(self, entry: Entry) -> None:
        result = decode(entry.data, ActionResult)
        key = (result.namespace, result.job)
        job = self._jobs.get(key)
        if job is None:
            return
        job = job.that_asked(result.action_id)
        job.keep(result, entry.time)
        if job.knows(result.action_id):
            job.match([result.action_id])
        if self._live:
            self._apply(key, job, math.inf)

    # ------------------------------------------------------------------ judging

    def _apply(self, key: Key, job: Job, until: float) -> None:
        """Apply the results that are there up to a time, of actions that are known."""
        while job.due and job.due[0][1] <= until:
            result, at = job.due.pop(0)
            now = datetime.fromtimestamp(max(at, job.judged_at), UTC)
            self._guarded(key, job, partial(apply_result, result, self._order, job.run, job.memory, now))

    def _catch_up(self, key: Key, job: Job, until: float) -> None:
        """Do in a replay what time alone would have done before a moment: waits that were over, results that came."""
        while (step := self._schedule.next_before(job, until)) is not None:
            what, at = step
            if what is Next.RESULT:
                self._apply(key, job, at)
            else:
                self._look(key, job, at)

    def _look_at_all(self) -> None:
        for key, job in list(self._jobs.items()):
            self._look(key, job, self._clock.now())

    def _look(self, key: Key, job: Job, at: float) -> None:
        at = job.judged_at = self._schedule.moment(job, at)
        job.judged = max(job.judged, job.seen)
        now = datetime.fromtimestamp(at, UTC)
        self._guarded(key, job, lambda: judge(self._order, job.run, job.memory, now))

    def _guarded(self, key: Key, job: Job, work: Callable[[], Judgement]) -> None:
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
            self._schedule.wake(key, job, judgement.wake_at.timestamp())
        self._tell(key, job, judgement)
        if job.results and (judgement.requests or judgement.notices):
            job.match([request.action.id for request in judgement.requests])
            job.match([notice.action_id for notice in judgement.notices])
            if self._live:
                self._apply(key, job, math.inf)
        if self._live and job.run.facts.phase.ended and key not in self._ended and self._jobs.get(key) is job:
            self._ended[key] = None
            self._let_go()

    def _tell(self, key: Key, job: Job, judgement: Judgement) -> None:
        """Pass on what was decided, and tell the state at most so often without a decision."""
        at = time.monotonic()
        if judgement.decisions or (self._live and job.changed and at - job.told_at >= _STATUS_EVERY):
            job.told_at, job.changed = at, False
            self._outbox.put(*key, judgement, lambda: self._status(self._jobs.get(key, job)))
        elif self._live and job.changed:
            self._schedule.wake(key, job, job.judged_at + _STATUS_EVERY)

    def _let_go(self) -> None:
        """Free what is held of the jobs that ended longest ago."""
        while len(self._ended) > _MOST_ENDED:
            key, _ = self._ended.popitem(last=False)
            job = self._jobs.get(key)
            if job is not None and job.run.facts.phase.ended:
                del self._jobs[key]
                if job.changed:
                    self._outbox.put(*key, Judgement(), partial(self._status, job))
                self._remember(key, Remembered(job.run.facts.uid, job.memory, job.judged, job.judged_at, over=True))

    def _status(self, job: Job) -> RunStatus:
        now = max(job.judged_at, self._clock.now() if self._live else 0.0)
        problems = tuple(self._problems.values())
        return status_of(job.run, job.memory, self._order, datetime.fromtimestamp(now, UTC), job.judged, problems)

    async def _keep_time(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            if self._clock.was_set_back():
                self._schedule.clear(self._jobs.values())
                self._look_at_all()
            now = self._clock.now()
            for key, job in self._schedule.woken(self._jobs, now):
                job.changed |= not job.run.facts.phase.ended
                self._look(key, job, now)
            if self._outbox.full:
                await self._wait_for_room()
