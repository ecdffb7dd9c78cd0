"""A planned run, replayed through the judge as the engine would: reports, facts, results, and time that goes on."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import msgspec

from trainwarden.policies.compiling import CompiledPolicy
from trainwarden.policies.decision import (
    ActionRequest,
    ActionResult,
    ActionState,
    ActionType,
    CheckpointMode,
    Decision,
    Proof,
)
from trainwarden.policies.facts import JobPhase
from trainwarden.policies.judge import Judgement, apply_result, judge
from trainwarden.policies.memory import RunMemory
from trainwarden.policies.notice import Notice
from trainwarden.policies.run import RunState
from trainwarden.policies.unittests.job import SimulatedJob
from trainwarden.policies.unittests.plan import Plan
from trainwarden.policies.waits import next_due

__all__ = ["Replay"]

_MOST_AT_ONCE = 64  # answers that follow from each other in one moment
_PHASES = {
    ActionType.SUSPEND: JobPhase.SUSPENDED,
    ActionType.STOP: JobPhase.FAILED,
    ActionType.DELETE: JobPhase.DELETING,
}


@dataclass
class Replay:
    """One run under policies.

    Args:
        plan: The run.
        policies: All of them; those not for the run say nothing.
    """

    plan: Plan
    policies: Sequence[CompiledPolicy]
    decisions: list[Decision] = field(default_factory=list)  # so far
    notices: list[Notice] = field(default_factory=list)
    memory: RunMemory = field(default_factory=RunMemory)
    now: datetime = field(init=False)

    def __post_init__(self) -> None:
        mode = self.plan.mode
        if mode is not None:
            self.policies = [replace(each, ref=msgspec.structs.replace(each.ref, mode=mode)) for each in self.policies]
        self.policies = sorted(self.policies, key=lambda each: (each.ref.namespace or "_", each.ref.name))
        self.now = self.plan.start
        namespace = next((each.ref.namespace for each in self.policies if each.ref.namespace), "default")
        self._job = SimulatedJob(self.plan, namespace)
        self._results: list[tuple[datetime, int, ActionResult, ActionRequest | None]] = []
        self._number = itertools.count()
        self._wake: datetime | None = None

    @property
    def run(self) -> RunState:
        """The run as the judge sees it now."""
        return self._job.state

    def go(
        self, moments: Sequence[timedelta], looked: Callable[[], None], reached: Callable[[timedelta], None]
    ) -> None:
        """Replay all of it.

        Args:
            moments: Since the start; the run is looked at in each.
            looked: Called after each look.
            reached: Called in each of the moments, when all has been decided in it.
        """
        start, plan = self.plan.start, self.plan
        wanted = {start + moment: moment for moment in moments}
        end = start + plan.length
        for now in self._moments(end, sorted({*wanted, *(start + change.at for change in plan.changes)})):
            self.now = now
            happened = self._job.go_to(now)
            due = self._wake is not None and self._wake <= now
            if due or happened or now in wanted or self._due():
                self._look(looked)
            if now in wanted:
                reached(wanted[now])

    def _moments(self, end: datetime, fixed: list[datetime]) -> Iterator[datetime]:
        """All moments in which something may happen, in order; waits and answers come up on the way."""
        plan, number = self.plan, 0
        index = 0
        while True:
            tick = plan.start + number * plan.every if number < len(plan.ticks) else None
            given = fixed[index] if index < len(fixed) else None
            answer = self._results[0][0] if self._results else None
            now = min((moment for moment in (tick, given, answer, self._wake) if moment is not None), default=None)
            if now is None or now > end:
                return
            number += tick == now
            index += given == now
            yield now

    def _due(self) -> bool:
        return bool(self._results) and self._results[0][0] <= self.now

    def _look(self, looked: Callable[[], None]) -> None:
        """Take the answers that are there, and judge; again, while one follows from it at once."""
        for _ in range(_MOST_AT_ONCE):
            while self._due():
                _, _, result, request = heapq.heappop(self._results)
                if request is not None and result.state is ActionState.DONE:
                    self._job.do(request.action.type, _PHASES.get(request.action.type), self.now)
                self._take(apply_result(result, self.policies, self.run, self.memory, self.now))
            judgement = judge(self.policies, self.run, self.memory, self.now)
            self._take(judgement)
            self._wake = next_due(self.policies, self.memory, self.now)
            if judgement.wake_at is not None:
                look = max(judgement.wake_at, self.now + self.plan.look)
                self._wake = look if self._wake is None else min(look, self._wake)
            looked()
            if not self._due():
                return

    def _take(self, judgement: Judgement) -> None:
        self.decisions += judgement.decisions
        self.notices += judgement.notices
        for request in judgement.requests:
            self._answer(request.action.id, request.action.type, request)
        for notice in judgement.notices:
            if notice.action_id:
                self._answer(notice.action_id, ActionType.NOTIFY, None)

    def _answer(self, action_id: str, kind: ActionType, request: ActionRequest | None) -> None:
        """Let executor or notifier answer, as the test says."""
        executor = self.plan.executor
        answer = getattr(executor, kind.value.lower())
        if answer == "none":
            return
        state, at = ActionState(answer), self.now + executor.takes
        saves = request is not None and request.action.checkpoint is not CheckpointMode.SKIP
        step = self.run.step() or 0
        result = ActionResult(
            action_id=action_id,
            namespace=self.run.facts.namespace,
            job=self.run.facts.job,
            state=state,
            reason="Simulated",
            message=f"{kind.value} is {answer} in this test",
            time=at,
            proof=Proof(step=step, path=f"checkpoint-{step}") if saves and state is ActionState.DONE else None,
        )
        heapq.heappush(self._results, (at, next(self._number), result, request))
