"""The state machine of one rule: inactive, pending, firing, resolved; unknown neither fires nor resolves nor resets."""

from __future__ import annotations

from datetime import datetime

from trainwarden.policies.decision import Verdict
from trainwarden.policies.memory import RuleState
from trainwarden.policies.models import OnUnknown, Rule

__all__ = ["advance", "stand_still"]


def advance(state: RuleState, rule: Rule, *, value: bool | None, now: datetime) -> Verdict:
    """Take one evaluation of the condition and give the verdict; RESOLVED is given once, then it is inactive.

    `for` counts from the first true evaluation and includes its last second; time in which the condition was unknown
    does not count. A rule fires and resolves only on an evaluation with a value. A clock that goes back counts as one
    that stands still.

    Args:
        state: Changed in place.
        rule: The rule as written.
        value: Of the condition; None while unknown.
        now: Time of the evaluation.
    """
    if state.at is not None and now < state.at:
        now = state.at
    state.at = now
    if value is None and rule.on_unknown is not OnUnknown.HOLD:
        value = rule.on_unknown is OnUnknown.TRUE
    if value is None:
        state.verdict = _unknown(state, now)
    elif value:
        state.verdict = _true(state, rule, now)
    else:
        state.verdict = _false(state, rule, now)
    return state.verdict


def stand_still(state: RuleState, now: datetime) -> None:
    """Take a false evaluation of an inactive rule: what `advance` would do, at a fraction of its cost."""
    if state.at is None or now > state.at:
        state.at = now
    state.unknown = ""


def _unknown(state: RuleState, now: datetime) -> Verdict:
    if state.since is not None and state.paused is None:
        state.paused = now
    return Verdict.FIRING if state.firing_since is not None else Verdict.UNKNOWN


def _true(state: RuleState, rule: Rule, now: datetime) -> Verdict:
    if state.since is None:
        state.since = now
    elif state.paused is not None:
        state.since += now - state.paused
    state.paused = None
    state.last_true = now
    if state.firing_since is None and now - state.since >= rule.for_:
        state.firing_since = now
        state.episode += 1
    return Verdict.PENDING if state.firing_since is None else Verdict.FIRING


def _false(state: RuleState, rule: Rule, now: datetime) -> Verdict:
    state.since = state.paused = None
    if state.firing_since is None:
        return Verdict.INACTIVE
    if state.last_true is not None and now - state.last_true < rule.keep_firing_for:
        return Verdict.FIRING
    state.firing_since = None
    return Verdict.RESOLVED
