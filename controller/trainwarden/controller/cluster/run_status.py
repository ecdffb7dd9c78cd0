"""The status of a TrainingRun, made from facts and the engine's state. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Literal

from trainwarden.controller.bridge.training import RUN_PREFIX
from trainwarden.controller.status import RuleStatus, RunStatus
from trainwarden.policies.condition import Condition
from trainwarden.policies.decision import ActionState, ActionType, Mode, Severity, Verdict
from trainwarden.policies.expressions.functions import human_duration
from trainwarden.policies.facts import RunFacts
from trainwarden.policies.training_run import ActionStatus, CheckpointStatus, RuleStanding, TrainingRunStatus

__all__ = ["status_of_run"]

_MOST_RULES = 64
_ORDER = (Verdict.FIRING, Verdict.PENDING, Verdict.UNKNOWN, Verdict.RESOLVED, Verdict.INACTIVE)
_ENDING = frozenset({ActionType.SUSPEND.value, ActionType.STOP.value, ActionType.DELETE.value})


def status_of_run(
    facts: RunFacts, state: RunStatus | None, old: TrainingRunStatus | None, now: datetime, *, suspended_by: str = ""
) -> TrainingRunStatus:
    """All that people see of a run.

    Args:
        facts: What the cluster says of the job.
        state: What the engine says of it; None before its first word.
        old: The status before this one, whose conditions go on.
        now: The time.
        suspended_by: Id of our action that suspended it.
    """
    if state is not None and state.run.uid != facts.uid:
        state = None
    hours = (facts.running_seconds + _running(facts, now)) * facts.gpus / 3600
    shared: dict[str, Any] = {
        "state": facts.phase.value,
        "attempt": facts.attempt,
        "gpus": facts.gpus,
        "gpu_hours": round(hours, 3),
        "suspended_by": suspended_by,
        "time": now,
    }
    if state is None:
        return TrainingRunStatus(**shared, conditions=_conditions(facts, (), None, old, now))
    rules = tuple(_standing(rule) for rule in sorted(state.rules, key=lambda rule: _ORDER.index(rule.verdict)))
    loss = next((state.metrics[name] for name in ("loss", "train/loss", "train_loss") if name in state.metrics), None)
    return TrainingRunStatus(
        **shared,
        source=_source(state),
        progress=f"{state.percent:.0f} %" if state.percent is not None else "",
        eta=_length(state.eta_seconds),
        eta_low=_length(state.eta_low_seconds),
        eta_high=_length(state.eta_high_seconds),
        loss=f"{loss:.4g}" if loss is not None else state.nonfinite.get("loss", ""),
        step=state.step,
        total_steps=state.total,
        epoch=round(state.epoch, 4) if state.epoch is not None else None,
        steps_per_second=_rounded(state.steps_per_second),
        metrics={**{name: f"{value:.6g}" for name, value in state.metrics.items()}, **state.nonfinite},
        checkpoint=_checkpoint(state),
        cost=round(state.cost, 2) if state.cost is not None else None,
        saved_gpu_hours=round(_saved(facts, state, now), 3),
        rules=rules[:_MOST_RULES],
        problems=state.problems,
        known_since=state.known_since,
        conditions=_conditions(facts, rules, state, old, now),
    )


def _source(state: RunStatus) -> str:
    if state.step is None:
        return ""
    return "bridge" if state.run.run.startswith(RUN_PREFIX) else "reporter"


def _running(facts: RunFacts, now: datetime) -> float:
    started = facts.attempt_started_at
    return max(0.0, (now - started).total_seconds()) if started is not None and not facts.phase.ended else 0.0


def _standing(rule: RuleStatus) -> RuleStanding:
    return RuleStanding(
        policy=rule.policy,
        rule=rule.rule,
        mode=Mode(rule.mode),
        severity=Severity(rule.severity),
        verdict=rule.verdict,
        since=rule.since,
        reason=rule.unknown,
        values=rule.values,
        actions=tuple(
            ActionStatus(
                id=step.id,
                type=ActionType(step.type),
                policy=rule.policy,
                rule=rule.rule,
                state=step.state,
                reason=step.reason,
                message=step.message,
                time=step.at,
            )
            for step in rule.steps
        ),
    )


def _saved(facts: RunFacts, state: RunStatus, now: datetime) -> float:
    """GPU-hours since the first action that ended the run, or would have ended it."""
    moments = [
        step.at
        for rule in state.rules
        for step in rule.steps
        if step.type in _ENDING and step.state in (ActionState.DONE, ActionState.WOULD_ACT) and step.at is not None
    ]
    if not moments or facts.phase.ended:
        return 0.0
    return max(0.0, (now - min(moments)).total_seconds()) * facts.gpus / 3600


def _conditions(
    facts: RunFacts,
    rules: tuple[RuleStanding, ...],
    state: RunStatus | None,
    old: TrainingRunStatus | None,
    now: datetime,
) -> tuple[Condition, ...]:
    firing = [rule for rule in rules if rule.verdict is Verdict.FIRING]
    acting = [
        action
        for rule in rules
        for action in rule.actions
        if action.state in (ActionState.REQUESTED, ActionState.WAITING, ActionState.IN_PROGRESS)
    ]
    reporting = state is not None and state.reporting
    told = [
        (
            "Reporting",
            reporting,
            "Reported" if reporting else "Silent",
            "the training reports"
            if reporting
            else f"nothing is heard of the training; the job is {facts.phase.value}",
        ),
        (
            "PolicyFiring",
            bool(firing),
            "Firing" if firing else "Quiet",
            ", ".join(f"{rule.policy}/{rule.rule}" for rule in firing) or "no rule fires",
        ),
        (
            "Acting",
            bool(acting),
            (acting[0].reason or "Due") if acting else "Idle",
            "; ".join(f"{action.type.value}: {action.message}" for action in acting) or "nothing is being done",
        ),
    ]
    known = {condition.type: condition for condition in old.conditions} if old is not None else {}
    made = []
    for type_, holds, reason, message in told:
        status: Literal["True", "False"] = "True" if holds else "False"
        before = known.get(type_)
        since = before.last_transition_time if before is not None and before.status == status else now
        made.append(
            Condition(type=type_, status=status, last_transition_time=since, reason=reason, message=message[:1000])
        )
    return tuple(made)


def _checkpoint(state: RunStatus) -> CheckpointStatus | None:
    proof = state.checkpoint
    if proof is None:
        return None
    return CheckpointStatus(step=proof.step, path=proof.path, bytes=proof.bytes, digest=proof.digest)


def _length(seconds: float | None) -> str:
    return human_duration(timedelta(seconds=round(seconds))) if seconds is not None else ""


def _rounded(value: float | None) -> float | None:
    return float(f"{value:.4g}") if value is not None else None
