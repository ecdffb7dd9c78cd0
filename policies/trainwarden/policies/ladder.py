"""The steps of a firing rule: which are due, which may begin, and why one may not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from trainwarden.policies.compiling import CompiledPolicy, CompiledRule
from trainwarden.policies.decision import Action, ActionState, ActionType, Mode
from trainwarden.policies.facts import JobPhase
from trainwarden.policies.memory import RuleState, RunMemory, StepState, derived_id
from trainwarden.policies.models import ActionSpec, OnExpiry
from trainwarden.policies.run import RunState

__all__ = ["Due", "Move", "action_of", "begin_episode", "due_at", "due_steps", "is_disruptive", "move", "waits_for"]

_MARGIN = timedelta(seconds=90)  # beyond a checkpoint's timeout: stopping, and the way back of the result


@dataclass(frozen=True, slots=True)
class Due:
    """A step whose time has come."""

    policy: CompiledPolicy
    rule: CompiledRule
    state: RuleState
    step: StepState

    @property
    def spec(self) -> ActionSpec:
        """The step as written."""
        return self.rule.spec.actions[self.step.index]


@dataclass(frozen=True, slots=True)
class Move:
    """What becomes of a due step now."""

    state: ActionState
    reason: str
    message: str


def is_disruptive(type_: ActionType) -> bool:
    """Whether an action ends the training's processes."""
    return type_.rank >= ActionType.SUSPEND.rank


def begin_episode(job_uid: str, policy: CompiledPolicy, rule: CompiledRule, state: RuleState) -> None:
    """Lay out the ladder of a rule that has begun to fire. Ids don't depend on the policy's generation."""
    state.steps = [
        StepState(
            id=derived_id("action", job_uid, policy.uid, rule.spec.name, state.episode, index, spec.type),
            type=spec.type,
            index=index,
        )
        for index, spec in enumerate(rule.spec.actions)
    ]


def due_at(state: RuleState, spec: ActionSpec) -> datetime:
    """When a step's wait is over."""
    assert state.firing_since is not None  # noqa: S101 - only a firing rule has steps that are due
    return state.firing_since + spec.after


def due_steps(policy: CompiledPolicy, rule: CompiledRule, state: RuleState, now: datetime) -> Iterator[Due]:
    """Steps that may begin, or wait to."""
    if state.firing_since is None:
        return
    for step in state.steps:
        if step.index >= len(rule.spec.actions) or rule.spec.actions[step.index].type is not step.type:
            continue  # the policy was edited while the rule fired
        if step.state in (None, ActionState.WAITING) and now >= due_at(state, rule.spec.actions[step.index]):
            yield Due(policy, rule, state, step)


def waits_for(due: Due, now: datetime) -> datetime | None:
    """Until when a Notify waits for the outcome of steps that are due with it, so that there is one message."""
    spec, latest = due.spec, None
    for other in due.state.steps:
        other_spec = due.rule.spec.actions[other.index]
        if other.type is ActionType.NOTIFY or other_spec.after != spec.after:
            continue
        if other.state is None or not other.state.final:
            until = due_at(due.state, spec) + other_spec.timeout + _MARGIN
            latest = until if latest is None else max(latest, until)
    return latest if latest is not None and latest > now else None


def move(due: Due, run: RunState, memory: RunMemory, now: datetime) -> Move:
    """Decide about a due step that is not a Notify."""
    spec, protections = due.spec, due.policy.policy.spec.protections
    if due.policy.ref.mode is Mode.AUDIT:
        return Move(ActionState.WOULD_ACT, "Audit", f"{spec.type} would have been done; the policy is in Audit mode")
    phase = run.facts.phase
    if phase.ended:
        return Move(ActionState.REFUSED, "JobEnded", f"the job is {phase} already")
    if phase is JobPhase.SUSPENDED and spec.type in (ActionType.SUSPEND, ActionType.CHECKPOINT):
        return Move(ActionState.REFUSED, "AlreadySuspended", "the job is suspended already")
    if is_disruptive(spec.type):
        percent = run.percent()
        if percent is not None and protections.above_percent < 100 and percent >= protections.above_percent:
            return Move(
                ActionState.REFUSED,
                "AlmostFinished",
                f"{percent:.1f} % are done; runs from {protections.above_percent:g} % on are protected",
            )
        young = protections.min_running_for - timedelta(seconds=run.running_seconds(now))
        if young > timedelta(0):
            return Move(ActionState.WAITING, "YoungRun", "the run is protected until it has run long enough")
    other = _in_progress(memory, due.step)
    if other is not None:
        where, step = other
        if step.type.rank >= spec.type.rank:
            return Move(ActionState.REFUSED, "Covered", f"{step.type} of {where} is already being done")
        return Move(ActionState.WAITING, "OtherAction", f"waits for {step.type} of {where}")
    return _approved(due, now) or Move(ActionState.REQUESTED, "Due", f"{spec.type} was requested")


def _approved(due: Due, now: datetime) -> Move | None:
    """Why a step waits for a person, or was not agreed to; None when it may go on."""
    approval = due.spec.approval
    if approval is None or not approval.required:
        return None
    if now < due_at(due.state, due.spec) + approval.expires_after:
        return Move(ActionState.WAITING, "Approval", f"{due.spec.type} waits for an approval")
    if approval.on_expiry is OnExpiry.ALLOW:
        return None
    return Move(ActionState.REFUSED, "ApprovalExpired", f"nobody approved {due.spec.type} in time")


def _in_progress(memory: RunMemory, mine: StepState) -> tuple[str, StepState] | None:
    """The most destructive other action of the job that is being done, and whose it is."""
    found: tuple[str, StepState] | None = None
    for policy in memory.policies.values():
        for name, state in policy.rules.items():
            for step in state.steps:
                busy = step.state in (ActionState.REQUESTED, ActionState.IN_PROGRESS)
                other = busy and step.type is not ActionType.NOTIFY and step.id != mine.id
                if other and (found is None or step.type.rank > found[1].type.rank):
                    found = (f"rule {name}", step)
    return found


def action_of(due: Due) -> Action:
    """The step as the executor gets it."""
    spec = due.spec
    return Action(
        id=due.step.id,
        type=spec.type,
        index=due.step.index,
        after=spec.after,
        checkpoint=spec.checkpoint,
        channels=spec.channels,
        timeout=spec.timeout,
        max_checkpoint_age=spec.max_checkpoint_age,
    )
