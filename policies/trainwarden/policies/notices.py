"""From a decision to all that a message about its incident needs."""

from __future__ import annotations

from trainwarden.policies.compiling import CompiledRule
from trainwarden.policies.decision import ActionState, ActionType, Decision, Proof
from trainwarden.policies.explaining import Case
from trainwarden.policies.ladder import due_at, is_disruptive, is_spec_of
from trainwarden.policies.memory import RuleState, StepState, derived_id
from trainwarden.policies.notice import Curve, Notice, Outcome
from trainwarden.policies.run import RunState

__all__ = ["channels_of", "incident_id", "notice_of"]


def incident_id(job_uid: str, policy_uid: str, rule: str, episode: int) -> str:
    """Identity of one firing of one rule for one job."""
    return derived_id("incident", job_uid, policy_uid, rule, episode)


def channels_of(rule: CompiledRule) -> tuple[str, ...]:
    """Channels of all Notify steps, in order; none means the default ones."""
    named = [channel for step in rule.spec.actions if step.type is ActionType.NOTIFY for channel in step.channels]
    return tuple(dict.fromkeys(named))


def notice_of(case: Case, decision: Decision, *, about: str, channels: tuple[str, ...], action_id: str = "") -> Notice:
    """Put together one message. `about` makes its id differ from other messages of the incident."""
    policy, rule, state, run, now = case.policy, case.rule, case.state, case.run, case.now
    incident = incident_id(run.facts.uid, policy.uid, rule.spec.name, state.episode)
    ended = any(is_disruptive(s.type) and s.state in (ActionState.DONE, ActionState.WOULD_ACT) for s in state.steps)
    proof = _proof(state) or decision.proof or run.checkpoint()
    age = run.checkpoint_age(now)
    eta = run.eta_seconds(now)
    if eta is None and ended:
        eta = _left(run)
    price = run.facts.price_per_hour
    return Notice(
        id=derived_id("notice", incident, about),
        incident=incident,
        time=now,
        decision=decision,
        channels=channels,
        condition=rule.spec.when,
        because=state.because,
        curve=_curve(decision, rule, run, state.fired_step),
        outcomes=tuple(_outcome(step, rule, state) for step in state.steps if step.type is not ActionType.NOTIFY),
        checkpoint=proof,
        checkpoint_age_seconds=age.total_seconds() if age is not None and run.checkpoint() is not None else None,
        progress_percent=run.percent(),
        eta_seconds=eta,
        running_seconds=run.running_seconds(now),
        cost=run.cost(now),
        saved_seconds=eta if ended else None,
        saved_cost=price * eta / 3600 if ended and price is not None and eta is not None else None,
        resume_command=next((step.resume_command for step in state.steps if step.resume_command), ""),
        action_id=action_id,
    )


def _left(run: RunState) -> float | None:
    """Seconds that the rest of the plan would have taken, for a run that does not run any more."""
    step, total = run.step(), run.total()
    if step is None or total is None or total <= step:
        return None
    eta = run.pace.eta(step, total, since_step=0.0)
    return eta.expected.total_seconds() if eta is not None else None


def _proof(state: RuleState) -> Proof | None:
    return next((step.proof for step in reversed(state.steps) if step.proof is not None), None)


def _outcome(step: StepState, rule: CompiledRule, state: RuleState) -> Outcome:
    if step.state is None:
        planned = is_spec_of(step, rule) and state.firing_since is not None
        at = due_at(state, rule.spec.actions[step.index]) if planned else None
        return Outcome(action=step.type.value, state="Planned", at=at)
    return Outcome(action=step.type.value, state=step.state.value, message=step.message, at=step.at)


def _curve(decision: Decision, rule: CompiledRule, run: RunState, step: int | None) -> Curve | None:
    """The metric that the rule judged: of its newest window, else the first that its condition names."""
    windows = decision.evidence.windows
    if windows:
        return run.curve(windows[-1].metric, window=windows[-1], fired_at=step)
    for name in sorted(rule.when.names):
        if name.startswith("metrics."):
            curve = run.curve(name.removeprefix("metrics."), window=None, fired_at=step)
            if curve is not None:
                return curve
    return run.curve("loss", window=None, fired_at=step)
