"""What a decision says: verdict or action, reason, sentence, and the values and windows that it was made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from trainwarden.policies.clauses import Clause
from trainwarden.policies.compiling import CompiledPolicy, CompiledRule
from trainwarden.policies.decision import Action, ActionType, Decision, Evidence, Value, Verdict
from trainwarden.policies.expressions.functions import human_duration, human_number
from trainwarden.policies.expressions.protocol import CelValue, Outcome, UnknownValueError
from trainwarden.policies.memory import RuleState, StepState, derived_id
from trainwarden.policies.readable import not_finite
from trainwarden.policies.run import RunState
from trainwarden.policies.scope import RunScope

__all__ = ["Case", "Variables", "action_decision", "spoken", "variables_of", "verdict_decision"]

Variables = Mapping[str, CelValue | UnknownValueError]

_REASONS = {
    Verdict.PENDING: "ConditionTrue",
    Verdict.FIRING: "ConditionHeld",
    Verdict.RESOLVED: "ConditionEnded",
    Verdict.INACTIVE: "ConditionFalse",
    Verdict.UNKNOWN: "NoValue",
}


@dataclass(frozen=True, slots=True)
class Case:
    """One rule about one run at one moment."""

    policy: CompiledPolicy
    rule: CompiledRule
    state: RuleState
    run: RunState
    scope: RunScope

    @property
    def now(self) -> datetime:
        """Time of the evaluation."""
        return self.scope.now


def variables_of(policy: CompiledPolicy, scope: RunScope) -> Variables:
    """The policy's variables, each a value or why it has none."""
    variables: dict[str, CelValue | UnknownValueError] = {}
    for name, expression in policy.variables:
        outcome = expression.evaluate(scope, variables)
        value = outcome.value
        variables[name] = value if value is not None else UnknownValueError(outcome.unknown)
    return variables


def verdict_decision(case: Case, *, reason: str = "", message: str = "") -> Decision:
    """The decision that a rule's verdict has changed.

    Args:
        case: The rule, its state changed already.
        reason: Instead of the usual one of the verdict.
        message: Instead of the sentence made from the condition's values.
    """
    seen = _Seen.by(case)
    verdict = case.state.verdict
    if verdict is Verdict.FIRING:
        case.state.because, case.state.fired_step = seen.because(case), seen.evidence.step
    if not message:
        message = seen.sentence(case)
        if verdict is Verdict.UNKNOWN:
            message = case.state.unknown
        elif verdict is Verdict.RESOLVED or verdict is Verdict.INACTIVE:
            message = seen.ended(case)
    return _decision(case, seen, reason or _REASONS[verdict], message, verdict)


def action_decision(case: Case, step: StepState, action: Action | None) -> Decision:
    """The decision that a step of the ladder has changed, with the values that the condition has now."""
    seen = _Seen.by(case)
    message = seen.sentence(case) if step.type is ActionType.NOTIFY and not step.message else step.message
    return _decision(case, seen, step.reason, message, step.state or "", step=step, action=action)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the rule's condition sees now."""

    outcome: Outcome
    variables: Variables
    evidence: Evidence

    @classmethod
    def by(cls, case: Case) -> _Seen:
        scope, run = case.scope, case.run
        scope.look_anew()
        used = case.rule.variables
        variables: dict[str, CelValue | UnknownValueError] = {}
        known: dict[str, CelValue | str] = {}
        for name, expression in case.policy.variables:
            if name not in used:
                continue
            given = expression.evaluate(scope, variables)
            variables[name] = given.value if given.value is not None else UnknownValueError(given.unknown)
            known |= given.used
        outcome = case.rule.when.evaluate(scope, variables)
        values = {**known, **outcome.used}
        evidence = Evidence(
            step=run.step(),
            values={text: _evident(value) for text, value in values.items()},
            windows=scope.windows(),
            unknown=outcome.unknown,
            known_since=run.known_since,
        )
        return cls(outcome, variables, evidence)

    def sentence(self, case: Case) -> str:
        """The rule's own sentence; without one, or when it has no value, one made from the values."""
        rule = case.rule
        if rule.message is not None:
            text = rule.message.evaluate(case.scope, self.variables).value
            if isinstance(text, str) and text.strip():
                return text.strip()
        return _values(self.outcome) or rule.spec.when

    def because(self, case: Case) -> str:
        """Why the condition is true, in a few words; empty unless just one clause that is true says so."""
        said = [each for each in case.rule.clauses if each.phrase]
        true = [each for each in said if each.look(case.scope, self.variables).value is each.wanted]
        return true[0].words(self.variables) if len(true) == 1 else ""

    def ended(self, case: Case) -> str:
        """Which clauses of the condition do not hold now, and their values."""
        clauses = case.rule.clauses
        looks = [(clause, clause.look(case.scope, self.variables)) for clause in clauses]
        against = [_against(clause, outcome) for clause, outcome in looks if outcome.value is (not clause.wanted)]
        return "; ".join(dict.fromkeys(against)) or _values(self.outcome) or case.rule.spec.when


def _against(clause: Clause, outcome: Outcome) -> str:
    """`progress.percent < 95 is false (progress.percent is 96.2)`."""
    said = f"{clause.text} is {spoken(outcome.value)}"
    return said if list(outcome.used) == [clause.text] else f"{said} ({_values(outcome)})" if outcome.used else said


def _values(outcome: Outcome) -> str:
    """The values that an expression has read, as people say them; empty when none was read."""
    return ", ".join(f"{text} is {spoken(value)}" for text, value in outcome.used.items())


def spoken(value: Any) -> str:
    """A value as people say it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, timedelta):
        return human_duration(value)
    if isinstance(value, int | float) and value - value == 0:
        return human_number(value)
    return str(_evident(value))


def _evident(value: Any) -> Value:
    if isinstance(value, timedelta):
        return human_duration(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={item}" for key, item in value.items())
    if isinstance(value, float) and value - value != 0:
        return not_finite(value)
    return value  # type: ignore[no-any-return]


def _decision(
    case: Case,
    seen: _Seen,
    reason: str,
    message: str,
    what: str,
    *,
    step: StepState | None = None,
    action: Action | None = None,
) -> Decision:
    state, ref = case.state, case.run.ref()
    if step is None:
        state.changes += 1
        identity = derived_id("decision", ref.uid, case.policy.uid, case.rule.spec.name, state.changes, what)
    else:
        step.changes += 1
        identity = derived_id("decision", step.id, step.changes, what)
    return Decision(
        id=identity,
        time=case.now,
        run=ref,
        policy=case.policy.ref,
        rule=case.rule.spec.name,
        verdict=state.verdict,
        severity=case.rule.spec.severity,
        reason=reason,
        message=message,
        evidence=seen.evidence,
        episode=state.episode,
        action=action,
        action_state=step.state if step is not None else None,
        proof=step.proof if step is not None else None,
    )
