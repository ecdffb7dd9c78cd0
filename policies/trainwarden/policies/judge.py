"""Judge one run by its policies: same run, memory and time, same decisions. The heart of engine, test and backtest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from trainwarden.policies.compiling import CompiledPolicy, CompiledRule
from trainwarden.policies.decision import (
    ActionRequest,
    ActionResult,
    ActionState,
    ActionType,
    Decision,
    Mode,
    Verdict,
)
from trainwarden.policies.explaining import Case, action_decision, variables_of, verdict_decision
from trainwarden.policies.expressions.protocol import Outcome
from trainwarden.policies.ladder import (
    APPROVED,
    DENIED,
    QUIET_REFUSALS,
    Due,
    action_of,
    begin_episode,
    due_at,
    due_steps,
    holds_back,
    is_disruptive,
    is_spec_of,
    move,
    waits_for,
)
from trainwarden.policies.memory import RuleState, RunMemory, StepState, forget
from trainwarden.policies.notice import Notice
from trainwarden.policies.notices import channels_of, notice_of
from trainwarden.policies.rules import advance, stand_still
from trainwarden.policies.run import RunState
from trainwarden.policies.selecting import selects
from trainwarden.policies.wishes import is_silenced

__all__ = ["RECALLED", "Judgement", "apply_result", "judge", "withdraw"]

RECALLED = "Resolved"
"""Reason of an action that is taken back since its rule has resolved; an executor refuses with it, too."""

_TICK = timedelta(seconds=1)  # conditions that change by time alone are looked at this often
_REST = timedelta(seconds=30)  # and all others, since data also goes stale by time alone
_SOON = timedelta(milliseconds=100)


@dataclass(slots=True)
class Judgement:
    """What follows from one look at a run. Requests and notices always come with a decision."""

    decisions: list[Decision] = field(default_factory=list)
    requests: list[ActionRequest] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    wake_at: datetime | None = None  # look again by then, also without a report

    def wake(self, at: datetime) -> None:
        """Look again at a time, or earlier."""
        if self.wake_at is None or at < self.wake_at:
            self.wake_at = at


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
    ended = run.facts.phase.ended
    due: list[Due] = []
    judged = by_time = False
    if len(memory.policies) > len(policies):
        memory.keep({policy.uid for policy in policies})
    for policy in policies:
        known = memory.policies.get(policy.uid)
        if ended or not selects(policy.policy, run.facts):
            if known is not None and known.engaged:
                _leave(result, policy, run, memory, now)
            continue
        variables = variables_of(policy, scope) if policy.variables else {}
        given: Outcome | None = None
        if policy.match is not None:
            matched = policy.match.evaluate(scope, variables)
            if matched.value is False:
                if known is not None and known.engaged:
                    _leave(result, policy, run, memory, now)
                judged = True
                continue
            if matched.value is None:
                given = Outcome(None, f"match has no value: {matched.unknown}")
        for rule in policy.rules:
            state = memory.rule(policy.uid, rule.spec.name)
            if rule.by_time:
                by_time = True
            outcome = given if given is not None else rule.when.evaluate(scope, variables)
            run.used[policy.uid, rule.spec.name] = outcome.used
            if outcome.value is False and state.verdict is Verdict.INACTIVE and state.condition == rule.condition:
                stand_still(state, now)  # as nearly always
                continue
            case = Case(policy, rule, state, run, scope)
            _look(result, case, outcome)
            if state.firing_since is not None:
                due += due_steps(case)
            _plan_waking(result, rule, state, now)
        judged = True
        if known is not None and len(known.rules) > len(policy.rules):
            _drop_old_rules(policy, memory)
    if judged:
        result.wake(now + (_TICK if by_time else _REST))
    due.sort(key=lambda d: (d.step.type is ActionType.NOTIFY, d.step.type.rank))
    for each in due:
        _act(result, each, memory)
    return result


def withdraw(policy: CompiledPolicy, run: RunState, memory: RunMemory, now: datetime) -> Judgement:
    """End what goes on under a policy that is deleted, and forget it."""
    result = Judgement()
    known = memory.policies.get(policy.uid)
    if known is not None:
        scope = run.scope(now)
        for rule in policy.rules:
            state = known.rules.get(rule.spec.name)
            if state is not None and state.engaged:
                _end(result, Case(policy, rule, state, run, scope), "PolicyDeleted", "the policy was deleted")
        forget(policy.uid, memory)
    return result


def apply_result(
    outcome: ActionResult, policies: Sequence[CompiledPolicy], run: RunState, memory: RunMemory, now: datetime
) -> Judgement:
    """Take what the executor, or the notifier, made of an action. A result that is known already changes nothing.

    A Notify that waited for the action goes out at once, so that it does not depend on another look at the run.
    """
    result = Judgement()
    found = _step_of(outcome.action_id, policies, memory)
    if found is None:
        return result
    policy, rule, state, step = found
    if outcome.reason in (APPROVED, DENIED):
        if step.open:
            step.answer, step.answered = outcome.reason, outcome.message
            result.wake(now)
        return result
    # An action may have begun before its recall was heard of: what it came to is told nevertheless.
    begun = step.state is ActionState.CANCELLED and step.requested and outcome.state is not ActionState.REFUSED
    if step.state is outcome.state or (step.state is not None and step.state.final and not begun):
        return result
    step.proof = outcome.proof
    step.resume_command = outcome.resume_command
    case = Case(policy, rule, state, run, run.scope(now))
    decision = _change(result, case, step, outcome.state, outcome.reason, outcome.message, at=outcome.time)
    if step.type is not ActionType.NOTIFY and outcome.state.final:
        quiet = outcome.state is ActionState.REFUSED and outcome.reason == RECALLED
        if not quiet and (outcome.state is not ActionState.DONE or is_disruptive(step.type)):
            _tell_outcome(result, case, decision, step)
        for due in list(due_steps(case)):
            if due.step.type is ActionType.NOTIFY:
                _notify(result, due)
        if run.facts.phase.ended:
            _leave(result, policy, run, memory, now)
    result.wake(now)
    return result


def _step_of(
    action_id: str, policies: Sequence[CompiledPolicy], memory: RunMemory
) -> tuple[CompiledPolicy, CompiledRule, RuleState, StepState] | None:
    for policy in policies:
        known = memory.policies.get(policy.uid)
        for rule in policy.rules if known is not None else ():
            state = known.rules.get(rule.spec.name) if known is not None else None
            for step in state.steps if state is not None else ():
                if step.id == action_id and state is not None:
                    return policy, rule, state, step
    return None


def _look(result: Judgement, case: Case, outcome: Outcome) -> None:
    """Take what the condition gave, and tell when the verdict changes."""
    rule, state = case.rule, case.state
    if state.condition != rule.condition:
        if state.engaged:
            _end(result, case, "PolicyChanged", "the condition was edited and is judged anew")
        state.condition, state.verdict = rule.condition, Verdict.UNKNOWN
    value = outcome.value if isinstance(outcome.value, bool) else None
    before, was_engaged, was_firing = state.verdict, state.engaged, state.firing_since is not None
    verdict = advance(state, rule.spec, value=value, now=case.now)
    state.unknown = outcome.unknown
    if verdict is before:
        return
    if verdict is Verdict.FIRING and not was_firing:
        begin_episode(case)
    if was_engaged or state.engaged or verdict is Verdict.RESOLVED:  # else it only became known, or unknown
        decision = verdict_decision(case)
        result.decisions.append(decision)
        if verdict is Verdict.RESOLVED:
            _resolve(result, case, decision)
    if verdict is Verdict.RESOLVED:
        state.verdict = Verdict.INACTIVE


def _leave(result: Judgement, policy: CompiledPolicy, run: RunState, memory: RunMemory, now: datetime) -> None:
    """The policy is not for the run any more, or the run has ended: end what goes on.

    What is being done goes on to its own end, and so does the message that waits for it.
    """
    phase, scope = run.facts.phase, run.scope(now)
    reason, message = "NotSelected", "the policy is not for this run any more"
    if phase.ended:
        because = f": {run.facts.ended_because}" if run.facts.ended_because else ""
        reason, message = "JobEnded", f"the job is {phase.value}{because}"
    for rule in policy.rules:
        state = memory.rule(policy.uid, rule.spec.name)
        if not state.engaged:
            continue
        case = Case(policy, rule, state, run, scope)
        busy = [step for step in state.steps if step.busy and step.type is not ActionType.NOTIFY]
        if any(phase.ended or not step.recallable for step in busy):
            result.wake(now + _REST)
            continue
        for due in list(due_steps(case)):
            if due.step.type is ActionType.NOTIFY and due.step.state is not None:
                _notify(result, due)
        _end(result, case, reason, message)


def _end(result: Judgement, case: Case, reason: str, message: str) -> None:
    """End a pending or firing rule for a reason other than its condition."""
    state = case.state
    state.verdict = Verdict.INACTIVE if state.firing_since is None else Verdict.RESOLVED
    state.since = state.paused = state.firing_since = state.last_true = None
    result.decisions.append(verdict_decision(case, reason=reason, message=message))
    _cancel(result, case, reason, message)
    state.verdict = Verdict.INACTIVE


def _cancel(result: Judgement, case: Case, reason: str, message: str) -> None:
    for step in case.state.steps:
        if step.open or step.recallable:
            _change(result, case, step, ActionState.CANCELLED, reason, message)


def _resolve(result: Judgement, case: Case, decision: Decision) -> None:
    """The condition has ended: steps that have not begun will not; whoever was told of it is told."""
    _cancel(result, case, RECALLED, "the condition ended before")
    steps = case.state.steps
    told = any(s.type is ActionType.NOTIFY and (s.busy or s.state is ActionState.DONE) for s in steps)
    ended = any(is_disruptive(s.type) and (s.busy or s.state is ActionState.DONE) for s in steps)
    if told and not ended:
        result.notices.append(notice_of(case, decision, about="resolved", channels=channels_of(case.rule)))


def _plan_waking(result: Judgement, rule: CompiledRule, state: RuleState, now: datetime) -> None:
    if state.firing_since is not None:
        if state.since is None and state.last_true is not None:
            result.wake(max(state.last_true + rule.spec.keep_firing_for, now + _SOON))
        for step in state.steps:
            if holds_back(state, step):
                continue
            if step.state is None and is_spec_of(step, rule):
                result.wake(max(due_at(state, rule.spec.actions[step.index]), now + _SOON))
            elif step.open and step.state is not None:
                result.wake(now + _TICK)
    elif state.since is not None and state.paused is None:
        result.wake(max(state.since + rule.spec.for_, now + _SOON))


def _drop_old_rules(policy: CompiledPolicy, memory: RunMemory) -> None:
    """Forget rules that an edit of the policy took away."""
    rules = memory.policies[policy.uid].rules
    names = {rule.spec.name for rule in policy.rules}
    for name in [name for name in rules if name not in names]:
        del rules[name]


def _act(result: Judgement, due: Due, memory: RunMemory) -> None:
    case, step = due.case, due.step
    if step.type is ActionType.NOTIFY:
        if is_silenced(case.policy.policy, case.run.facts, case.now):
            if step.reason != "Silenced":
                _change(
                    result, case, step, ActionState.WAITING, "Silenced", "the job's owner has silenced its policies"
                )
        else:
            _notify(result, due)
        return
    moved = move(due, memory)
    if step.state is moved.state and step.reason == moved.reason:
        return
    decision = _change(result, case, step, moved.state, moved.reason, moved.message)
    if moved.state is ActionState.REQUESTED:
        run, checkpoint = case.run, case.run.checkpoint()
        result.requests.append(
            ActionRequest(
                action=action_of(due),
                decision=decision,
                newest_checkpoint=checkpoint,
                newest_checkpoint_age=run.checkpoint_age(case.now) if checkpoint is not None else None,
                reporting=run.reporting(),
            )
        )
    elif moved.state is ActionState.REFUSED and moved.reason not in QUIET_REFUSALS:
        _tell_outcome(result, case, decision, step)


def _notify(result: Judgement, due: Due) -> None:
    """Send a Notify step's message, once what is done at the same time has its outcome."""
    case, step = due.case, due.step
    if case.policy.ref.mode is Mode.ENFORCE:
        until = waits_for(due)
        if until is not None:
            if step.state is None:
                _change(result, case, step, ActionState.WAITING, "OtherAction", "waits for what is being done")
            result.wake(until)
            return
    decision = _change(result, case, step, ActionState.REQUESTED, "Due", "")
    for other in case.state.steps:
        if other.state is not None and other.state.final:
            other.told = True
    result.notices.append(
        notice_of(case, decision, about=step.id, channels=due.spec.channels, action_id=step.id),
    )


def _tell_outcome(result: Judgement, case: Case, decision: Decision, step: StepState) -> None:
    """Tell people how an action ended, unless a Notify step that waits for it will."""
    rule, state = case.rule, case.state
    if step.told or case.policy.ref.mode is Mode.AUDIT:
        return
    if state.firing_since is not None and is_spec_of(step, rule):
        after = rule.spec.actions[step.index].after
        for other in state.steps:
            notifies = other.type is ActionType.NOTIFY and other.open and is_spec_of(other, rule)
            if notifies and rule.spec.actions[other.index].after == after:
                return
    step.told = True
    about = f"{step.id}/{step.state}"
    result.notices.append(notice_of(case, decision, about=about, channels=channels_of(rule)))


def _change(
    result: Judgement,
    case: Case,
    step: StepState,
    state: ActionState,
    reason: str,
    message: str,
    *,
    at: datetime | None = None,
) -> Decision:
    step.state, step.reason, step.message, step.at = state, reason, message, at or case.now
    step.requested |= state is ActionState.REQUESTED
    action = action_of(Due(case, step)) if is_spec_of(step, case.rule) else None
    decision = action_decision(case, step, action)
    result.decisions.append(decision)
    return decision
