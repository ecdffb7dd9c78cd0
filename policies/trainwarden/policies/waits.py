"""When the next wait of some rules is over, for those who let time go by as they like."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from trainwarden.policies.compiling import CompiledPolicy, CompiledRule
from trainwarden.policies.ladder import due_at, is_spec_of
from trainwarden.policies.memory import RuleState, RunMemory

__all__ = ["next_due"]


def next_due(policies: Sequence[CompiledPolicy], memory: RunMemory, after: datetime) -> datetime | None:
    """When the next `for`, `keepFiringFor` or wait of a ladder is over; None when nothing waits.

    Args:
        policies: Whose rules are meant.
        memory: Of the run.
        after: Moments up to this one don't count.
    """
    found: datetime | None = None
    for policy in policies:
        known = memory.policies.get(policy.uid)
        if known is None or not known.engaged:
            continue
        for rule in policy.rules:
            state = known.rules.get(rule.spec.name)
            if state is None or not state.engaged:
                continue
            for moment in _moments(rule, state):
                if moment > after and (found is None or moment < found):
                    found = moment
    return found


def _moments(rule: CompiledRule, state: RuleState) -> Iterator[datetime]:
    if state.firing_since is None:
        if state.since is not None and state.paused is None:
            yield state.since + rule.spec.for_
        return
    if state.since is None and state.last_true is not None:
        yield state.last_true + rule.spec.keep_firing_for
    for step in state.steps:
        if step.open and is_spec_of(step, rule):
            yield due_at(state, rule.spec.actions[step.index])
