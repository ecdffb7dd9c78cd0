"""What the engine says of a run for displays, and what it must remember of it: the payload of TW_STATE."""

from __future__ import annotations

from datetime import datetime

import msgspec

from trainwarden.policies.compiling import CompiledPolicy
from trainwarden.policies.decision import ActionState, Proof, RunRef, Verdict
from trainwarden.policies.explaining import spoken
from trainwarden.policies.memory import RunMemory
from trainwarden.policies.readable import not_finite
from trainwarden.policies.run import RunState
from trainwarden.policies.selecting import selects

__all__ = ["RuleStatus", "RunStatus", "StepStatus", "status_of"]


_MOST_VALUES = 16
_LONGEST_VALUE = 200  # characters


class StepStatus(msgspec.Struct, frozen=True, rename="camel"):
    """A step of a firing rule's ladder."""

    type: str
    state: ActionState | None
    message: str
    after_seconds: float
    id: str = ""
    reason: str = ""
    at: datetime | None = None


class RuleStatus(msgspec.Struct, frozen=True, rename="camel"):
    """Where one rule stands."""

    policy: str
    rule: str
    mode: str
    verdict: Verdict
    since: datetime | None
    for_seconds: float
    unknown: str
    steps: tuple[StepStatus, ...] = ()
    severity: str = "warning"
    values: dict[str, str] = {}  # names and calls of its condition that its newest look has read


class RunStatus(msgspec.Struct, frozen=True, rename="camel"):
    """One run now."""

    run: RunRef
    time: datetime
    job_phase: str
    phase: str
    reporting: bool
    step: int | None
    total: int | None
    epoch: float | None
    percent: float | None
    eta_seconds: float | None
    eta_low_seconds: float | None
    eta_high_seconds: float | None
    steps_per_second: float | None
    running_seconds: float
    cost: float | None
    metrics: dict[str, float]
    nonfinite: dict[str, str]
    checkpoint: Proof | None
    rules: tuple[RuleStatus, ...]
    known_since: datetime | None
    memory: RunMemory
    judged: int  # sequence in TW_REPORTS up to which the run was judged
    problems: tuple[str, ...] = ()  # policies that can't be used


def status_of(
    run: RunState,
    memory: RunMemory,
    policies: list[CompiledPolicy],
    now: datetime,
    judged: int,
    problems: tuple[str, ...],
) -> RunStatus:
    """All that is known of a run now."""
    values = run.metric_values()
    eta = run.eta(now)
    shown = dict(list(values.items())[:64])
    return RunStatus(
        run=run.ref(),
        time=now,
        job_phase=run.facts.phase.value,
        phase=run.phase(),
        reporting=run.reporting(),
        step=run.step(),
        total=run.total(),
        epoch=run.epoch(),
        percent=run.percent(),
        eta_seconds=eta.expected.total_seconds() if eta is not None else None,
        eta_low_seconds=eta.low.total_seconds() if eta is not None else None,
        eta_high_seconds=eta.high.total_seconds() if eta is not None else None,
        steps_per_second=run.pace.steps_per_second(),
        running_seconds=run.running_seconds(now),
        cost=run.cost(now),
        metrics={name: value for name, value in shown.items() if value - value == 0},
        nonfinite={name: _text(value) for name, value in shown.items() if value - value != 0},
        checkpoint=run.checkpoint(),
        rules=tuple(_rules(run, memory, policies)),
        known_since=run.known_since,
        memory=memory,
        judged=judged,
        problems=problems,
    )


def _rules(run: RunState, memory: RunMemory, policies: list[CompiledPolicy]) -> list[RuleStatus]:
    found = []
    for policy in policies:
        known = memory.policies.get(policy.uid)
        if known is None or not selects(policy.policy, run.facts):
            continue
        for rule in policy.rules:
            state = known.rules.get(rule.spec.name)
            if state is None:
                continue
            used = run.used.get((policy.uid, rule.spec.name), {})
            steps = tuple(
                StepStatus(
                    step.type.value,
                    step.state,
                    step.message,
                    rule.spec.actions[step.index].after.total_seconds(),
                    id=step.id,
                    reason=step.reason,
                    at=step.at,
                )
                for step in state.steps
                if step.index < len(rule.spec.actions)
            )
            found.append(
                RuleStatus(
                    policy=str(policy.ref),
                    rule=rule.spec.name,
                    mode=policy.ref.mode.value,
                    verdict=state.verdict,
                    since=state.firing_since or state.since,
                    for_seconds=rule.spec.for_.total_seconds(),
                    unknown=state.unknown,
                    steps=steps if state.episode else (),
                    severity=rule.spec.severity.value,
                    values={text: spoken(value)[:_LONGEST_VALUE] for text, value in [*used.items()][:_MOST_VALUES]},
                )
            )
    return found


def _text(value: float) -> str:
    return not_finite(value)
