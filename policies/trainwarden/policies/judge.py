"""Judge one run by its policies: same run, memory and time, same decisions. The heart of engine, test and backtest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from trainwarden.policies.compiling import CompiledPolicy, CompiledRule
from trainwarden.policies.decision import (
    ActionRequest,
    ActionResult,
    ActionState,
    ActionType,
    Decision,
    Evidence,
    Mode,
    Proof,
    Value,
    Verdict,
    Window,
)
from trainwarden.policies.expressions.functions import human_duration, human_number
from trainwarden.policies.expressions.protocol import CelValue, Outcome, UnknownValueError
from trainwarden.policies.ladder import (
    Due,
    action_of,
    begin_episode,
    due_at,
    due_steps,
    is_disruptive,
    move,
    waits_for,
)
from trainwarden.policies.memory import RuleState, RunMemory, StepState, derived_id
from trainwarden.policies.notice import Notice
from trainwarden.policies.notices import channels_of, notice_of
from trainwarden.policies.rules import advance
from trainwarden.policies.run import RunState
from trainwarden.policies.scope import RunScope
from trainwarden.policies.selecting import selects

__all__ = ["Judgement", "apply_result", "judge", "message_of"]

_TICK = timedelta(seconds=1)  # conditions that change by time alone are looked at this often
_REST = timedelta(seconds=30)  # and all others, since data also goes stale by time alone
_BY_TIME = (
    "progress.since", "job.age", "job.runningFor", "job.gpuHours", "job.cost", "job.projectedCost", "checkpoint.age",
    "progress.eta", "progress.finish", "now", "age()", "sinceBest()",
)  # fmt: skip


@dataclass(slots=True)
class Judgement:
    """What follows from one look at a run."""

    decisions: list[Decision] = field(default_factory=list)
    requests: list[ActionRequest] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    wake_at: datetime | None = None  # look again by then, also without a report

    def wake(self, at: datetime) -> None:
        """Look again at a time, or earlier."""
        if self.wake_at is None or at < self.wake_at:
            self.wake_at = at


@dataclass(frozen=True, slots=True)
class _Looked:
    """What one look at one rule gave."""

    outcome: Outcome
    variables: Mapping[str, CelValue | UnknownValueError]
    windows: tuple[Window, ...]


def judge(policies: Sequence[CompiledPolicy], run: RunState, memory: RunMemory, now: datetime) -> Judgement:
    """Evaluate all policies that are for the run.

    Args:
        policies: All there are; those for other jobs are passed over.
        run: The run, up to date.
        memory: Changed in place.
        now: Time of the evaluation.
    """
    result = Judgement()
    scope = run.scope(now)
    due: list[Due] = []
    for policy in policies:
        if not selects(policy.policy, run.facts):
            continue
        variables: dict[str, CelValue | UnknownValueError] = {}
        for name, expression in policy.variables:
            outcome = expression.evaluate(scope, variables)
            value = outcome.value
            variables[name] = value if value is not None else UnknownValueError(outcome.unknown)
        matches: bool | None = True
        if policy.match is not None:
            matched = policy.match.evaluate(scope, variables)
            matches = None if matched.value is None else bool(matched.value)
            if matches is False and not _engaged(policy, memory):
                continue
        for rule in policy.rules:
            _look(result, due, policy, rule, run, memory, scope, variables, matches)
    if due:
        due.sort(key=lambda d: (d.step.type is ActionType.NOTIFY, d.step.type.rank))
        for each in due:
            _act(result, each, run, memory, scope)
    return result


def _engaged(policy: CompiledPolicy, memory: RunMemory) -> bool:
    """Whether a rule of the policy is pending or firing for the job."""
    known = memory.policies.get(policy.uid)
    return known is not None and any(s.since is not None or s.firing_since is not None for s in known.rules.values())


def _look(
    result: Judgement,
    due: list[Due],
    policy: CompiledPolicy,
    rule: CompiledRule,
    run: RunState,
    memory: RunMemory,
    scope: RunScope,
    variables: Mapping[str, CelValue | UnknownValueError],
    matches: bool | None,
) -> None:
    state, spec, now = memory.rule(policy.uid, rule.spec.name), rule.spec, scope.now
    if state.when != spec.when:
        _begin_anew(state, spec.when)
    if matches:
        outcome = rule.when.evaluate(scope, variables)
    elif matches is None:
        outcome = Outcome(None, "match has no value")
    else:
        outcome = Outcome(False)
    value = outcome.value if isinstance(outcome.value, bool) else None
    before, fired_before = state.verdict, state.firing_since
    verdict = advance(state, spec, value=value, now=now)
    state.unknown = outcome.unknown
    if verdict is not before:
        quiet = {before, verdict} == {Verdict.UNKNOWN, Verdict.INACTIVE}
        if verdict is Verdict.FIRING and fired_before is None:
            begin_episode(run.facts.uid, policy, rule, state)
        if not quiet:
            looked = _Looked(outcome, variables, scope.windows())
            decision = _verdict_decision(policy, rule, state, run, scope, looked)
            result.decisions.append(decision)
            if verdict is Verdict.RESOLVED:
                _resolve(result, decision, policy, rule, state, run, now)
        if verdict is Verdict.RESOLVED:
            state.verdict = Verdict.INACTIVE
    if state.firing_since is not None:
        due += due_steps(policy, rule, state, now)
    _plan_waking(result, rule, state, now)


def _begin_anew(state: RuleState, when: str) -> None:
    """The condition was edited: what was judged by the old one does not count; episodes go on being numbered."""
    state.when = when
    state.verdict = Verdict.UNKNOWN
    state.since = state.paused = state.firing_since = state.last_true = None
    state.steps = []


def _plan_waking(result: Judgement, rule: CompiledRule, state: RuleState, now: datetime) -> None:
    by_time = any(name.startswith(_BY_TIME) for name in rule.when.names)
    result.wake(now + (_TICK if by_time else _REST))
    if state.firing_since is not None:
        if state.since is None and state.last_true is not None:
            result.wake(max(state.last_true + rule.spec.keep_firing_for, now + _TICK / 10))
        for step in state.steps:
            if step.state is None and step.index < len(rule.spec.actions):
                result.wake(max(due_at(state, rule.spec.actions[step.index]), now + _TICK / 10))
            elif step.state is ActionState.WAITING:
                result.wake(now + _TICK)
    elif state.since is not None and state.paused is None:
        result.wake(max(state.since + rule.spec.for_, now + _TICK / 10))


def _act(result: Judgement, due: Due, run: RunState, memory: RunMemory, scope: RunScope) -> None:
    now, step = scope.now, due.step
    if step.type is ActionType.NOTIFY:
        _notify(result, due, run, scope)
        return
    moved = move(due, run, memory, now)
    if step.state is moved.state and step.reason == moved.reason:
        return
    _change(step, moved.state, moved.reason, moved.message, now)
    decision = _action_decision(due.policy, due.rule, due.state, step, run, scope)
    result.decisions.append(decision)
    if moved.state is ActionState.REQUESTED:
        result.requests.append(
            ActionRequest(
                action=action_of(due),
                decision=decision,
                newest_checkpoint=run.checkpoint(),
                newest_checkpoint_age=run.checkpoint_age(now) if run.checkpoint() is not None else None,
                reporting=run.reporting(),
            )
        )
    elif moved.state is ActionState.REFUSED and moved.reason != "Covered":
        _tell_outcome(result, decision, due.policy, due.rule, due.state, step, run, now)


def _notify(result: Judgement, due: Due, run: RunState, scope: RunScope) -> None:
    now, step = scope.now, due.step
    if due.policy.ref.mode is Mode.ENFORCE:
        until = waits_for(due, now)
        if until is not None:
            if step.state is None:
                _change(step, ActionState.WAITING, "OtherAction", "waits for what is being done", now)
            result.wake(until)
            return
    _change(step, ActionState.REQUESTED, "Due", "the message was requested", now)
    decision = _action_decision(due.policy, due.rule, due.state, step, run, scope)
    result.decisions.append(decision)
    for other in due.state.steps:
        if other.state is not None and other.state.final:
            other.told = True
    result.notices.append(
        notice_of(
            decision,
            policy=due.policy,
            rule=due.rule,
            state=due.state,
            run=run,
            now=now,
            about=step.id,
            channels=due.spec.channels,
            action_id=step.id,
        )
    )


def _change(step: StepState, state: ActionState, reason: str, message: str, now: datetime) -> None:
    step.state, step.reason, step.message, step.at = state, reason, message, now


def _tell_outcome(
    result: Judgement,
    decision: Decision,
    policy: CompiledPolicy,
    rule: CompiledRule,
    state: RuleState,
    step: StepState,
    run: RunState,
    now: datetime,
) -> None:
    """Tell people how an action ended, unless a Notify step that waits for it will."""
    if step.told or any(
        other.type is ActionType.NOTIFY
        and other.index < len(rule.spec.actions)
        and other.state in (None, ActionState.WAITING)
        and rule.spec.actions[other.index].after == rule.spec.actions[step.index].after
        for other in state.steps
    ):
        return
    step.told = True
    result.notices.append(
        notice_of(
            decision,
            policy=policy,
            rule=rule,
            state=state,
            run=run,
            now=now,
            about=f"{step.id}/{step.state}",
            channels=channels_of(rule),
        )
    )


def _resolve(
    result: Judgement,
    decision: Decision,
    policy: CompiledPolicy,
    rule: CompiledRule,
    state: RuleState,
    run: RunState,
    now: datetime,
) -> None:
    """The condition has ended: steps that have not begun will not; whoever was told of it is told."""
    for step in state.steps:
        if step.state in (None, ActionState.WAITING):
            _change(step, ActionState.CANCELLED, "Resolved", "the condition ended before", now)
    told = any(
        s.type is ActionType.NOTIFY and s.state in (ActionState.REQUESTED, ActionState.DONE) for s in state.steps
    )
    ended = any(is_disruptive(s.type) and s.state is ActionState.DONE for s in state.steps)
    if told and not ended:
        result.notices.append(
            notice_of(
                decision,
                policy=policy,
                rule=rule,
                state=state,
                run=run,
                now=now,
                about="resolved",
                channels=channels_of(rule),
            )
        )


def apply_result(
    outcome: ActionResult, policies: Sequence[CompiledPolicy], run: RunState, memory: RunMemory, now: datetime
) -> Judgement:
    """Take what the executor, or the notifier, made of an action. A result that is known already changes nothing."""
    result = Judgement()
    for policy in policies:
        known = memory.policies.get(policy.uid)
        for rule in policy.rules if known is not None else ():
            state = known.rules.get(rule.spec.name) if known is not None else None
            for step in state.steps if state is not None else ():
                if step.id != outcome.action_id or state is None:
                    continue
                if (step.state is not None and step.state.final) or step.state is outcome.state:
                    return result
                _change(step, outcome.state, outcome.reason, outcome.message, outcome.time)
                step.proof = outcome.proof
                step.resume_command = outcome.resume_command
                decision = _action_decision(policy, rule, state, step, run, run.scope(now), proof=outcome.proof)
                result.decisions.append(decision)
                bad = outcome.state in (ActionState.FAILED, ActionState.REFUSED)
                done = is_disruptive(step.type) and outcome.state is ActionState.DONE
                if step.type is not ActionType.NOTIFY and (bad or done):
                    _tell_outcome(result, decision, policy, rule, state, step, run, now)
                result.wake(now)
                return result
    return result


def _verdict_decision(
    policy: CompiledPolicy, rule: CompiledRule, state: RuleState, run: RunState, scope: RunScope, looked: _Looked
) -> Decision:
    verdict = state.verdict
    reason = {
        Verdict.PENDING: "ConditionTrue",
        Verdict.FIRING: "ConditionHeld",
        Verdict.RESOLVED: "ConditionEnded",
        Verdict.INACTIVE: "ConditionFalse",
        Verdict.UNKNOWN: "NoValue",
    }[verdict]
    outcome = looked.outcome
    evidence = Evidence(
        step=run.step(),
        values={text: _evident(value) for text, value in outcome.used.items()},
        windows=looked.windows,
        unknown=outcome.unknown,
        known_since=run.known_since,
    )
    message = message_of(rule, scope, looked.variables, outcome)
    if verdict is Verdict.UNKNOWN:
        message = f"no verdict: {outcome.unknown}"
    elif verdict in (Verdict.RESOLVED, Verdict.INACTIVE):
        message = f"the condition has ended: {_values(outcome) or rule.spec.when}"
    return _decision(policy, rule, state, run, scope, reason, message, evidence)


def message_of(
    rule: CompiledRule,
    scope: RunScope,
    variables: Mapping[str, CelValue | UnknownValueError],
    outcome: Outcome,
) -> str:
    """The rule's own sentence; without one, or when it has no value, one made from the values."""
    if rule.message is not None:
        text = rule.message.evaluate(scope, variables).value
        if isinstance(text, str) and text.strip():
            return text
    values = _values(outcome)
    return f"{rule.spec.name}: {values}" if values else f"{rule.spec.name}: {rule.spec.when}"


def _values(outcome: Outcome) -> str:
    return ", ".join(f"{text} is {_spoken(value)}" for text, value in outcome.used.items())


def _spoken(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, timedelta):
        return human_duration(value)
    if isinstance(value, int | float):
        return human_number(value)
    return str(_evident(value))


def _evident(value: Any) -> Value:
    if isinstance(value, timedelta):
        return human_duration(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={item}" for key, item in value.items())
    return value  # type: ignore[no-any-return]


def _action_decision(
    policy: CompiledPolicy,
    rule: CompiledRule,
    state: RuleState,
    step: StepState,
    run: RunState,
    scope: RunScope,
    proof: Proof | None = None,
) -> Decision:
    """A decision that says what became of an action, with the values that the condition has now."""
    due = Due(policy, rule, state, step)
    variables: dict[str, CelValue | UnknownValueError] = {}
    for name, expression in policy.variables:
        known = expression.evaluate(scope, variables)
        variables[name] = known.value if known.value is not None else UnknownValueError(known.unknown)
    outcome = rule.when.evaluate(scope, variables)
    evidence = Evidence(
        step=run.step(),
        values={text: _evident(value) for text, value in outcome.used.items()},
        windows=scope.windows(),
        unknown=outcome.unknown,
        known_since=run.known_since,
    )
    message = step.message
    if step.type is ActionType.NOTIFY:
        message = message_of(rule, scope, variables, outcome)
    decision = _decision(policy, rule, state, run, scope, step.reason, message, evidence)
    fields = {name: getattr(decision, name) for name in decision.__struct_fields__}
    fields |= {
        "id": derived_id("decision", step.id, step.state, step.reason),
        "action": action_of(due) if step.index < len(rule.spec.actions) else None,
        "action_state": step.state,
        "proof": proof,
    }
    return Decision(**fields)


def _decision(
    policy: CompiledPolicy,
    rule: CompiledRule,
    state: RuleState,
    run: RunState,
    scope: RunScope,
    reason: str,
    message: str,
    evidence: Evidence,
) -> Decision:
    state.changes += 1
    ref = run.ref()
    return Decision(
        id=derived_id("decision", ref.uid, policy.uid, rule.spec.name, state.changes, state.verdict),
        time=scope.now,
        run=ref,
        policy=policy.ref,
        rule=rule.spec.name,
        verdict=state.verdict,
        severity=rule.spec.severity,
        reason=reason,
        message=message,
        evidence=evidence,
        episode=state.episode,
    )
