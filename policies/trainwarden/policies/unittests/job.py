"""A job that lives by its row: what its place says of it, and what its training reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec

from trainwarden.policies.decision import ActionType
from trainwarden.policies.facts import Budget, JobPhase, RunFacts
from trainwarden.policies.readable import not_finite
from trainwarden.policies.run import RunState
from trainwarden.policies.unittests.life import AWAY, Mark, Tick
from trainwarden.policies.unittests.models import Facts
from trainwarden.policies.unittests.plan import Plan

__all__ = ["SimulatedJob"]


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    step: int
    path: str
    bytes: int | None = None
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class _Report:
    """A ReportLike."""

    run: str
    seq: int
    pod: str
    phase: str
    step: int
    total: int | None
    epoch: float | None
    metrics: Mapping[str, float]
    nonfinite: Mapping[str, str]
    checkpoint: _Checkpoint | None
    epochs: float | None = None
    rank: int = 0
    world: int = 1
    dropped: int = 0


@dataclass
class SimulatedJob:
    """The job of a plan, in time.

    Args:
        plan: Its rows and facts.
        namespace: Where it is, unless the plan says.
    """

    plan: Plan
    namespace: str
    state: RunState = field(init=False)

    def __post_init__(self) -> None:
        plan, job = self.plan, self.plan.job
        self._ticks = 0  # taken
        self._changes = 0
        self._trainings = 0
        self._seq = 0
        self._held = False  # an action keeps it from running
        self._save: int | None = None  # step of a checkpoint that the next report tells of
        self.state = RunState(
            RunFacts(
                namespace=job.namespace or self.namespace,
                job=job.name,
                uid="unit-test",
                phase=JobPhase.PENDING,
                time=plan.start,
                created_at=plan.start - job.age,
                attempt="attempt-1",
                restarts=job.restarts,
                running_seconds=job.ran_before.total_seconds(),
                **_given(job, plan.start, set(Facts.model_fields)),
            )
        )

    def go_to(self, now: datetime) -> bool:
        """Let happen what happens up to a moment; whether anything did."""
        happened = False
        plan = self.plan
        while self._changes < len(plan.changes) and plan.start + plan.changes[self._changes].at <= now:
            change = plan.changes[self._changes]
            self._learn(now, **_given(change, plan.start, change.model_fields_set & set(Facts.model_fields)))
            self._changes += 1
            happened = True
        while self._ticks < len(plan.ticks) and plan.start + self._ticks * plan.every <= now:
            self._ticks += 1
            happened |= self._live(plan.ticks[self._ticks - 1], self._ticks - 1, now)
        return happened

    def do(self, action: ActionType, phase: JobPhase | None, now: datetime) -> None:
        """Let an action have its effect."""
        if action is ActionType.CHECKPOINT:
            self._save = self.state.step()
        if phase is not None and not self.state.facts.phase.ended:
            self._held = True
            self._learn(now, phase=phase, ready=False)

    def _live(self, tick: Tick, index: int, now: datetime) -> bool:
        if self.state.facts.phase.ended:
            return False
        again = Mark.RESTART in tick.marks
        away = AWAY.get(tick.doing) if tick.doing is not None else None
        held, self._held = self._held, self._held and not again and away is None
        if self._held:
            return False
        known = self.state.facts
        before = known
        if again and known.attempt_started_at is not None:
            self._begin(now, restarts=known.restarts + (not held))
        known = self.state.facts
        if away is not None:
            if known.phase is not away or known.ready:
                self._learn(now, phase=away, ready=False)
        elif not known.ready:
            if known.attempt_started_at is not None:
                self._begin(now)
            self._learn(now, phase=JobPhase.RUNNING, ready=True, attempt_started_at=now)
            self._rerun()
        elif Mark.RERUN in tick.marks:
            self._rerun()
        if tick.phase:
            self._report(tick, index, now)
        return bool(tick.phase) or self.state.facts is not before

    def _begin(self, now: datetime, **more: Any) -> None:
        """Begin another attempt, whose pods are not ready yet."""
        number = int(self.state.facts.attempt.rpartition("-")[2]) + 1
        ran = self.state.running_seconds(now)
        self._learn(
            now,
            phase=JobPhase.RUNNING,
            ready=False,
            attempt=f"attempt-{number}",
            attempt_started_at=None,
            running_seconds=ran,
            **more,
        )

    def _learn(self, now: datetime, **changes: Any) -> None:
        self.state.learn(msgspec.structs.replace(self.state.facts, time=now, **changes))

    def _rerun(self) -> None:
        self._trainings += 1
        self._seq = 0

    def _report(self, tick: Tick, index: int, now: datetime) -> None:
        metrics, nonfinite = {}, {}
        for name, values in self.plan.metrics.items():
            value = values[index]
            if value is None:
                continue
            if value - value == 0:
                metrics[name] = value
            else:
                nonfinite[name] = not_finite(value)
        saved = tick.step if Mark.SAVED in tick.marks else self._save
        self._save = None
        self._seq += 1
        self.state.observe(
            _Report(
                run=f"training-{self._trainings}",
                seq=self._seq,
                pod=f"{self.state.facts.job}-0",
                phase=tick.phase,
                step=tick.step,
                total=self.plan.total_steps,
                epoch=self.plan.epochs[index],
                metrics=metrics,
                nonfinite=nonfinite,
                checkpoint=_Checkpoint(saved, f"checkpoint-{saved}") if saved is not None else None,
            ),
            now,
        )


def _given(facts: Facts, start: datetime, names: set[str]) -> dict[str, Any]:
    """Fields of RunFacts, from those of a test that are named."""
    fields: dict[str, Any] = {name: getattr(facts, name) for name in names}
    if isinstance(fields.get("deadline"), timedelta):
        fields["deadline"] = start + fields["deadline"]
    if fields.get("budget") is not None:
        fields["budget"] = Budget(**fields["budget"].model_dump())
    return fields
