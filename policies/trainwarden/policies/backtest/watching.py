"""Some rules and their memory about one recorded run, and when they want to be asked next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from trainwarden.policies.compiling import CompiledPolicy
from trainwarden.policies.explaining import variables_of
from trainwarden.policies.judge import Judgement, judge
from trainwarden.policies.memory import RunMemory
from trainwarden.policies.models import OnUnknown
from trainwarden.policies.run import RunState
from trainwarden.policies.waits import next_due

__all__ = ["Watch", "part"]


def part(policy: CompiledPolicy, *, by_time: bool) -> CompiledPolicy | None:
    """The policy with only those rules that may change without a report, or only the others; None when it has none."""
    rules = tuple(
        rule for rule in policy.rules if (rule.by_time or rule.spec.on_unknown is not OnUnknown.HOLD) is by_time
    )
    if not rules:
        return None
    variables = policy.variables
    if policy.match is None:
        used = frozenset[str]().union(*(rule.variables for rule in rules))
        variables = tuple(each for each in variables if each[0] in used)
    return replace(policy, rules=rules, variables=variables)


@dataclass(slots=True)
class Watch:
    """Rules that are asked together. All moments are seconds since the run began."""

    policies: Sequence[CompiledPolicy]
    memory: RunMemory = field(default_factory=RunMemory)
    looked: float = -math.inf  # the newest look
    wake: float | None = None  # when the judge wants to look again
    engaged: bool = False  # whether a rule was pending or firing at the newest look
    without_value: dict[tuple[str, str], str] = field(default_factory=dict)  # (uid, rule) that had none yet, and why

    def __post_init__(self) -> None:
        self.without_value = {(policy.uid, rule.spec.name): "" for policy in self.policies for rule in policy.rules}

    def look(self, run: RunState, start: datetime, seconds: float) -> Judgement | None:
        """Judge the run; None without a rule."""
        if not self.policies:
            return None
        judgement = judge(self.policies, run, self.memory, start + timedelta(seconds=seconds))
        self._note_values()
        self.looked, self.engaged = seconds, self.memory.engaged
        self.wake = (judgement.wake_at - start).total_seconds() if judgement.wake_at is not None else None
        return judgement

    def _note_values(self) -> None:
        for uid, name in list(self.without_value):
            known = self.memory.policies.get(uid)
            state = known.rules.get(name) if known is not None else None
            if state is None:
                continue
            if state.unknown:
                self.without_value[uid, name] = state.unknown
            else:
                del self.without_value[uid, name]

    def is_steady(self, run: RunState, start: datetime, seconds: float) -> bool:
        """Whether each condition is at a moment as it was at the newest look, without remembering that it was asked."""
        scope = run.scope(start + timedelta(seconds=seconds))
        for policy in self.policies:
            known = self.memory.policies.get(policy.uid)
            variables = variables_of(policy, scope) if policy.variables else {}
            if policy.match is not None and policy.match.evaluate(scope, variables).value is False:
                if known is not None and known.engaged:
                    return False
                continue
            for rule in policy.rules:
                value = rule.when.evaluate(scope, variables).value
                if value is not None:
                    self.without_value.pop((policy.uid, rule.spec.name), None)
                elif rule.spec.on_unknown is not OnUnknown.HOLD:
                    value = rule.spec.on_unknown is OnUnknown.TRUE
                state = known.rules.get(rule.spec.name) if known is not None else None
                held = state is not None and state.since is not None and state.paused is None
                if held is not (value is True):
                    return False
        return True

    def next_due(self, start: datetime) -> float | None:
        """When the next `for`, `keepFiringFor` or wait of a ladder is over, after the newest look; None: none waits."""
        if not self.engaged:
            return None
        found = next_due(self.policies, self.memory, start + timedelta(seconds=self.looked))
        return (found - start).total_seconds() if found is not None else None
