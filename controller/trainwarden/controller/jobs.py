"""One job as the engine holds it, and the reports that come before anything is known of theirs."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec

from trainwarden.controller.decoding import HeardReport
from trainwarden.policies.decision import ActionResult
from trainwarden.policies.facts import RunFacts
from trainwarden.policies.hearing import Hearing
from trainwarden.policies.memory import RunMemory
from trainwarden.policies.run import RunState

__all__ = ["Allowance", "EarlyReports", "Heard", "Job", "Key", "Remembered", "begin", "by_our_clock"]

Key = tuple[str, str]
"""Namespace and name of a job."""

_HEAD_START = 5.0  # seconds that another machine's clock may be ahead, when a job is made
_MOST_RESULTS = 256
_MOST_EARLY_PER_JOB = 200
_MOST_EARLY = 5_000


@dataclass(frozen=True, slots=True)
class Heard:
    """A report, where it stands in the stream, and when it was stored there in Unix seconds."""

    report: HeardReport
    sequence: int
    at: float
    fresh: bool  # few others wait behind it


@dataclass(slots=True)
class Job:
    """State of one job. Times are Unix seconds at the server."""

    run: RunState
    since: float  # reports from before are of another job of the same name
    memory: RunMemory = field(default_factory=RunMemory)
    judged: int = 0  # sequence of the newest report that was judged
    seen: int = 0  # sequence of the newest report that was taken
    judged_at: float = 0.0
    wake_at: float | None = None
    told_at: float = 0.0  # of the newest status
    changed: bool = True  # since the newest status
    faulty: str = ""  # why it can't be judged; said once
    resumed_at: float = 0.0  # moment of the state that it goes on from
    results: dict[str, list[tuple[ActionResult, float]]] = field(default_factory=dict)  # of actions not known yet
    due: list[tuple[ActionResult, float]] = field(default_factory=list)  # of known actions, to be applied in order
    predecessor: Job | None = None  # of this name and gone; what came of its actions is still to be told

    def that_asked(self, action_id: str) -> Job:
        """The job that an action was asked for: the one before of this name, while it waits for outcomes, or this."""
        before = self.predecessor
        return before if before is not None and before.knows(action_id) else self

    def keep(self, result: ActionResult, at: float) -> None:
        """Keep a result until its action is known: another engine, or this one before a restart, asked for it."""
        if not result.action_id:
            return  # of a notice that no action asked for
        self.results.setdefault(result.action_id, []).append((result, at))
        if len(self.results) > _MOST_RESULTS:
            del self.results[next(iter(self.results))]

    def knows(self, action_id: str) -> bool:
        """Whether an action is in the memory."""
        rules = (rule for policy in self.memory.policies.values() for rule in policy.rules.values())
        return any(step.id == action_id for rule in rules for step in rule.steps)

    def match(self, action_ids: Iterable[str]) -> None:
        """Make the results of actions due that have become known."""
        found = [result for action_id in action_ids for result in self.results.pop(action_id, ())]
        if found:
            self.due = sorted([*self.due, *found], key=lambda each: each[1])


@dataclass(frozen=True, slots=True)
class Remembered:
    """What the newest state says of a job that is not held."""

    uid: str
    memory: RunMemory
    judged: int
    at: float
    over: bool  # the job has ended, and nothing is left to be decided


def by_our_clock(facts: RunFacts, stored: float, known: datetime | None) -> RunFacts:
    """Facts as of the moment at which the server stored them: other machines' clocks may be wrong, and be set.

    Args:
        facts: As they were told. What they say of the future counts as of now.
        stored: Unix seconds.
        known: Time of the facts before, which came before these whatever the clocks say.
    """
    at = datetime.fromtimestamp(stored, UTC)
    if known is not None and known > at:
        at = known
    started = facts.attempt_started_at
    return msgspec.structs.replace(
        facts,
        time=at,
        created_at=min(facts.created_at, at),
        attempt_started_at=min(started, at) if started is not None else None,
    )


def begin(facts: RunFacts, hearing: Hearing, known: Remembered | None, *, predecessor: Job | None) -> Job:
    """A job of which these are the first facts.

    Args:
        facts: What is known of it.
        hearing: What the engine could hear.
        known: What is remembered of the newest job of this name.
        predecessor: The job that had the name until now.
    """
    job = Job(RunState(facts, hearing), facts.created_at.timestamp() - _HEAD_START)
    if predecessor is not None and predecessor.memory.engaged:
        job.predecessor = predecessor
    if known is not None and known.uid == facts.uid:
        job.memory, job.judged = known.memory, known.judged
        job.resumed_at = known.at
    return job


class Allowance:
    """So many looks per second may be taken early, a burst of a tenth of them at once.

    Args:
        rate: Looks per second.
        monotonic: Seconds that never go back.
    """

    def __init__(self, rate: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._monotonic = rate, monotonic
        self._left, self._at = rate / 10, monotonic()

    def take(self) -> bool:
        """Whether one more is allowed now."""
        at = self._monotonic()
        self._left = min(self._left + (at - self._at) * self._rate, self._rate / 10)
        self._at = at
        if self._left < 1:
            return False
        self._left -= 1
        return True


class EarlyReports:
    """The newest reports of each job of which nothing is known yet; bounded over all jobs."""

    def __init__(self) -> None:
        self._by_job: OrderedDict[tuple[str, str], list[Heard]] = OrderedDict()
        self._count = 0

    def keep(self, key: tuple[str, str], heard: Heard) -> None:
        """Keep one; the job that was silent for longest gives way."""
        kept = self._by_job.setdefault(key, [])
        self._by_job.move_to_end(key)
        kept.append(heard)
        self._count += 1
        if len(kept) > _MOST_EARLY_PER_JOB:
            del kept[0]
            self._count -= 1
        while self._count > _MOST_EARLY:
            _, dropped = self._by_job.popitem(last=False)
            self._count -= len(dropped)

    def pop(self, key: tuple[str, str]) -> list[Heard]:
        """Those of a job, oldest first."""
        kept = self._by_job.pop(key, [])
        self._count -= len(kept)
        return kept

    def __len__(self) -> int:
        return self._count
