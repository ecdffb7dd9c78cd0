"""Watches TrainJobs and what belongs to them, and tells the engine of each. Writes nothing to Kubernetes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

import msgspec
from lightkube import AsyncClient

from trainwarden.controller.bus import Bus, Entry, Reading
from trainwarden.controller.cancelling import end_all
from trainwarden.controller.cluster.reflector import Key, Object, Reflector
from trainwarden.controller.cluster.resources import JobSet, Namespace, Pod, TrainJob, Workload
from trainwarden.controller.cluster.trainjob import Related, facts_of
from trainwarden.controller.payloads import decode
from trainwarden.controller.publishing import publish_facts
from trainwarden.policies.facts import JobPhase, RunFacts

__all__ = ["Watcher"]

log = logging.getLogger(__name__)

_JOBSET = "jobset.sigs.k8s.io/jobset-name"
_TICK = 0.1  # seconds in which changes of one job are taken together
_BROKEN = 60.0  # seconds for which a kind could not be read, after which what is known of it counts no more
_AGAIN = 30.0  # seconds after which the facts of a job that has not ended are told again


class Watcher:
    """The only reader of TrainJobs, JobSets, Pods, Workloads and namespaces.

    Args:
        client: With which it reads.
        bus: Where facts are told.
        price_per_gpu_hour: Of jobs that carry no price of their own.
        changed: Called with the facts of a job whenever they were told.
        seen: Called with each TrainJob that has changed; None when it is gone.
    """

    def __init__(
        self,
        client: AsyncClient,
        bus: Bus,
        *,
        price_per_gpu_hour: float | None = None,
        changed: Callable[[RunFacts], None] = lambda facts: None,
        seen: Callable[[Key, Object | None], None] = lambda key, trainjob: None,
    ) -> None:
        self._bus, self._price, self._changed, self._seen = bus, price_per_gpu_hour, changed, seen
        self.trainjobs = Reflector(client, TrainJob, self._trainjob_changed)
        self._jobsets = Reflector(client, JobSet, self._job_changed)
        self._pods = Reflector(client, Pod, self._pod_changed, labels={_JOBSET: None})
        self._workloads = Reflector(client, Workload, self._workload_changed, optional=True)
        self._namespaces = Reflector(client, Namespace, self._namespace_changed)
        self._pods_of: dict[Key, dict[str, Object]] = defaultdict(dict)
        self._workload_of: dict[str, Object] = {}  # by the TrainJob's UID
        self._dirty: dict[Key, None] = {}
        self._told_at: dict[Key, float] = {}
        self.facts: dict[Key, RunFacts] = {}
        self.ready = asyncio.Event()

    @property
    def reflectors(self) -> tuple[Reflector, ...]:
        """All that it reads with."""
        return (self._namespaces, self._jobsets, self._pods, self._workloads, self.trainjobs)

    @property
    def has_workloads(self) -> bool:
        """Whether Kueue is there, or may be: its Workloads are read, or are refused to us."""
        return not self._workloads.absent

    def gpus(self, namespace: str, name: str) -> int:
        """GPUs of a job; 0 when it is not there."""
        facts = self.facts.get((namespace, name))
        return facts.gpus if facts is not None else 0

    def related(self, key: Key) -> Related:
        """What belongs to a TrainJob now."""
        trainjob = self.trainjobs.objects.get(key)
        uid = str(trainjob["metadata"]["uid"]) if trainjob is not None else ""
        return Related(
            jobset=self._jobsets.objects.get(key),
            pods=tuple(self._pods_of.get(key, {}).values()),
            workload=self._workload_of.get(uid),
            namespace=self._namespaces.objects.get(("", key[0])),
        )

    def current(self, key: Key) -> RunFacts | None:
        """What is known of a job at this moment, whether or not it was told yet; None when it is gone."""
        trainjob = self.trainjobs.objects.get(key)
        if trainjob is None:
            return None
        return self._facts_of(key, trainjob, datetime.now(UTC))

    def _facts_of(self, key: Key, trainjob: Object, now: datetime) -> RunFacts:
        facts = facts_of(trainjob, self.related(key), self.facts.get(key), now, price_per_gpu_hour=self._price)
        if any(reflector.broken_for > _BROKEN for reflector in (self.trainjobs, self._jobsets, self._pods)):
            return msgspec.structs.replace(facts, ready=False)  # nobody knows whether it trains
        return facts

    async def run(self) -> None:
        """Work until cancelled."""
        known = Reading(self._bus, "TW_FACTS", take=self._take_facts, newest_only=True)
        reading = asyncio.create_task(known.run())
        try:
            await known.caught_up.wait()
        finally:
            await end_all([reading])
        tasks = [asyncio.create_task(reflector.run()) for reflector in self.reflectors]
        try:
            for reflector in self.reflectors:
                await reflector.synced.wait()
            for key, facts in self.facts.items():
                if key not in self.trainjobs.objects and not facts.phase.ended:
                    self._dirty[key] = None  # deleted while we were away
            telling = asyncio.create_task(self._tell())
            tasks.append(telling)
            self.ready.set()
            await asyncio.gather(*tasks)
        finally:
            await end_all(tasks)

    def _take_facts(self, entry: Entry) -> None:
        try:
            facts = decode(entry.data, RunFacts)
        except msgspec.DecodeError as error:
            log.error("facts can't be read and are made anew subject=%s reason=%s", entry.subject, error)
            return
        self.facts[facts.namespace, facts.job] = facts

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            now = time.monotonic()
            due = [
                key
                for key, at in self._told_at.items()
                if now - at > _AGAIN and key in self.trainjobs.objects and not self._has_ended(key)
            ]
            for key in [*self._dirty, *due]:
                self._dirty.pop(key, None)
                try:
                    await self._tell_of(key, again=key in due)
                except Exception:  # whatever is odd about one object, the others are told of
                    self._told_at[key] = time.monotonic()
                    log.exception("a job can't be understood job=%s", "/".join(key))

    def _has_ended(self, key: Key) -> bool:
        facts = self.facts.get(key)
        return facts is not None and facts.phase.ended

    async def _tell_of(self, key: Key, *, again: bool) -> None:
        trainjob, before, now = self.trainjobs.objects.get(key), self.facts.get(key), datetime.now(UTC)
        if trainjob is None:
            if before is None:
                return
            facts = msgspec.structs.replace(before, phase=JobPhase.DELETING, ready=False, pods=(), time=now)
        else:
            facts = self._facts_of(key, trainjob, now)
        if before is not None and not again and msgspec.structs.replace(facts, time=before.time) == before:
            self._told_at.setdefault(key, time.monotonic())
            return
        if trainjob is None:  # another of its name may come while this is told
            self.facts.pop(key, None)
            self._told_at.pop(key, None)
        else:
            self.facts[key] = facts
            self._told_at[key] = time.monotonic()
        await publish_facts(self._bus, facts)
        self._changed(facts)

    def _job_changed(self, key: Key, old: Object | None, new: Object | None) -> None:
        self._dirty[key] = None

    def _trainjob_changed(self, key: Key, old: Object | None, new: Object | None) -> None:
        self._dirty[key] = None
        self._seen(key, new)

    def _pod_changed(self, key: Key, old: Object | None, new: Object | None) -> None:
        item = new or old
        assert item is not None  # noqa: S101 - one of the two is there
        job = (key[0], str(item["metadata"]["labels"][_JOBSET]))
        if new is None:
            self._pods_of[job].pop(key[1], None)
            if not self._pods_of[job]:
                del self._pods_of[job]
        else:
            self._pods_of[job][key[1]] = new
        self._dirty[job] = None

    def _workload_changed(self, key: Key, old: Object | None, new: Object | None) -> None:
        for owner in _owners(new or old):
            if owner.get("kind") == "TrainJob":
                if new is None:
                    known = self._workload_of.get(owner["uid"])
                    if known is not None and known["metadata"]["name"] == key[1]:  # else another has its place
                        del self._workload_of[owner["uid"]]
                else:
                    self._workload_of[owner["uid"]] = new
                self._dirty[key[0], str(owner["name"])] = None

    def _namespace_changed(self, key: Key, old: Object | None, new: Object | None) -> None:
        labels = [((each or {}).get("metadata") or {}).get("labels") for each in (old, new)]
        if labels[0] != labels[1]:
            self._dirty.update((job, None) for job in self.trainjobs.objects if job[0] == key[1])


def _owners(item: Object | None) -> Iterable[Object]:
    return ((item or {}).get("metadata") or {}).get("ownerReferences") or ()
