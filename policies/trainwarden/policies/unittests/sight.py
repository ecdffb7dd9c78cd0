"""What one rule shows of itself at a moment of a replay: condition, state, sentence, values and actions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

import msgspec

from trainwarden.policies.compiling import CompiledPolicy, CompiledRule
from trainwarden.policies.decision import Decision, Value, Verdict
from trainwarden.policies.explaining import Case, variables_of, verdict_decision
from trainwarden.policies.memory import RuleState
from trainwarden.policies.selecting import selects
from trainwarden.policies.unittests.replay import Replay

__all__ = ["Sight", "decisions_of", "sight"]


@dataclass(frozen=True, slots=True)
class Sight:
    """One rule about one run at one moment."""

    selected: bool  # the policy is for the run
    when: Literal["true", "false", "unknown"]
    reason: str  # why the condition is unknown, or the policy not for the run
    verdict: Verdict
    step: int | None
    values: Mapping[str, Value]
    message: str  # that the rule would say
    actions: tuple[str, ...]  # begun, in the newest firing: type, state and reason
    newest: Decision | None  # about the rule
    held: timedelta | None  # how long the condition of a pending rule has held


def sight(replay: Replay, policy: CompiledPolicy, rule: CompiledRule) -> Sight:
    """Look at a rule without changing anything."""
    run, now = replay.run, replay.now
    scope = run.scope(now)
    variables = variables_of(policy, scope)
    not_for = "" if selects(policy.policy, run.facts) else "the policy is not for the run: its selector does not match"
    outcome = rule.when.evaluate(scope, variables)
    value, reason = outcome.value, outcome.unknown
    if policy.match is not None and not not_for:
        matched = policy.match.evaluate(scope, variables)
        if matched.value is False:
            not_for = "the policy is not for the run: its match is false"
        elif matched.value is None:
            value, reason = None, f"match has no value: {matched.unknown}"
    known = replay.memory.policies.get(policy.uid)
    state = (known.rules.get(rule.spec.name) if known is not None else None) or RuleState()
    probe = Case(policy, rule, msgspec.structs.replace(state, verdict=Verdict.FIRING), run, scope)
    shown = verdict_decision(probe)
    decisions = decisions_of(replay, policy, rule)
    return Sight(
        selected=not not_for,
        when="unknown" if value is None else "true" if value else "false",
        reason=not_for or reason,
        verdict=_verdict(state, decisions),
        step=shown.evidence.step,
        values=shown.evidence.values,
        message=shown.message,
        actions=tuple(f"{s.type.value} {s.state.value} {s.reason}" for s in state.steps if s.state is not None),
        newest=next(reversed(decisions), None),
        held=now - state.since if state.since is not None and state.firing_since is None else None,
    )


def decisions_of(replay: Replay, policy: CompiledPolicy, rule: CompiledRule) -> list[Decision]:
    """All decisions about one rule so far."""
    return [each for each in replay.decisions if each.policy.uid == policy.uid and each.rule == rule.spec.name]


def _verdict(state: RuleState, decisions: list[Decision]) -> Verdict:
    """State of the rule; one that fired, and has not been pending or firing since, is Resolved."""
    if state.verdict is not Verdict.INACTIVE:
        return state.verdict
    newest = next((each.verdict for each in reversed(decisions) if each.action is None), Verdict.INACTIVE)
    return Verdict.RESOLVED if newest is Verdict.RESOLVED else Verdict.INACTIVE
