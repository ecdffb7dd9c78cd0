"""What must survive a restart of the engine for one job: the state of each rule and of each action. Plain JSON."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from datetime import datetime

import msgspec

from trainwarden.policies.decision import ActionState, ActionType, Proof, Verdict

__all__ = ["PolicyMemory", "RuleState", "RunMemory", "StepState", "derived_id", "forget"]

_MOST_GONE = 32


class StepState(msgspec.Struct, rename="camel"):
    """One step of a rule's ladder, in the episode that goes on."""

    id: str
    type: ActionType
    index: int
    state: ActionState | None = None  # None: not begun
    reason: str = ""
    message: str = ""
    at: datetime | None = None  # of the newest change
    proof: Proof | None = None
    resume_command: str = ""
    told: bool = False  # a message to people has its outcome
    changes: int = 0  # decisions made of it, so that each has an id of its own
    answer: str = ""  # Approved or Denied, by a person
    answered: str = ""  # how, and by whom
    requested: bool = False  # it is in the hands of executor or notifier, whatever they say of it

    @property
    def open(self) -> bool:
        """Whether the step has not begun."""
        return not self.requested and (self.state is None or self.state is ActionState.WAITING)

    @property
    def recallable(self) -> bool:
        """Whether an executor was asked for the step and has not begun it. A message that was asked for is sent."""
        asked = self.state in (ActionState.REQUESTED, ActionState.WAITING)
        return self.requested and asked and self.type is not ActionType.NOTIFY

    @property
    def busy(self) -> bool:
        """Whether the step is being done."""
        return self.requested and self.state is not None and not self.state.final


class RuleState(msgspec.Struct, rename="camel"):
    """Where one rule stands about one job."""

    verdict: Verdict = Verdict.UNKNOWN
    at: datetime | None = None  # of the newest evaluation; never goes back
    since: datetime | None = None  # the condition has held from then on
    paused: datetime | None = None  # the condition is unknown from then on; that time does not count
    firing_since: datetime | None = None
    last_true: datetime | None = None
    episode: int = 0  # times it has begun to fire
    changes: int = 0  # decisions made, so that each has an id of its own
    condition: str = ""  # that it was judged by, as written
    unknown: str = ""  # why it has no value now
    fired_step: int | None = None  # at which it fired
    because: str = ""  # why it fired, in a few words; empty when no single known clause was true
    steps: list[StepState] = []

    @property
    def engaged(self) -> bool:
        """Whether the rule is pending or firing."""
        return self.since is not None or self.firing_since is not None


class PolicyMemory(msgspec.Struct, rename="camel"):
    """The rules of one policy, by name."""

    rules: dict[str, RuleState] = {}

    @property
    def engaged(self) -> bool:
        """Whether a rule is pending or firing."""
        return any(state.engaged for state in self.rules.values())


class RunMemory(msgspec.Struct, rename="camel"):
    """All policies of one job, by uid."""

    policies: dict[str, PolicyMemory] = {}

    @property
    def engaged(self) -> bool:
        """Whether a rule of any policy is pending or firing."""
        return any(policy.engaged for policy in self.policies.values())

    def keep(self, policies: Collection[str]) -> None:
        """Drop the oldest policies that are not among these, once there are many.

        A policy that can't be used for a while, since an edit broke it, is not among them and is still known later.
        """
        gone = [uid for uid in self.policies if uid not in policies]
        for uid in gone[: max(len(gone) - _MOST_GONE, 0)]:
            del self.policies[uid]

    def rule(self, policy: str, name: str) -> RuleState:
        """State of a rule; a new one when it is not known yet."""
        rules = self.policies.setdefault(policy, PolicyMemory()).rules
        state = rules.get(name)
        if state is None:
            state = rules[name] = RuleState()
        return state


def forget(policy_uid: str, memory: RunMemory) -> None:
    """Drop what is known of a policy that is gone."""
    memory.policies.pop(policy_uid, None)


def derived_id(*about: object) -> str:
    """An id that is the same whenever it is derived from the same things: 32 hex digits."""
    return hashlib.sha256("\x1f".join(map(str, about)).encode()).hexdigest()[:32]
