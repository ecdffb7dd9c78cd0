"""What must survive a restart of the engine for one job: the state of each rule and of each action. Plain JSON."""

from __future__ import annotations

import hashlib
from datetime import datetime

import msgspec

from trainwarden.policies.decision import ActionState, ActionType, Proof, Verdict

__all__ = ["PolicyMemory", "RuleState", "RunMemory", "StepState", "derived_id", "forget"]


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
    when: str = ""  # the condition it was judged by
    unknown: str = ""  # why it has no value now
    steps: list[StepState] = []


class PolicyMemory(msgspec.Struct, rename="camel"):
    """The rules of one policy, by name."""

    rules: dict[str, RuleState] = {}


class RunMemory(msgspec.Struct, rename="camel"):
    """All policies of one job, by uid."""

    policies: dict[str, PolicyMemory] = {}

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
