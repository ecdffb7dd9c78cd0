"""The steps of a firing rule: which are due, which may begin, and why one may not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from trainwarden.policies.compiling import CompiledRule
from trainwarden.policies.decision import Action, ActionState, ActionType, Mode
from trainwarden.policies.explaining import Case
from trainwarden.policies.facts import JobPhase
from trainwarden.policies.memory import RuleState, RunMemory, StepState, derived_id
from trainwarden.policies.models import ActionSpec, OnExpiry
from trainwarden.policies.wishes import SILENCED, is_silenced, opted_out

__all__ = [
    "APPROVED",
    "DENIED",
    "QUIET_REFUSALS",
    "Due",
    "Move",
    "action_of",
    "begin_episode",
    "due_at",
    "due_steps",
    "holds_back",
    "is_disruptive",
    "is_spec_of",
    "move",
    "waits_for",
]

APPROVED, DENIED = "Approved", "Denied"
"""Answers of people to a step that asks for an approval; reasons of the results that bring them."""
QUIET_REFUSALS = frozenset({"AlreadySuspended", "Covered"})
"""Reasons of a refusal that is no news to people: what the step wanted has happened, or is happening."""

_MARGIN = timedelta(seconds=90)  # beyond a checkpoint's timeout: stopping, and the way back of the result
_MOST_BUSY = 8  # steps of earlier episodes that are still being done


@dataclass(frozen=True, slots=True)
class Due:
    """A step whose time has come."""

    case: Case
    step: StepState

    @property
    def spec(self) -> ActionSpec:
        """The step as written."""
        return self.case.rule.spec.actions[self.step.index]


@dataclass(frozen=True, slots=True)
class Move:
    """What becomes of a due step now."""

    state: ActionState
    reason: str
    message: str


def is_disruptive(type_: ActionType) -> bool:
    """Whether an action ends the training's processes."""
    return type_ in (ActionType.SUSPEND, ActionType.STOP, ActionType.DELETE)


def is_spec_of(step: StepState, rule: CompiledRule) -> bool:
    """Whether the step is still written in the policy, which may have been edited while the rule fired."""
    return step.index < len(rule.spec.actions) and rule.spec.actions[step.index].type is step.type


def begin_episode(case: Case) -> None:
    """Lay out the ladder of a rule that has begun to fire. Ids don't depend on the policy's generation.

    What is still being done from an episode before stays, so that it is not begun a second time beside it.
    """
    state, name = case.state, case.rule.spec.name
    busy = [step for step in state.steps if step.busy][-_MOST_BUSY:]
    state.steps = busy + [
        StepState(
            id=derived_id("action", case.run.facts.uid, case.policy.uid, name, state.episode, index, spec.type),
            type=spec.type,
            index=index,
        )
        for index, spec in enumerate(case.rule.spec.actions)
    ]


def holds_back(state: RuleState, step: StepState) -> bool:
    """Whether a step must not begin now: it ends the training, and the condition is not true any more."""
    return state.since is None and is_disruptive(step.type) and not step.busy


def due_at(state: RuleState, spec: ActionSpec) -> datetime:
    """When a step's wait is over."""
    assert state.firing_since is not None  # noqa: S101 - only a firing rule has steps that are due
    return state.firing_since + spec.after


def due_steps(case: Case) -> Iterator[Due]:
    """Steps that may begin, or wait to; those that Audit only spoke of, once the policy is in Enforce.

    Nothing that ends the training begins while a rule is only kept firing.
    """
    state = case.state
    if state.firing_since is None:
        return
    enforced = case.policy.ref.mode is Mode.ENFORCE
    for step in state.steps:
        spoken_of = step.state is ActionState.WOULD_ACT and not step.requested
        if not (step.open or (enforced and spoken_of)) or not is_spec_of(step, case.rule):
            continue
        if case.now >= due_at(state, case.rule.spec.actions[step.index]) and not holds_back(state, step):
            yield Due(case, step)


def waits_for(due: Due) -> datetime | None:
    """Until when a Notify waits for the outcome of steps that are due with it, so that there is one message.

    It does not wait for a step that a person must approve, or that is held back.
    """
    spec, rule, state = due.spec, due.case.rule, due.case.state
    latest: datetime | None = None
    for other in state.steps:
        if other.type is ActionType.NOTIFY or not is_spec_of(other, rule):
            continue
        other_spec = rule.spec.actions[other.index]
        if other_spec.after != spec.after or other.reason in ("Approval", "YoungRun"):
            continue
        if other.open and holds_back(state, other):
            continue
        if other.state is None or not other.state.final:
            until = due_at(state, spec) + other_spec.timeout + _MARGIN
            latest = until if latest is None else max(latest, until)
    return latest if latest is not None and latest > due.case.now else None


def move(due: Due, memory: RunMemory) -> Move:
    """Decide about a due step that is not a Notify."""
    spec, run, now = due.spec, due.case.run, due.case.now
    protections = due.case.policy.policy.spec.protections
    if run.facts.phase is JobPhase.SUSPENDED and spec.type is not ActionType.DELETE:
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
    if opted_out(due.case.policy.policy, run.facts):
        return Move(ActionState.WOULD_ACT, "OptedOut", f"{spec.type.value} would have been done; its owner opted out")
    if is_silenced(due.case.policy.policy, run.facts, now):
        return Move(ActionState.WAITING, "Silenced", SILENCED)
    if due.case.policy.ref.mode is Mode.AUDIT:
        return Move(ActionState.WOULD_ACT, "Audit", f"{spec.type.value} would have been done; the mode is Audit")
    return _in_turn(due, memory) or _approved(due) or Move(ActionState.REQUESTED, "Due", _requested(due))


def _requested(due: Due) -> str:
    how = f", {due.step.answered}" if due.step.answered else ""
    return f"{due.spec.type.value} was requested{how}"


def _in_turn(due: Due, memory: RunMemory) -> Move | None:
    """Why a step waits for another action of the job, or is not needed beside it; None when it may go on."""
    type_, mine = due.spec.type, due.step
    for name, step in _other_steps(memory, mine):
        enough = is_disruptive(step.type) and step.state is ActionState.DONE and step.at is not None
        if enough and mine.reason == "OtherAction" and mine.at is not None and step.at and step.at >= mine.at:
            return Move(ActionState.REFUSED, "Covered", f"{step.type.value} of rule {name} was done and is enough")
    busy = [(step.type.rank, name, step) for name, step in _other_steps(memory, mine) if step.busy]
    if not busy:
        return None
    rank, name, step = max(busy, key=lambda each: each[0])
    if rank >= type_.rank:
        return Move(ActionState.REFUSED, "Covered", f"{step.type.value} of rule {name} is already being done")
    return Move(ActionState.WAITING, "OtherAction", f"waits for {step.type.value} of rule {name}")


def _other_steps(memory: RunMemory, mine: StepState) -> Iterator[tuple[str, StepState]]:
    for policy in memory.policies.values():
        for name, state in policy.rules.items():
            for step in state.steps:
                if step.type is not ActionType.NOTIFY and step.id != mine.id:
                    yield name, step


def _approved(due: Due) -> Move | None:
    """Why a step waits for a person, or was not agreed to; None when it may go on."""
    approval, name = due.spec.approval, due.spec.type.value
    if approval is None or not approval.required or due.step.answer == APPROVED:
        return None
    if due.step.answer == DENIED:
        return Move(ActionState.REFUSED, "Denied", f"{name} was {due.step.answered}")
    if due.case.now < due_at(due.case.state, due.spec) + approval.expires_after:
        return Move(ActionState.WAITING, "Approval", f"{name} waits for an approval")
    if approval.on_expiry is OnExpiry.ALLOW:
        return None
    return Move(ActionState.REFUSED, "ApprovalExpired", f"nobody approved {name} in time")


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
        include_owned=spec.include_owned,
    )
