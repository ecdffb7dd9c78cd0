"""What was concluded about a run, and what is to be done: Decision, Action, ActionRequest, ActionResult.

These are the payloads of the streams; their JSON names are camelCase and are told in docs/decisions.md.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

__all__ = [
    "Action",
    "ActionRequest",
    "ActionResult",
    "ActionState",
    "ActionType",
    "CheckpointMode",
    "Decision",
    "Evidence",
    "Mode",
    "PolicyRef",
    "Proof",
    "RunRef",
    "Severity",
    "Value",
    "Verdict",
    "Window",
]

Value = bool | int | float | str | None
"""A value in evidence; durations and moments as text, a number that is not finite as "NaN", "Infinity", "-Infinity"."""


class Verdict(StrEnum):
    """State of a rule about one run. Absent data neither fires nor resolves: it is Unknown."""

    INACTIVE = "Inactive"
    PENDING = "Pending"
    FIRING = "Firing"
    RESOLVED = "Resolved"  # was firing, and has ended
    UNKNOWN = "Unknown"


class Severity(StrEnum):
    """How much a rule matters to a person, least first."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """Place in the order, 0 for the least."""
        return list(Severity).index(self)


class Mode(StrEnum):
    """Whether a policy acts, or only says what it would have done."""

    AUDIT = "Audit"
    ENFORCE = "Enforce"


class ActionType(StrEnum):
    """What a step of a ladder does, least destructive first."""

    NOTIFY = "Notify"
    CHECKPOINT = "Checkpoint"
    SUSPEND = "Suspend"
    STOP = "Stop"
    DELETE = "Delete"

    @property
    def rank(self) -> int:
        """Place in the order, 0 for the least destructive."""
        return list(ActionType).index(self)


class CheckpointMode(StrEnum):
    """What a Suspend, Stop or Delete does about a checkpoint first."""

    REQUIRED = "Required"  # no fresh proof, no action: a person is told
    BEST_EFFORT = "BestEffort"  # ask, and act even when none comes
    SKIP = "Skip"


class ActionState(StrEnum):
    """What has become of an action."""

    WOULD_ACT = "WouldAct"  # Audit
    REQUESTED = "Requested"  # in the outbox
    WAITING = "Waiting"  # for an approval or an earlier action
    IN_PROGRESS = "InProgress"
    DONE = "Done"
    FAILED = "Failed"  # tried, and it did not work: the reason says why
    REFUSED = "Refused"  # not tried: a protection, a missing proof, or the job has ended
    CANCELLED = "Cancelled"  # the rule resolved first

    @property
    def final(self) -> bool:
        """Whether nothing more will come of the action."""
        return self not in (ActionState.REQUESTED, ActionState.WAITING, ActionState.IN_PROGRESS)


class RunRef(msgspec.Struct, frozen=True, rename="camel"):
    """Identity of a run: TrainJob UID, attempt and the reporter's run id."""

    namespace: str
    job: str
    uid: str
    attempt: str
    run: str = ""  # of the newest report; empty before the first


class PolicyRef(msgspec.Struct, frozen=True, rename="camel"):
    """The policy as it was when the decision was made."""

    kind: str  # TrainingPolicy or ClusterTrainingPolicy
    namespace: str  # empty for the cluster kind
    name: str
    uid: str
    generation: int
    mode: Mode

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Window(msgspec.Struct, frozen=True, rename="camel"):
    """The stretch of a metric's history that a function looked at."""

    metric: str
    from_step: int
    to_step: int
    from_time: datetime
    to_time: datetime
    points: int  # how many reported values are in it


class Evidence(msgspec.Struct, frozen=True, rename="camel"):
    """What a decision was made from."""

    step: int | None = None
    values: dict[str, Value] = {}  # each name and function call of the expression, as written, and its value
    windows: tuple[Window, ...] = ()
    unknown: str = ""  # why the expression had no value
    known_since: datetime | None = None  # from when the engine's windows are


class Proof(msgspec.Struct, frozen=True, rename="camel"):
    """A checkpoint as the training proved it."""

    step: int
    path: str
    bytes: int | None = None
    digest: str | None = None


class Action(msgspec.Struct, frozen=True, rename="camel"):
    """One step of a rule's ladder, for one firing of the rule. Its id is the same however often it is derived."""

    id: str
    type: ActionType
    index: int  # place in the ladder
    after: timedelta
    checkpoint: CheckpointMode = CheckpointMode.REQUIRED
    channels: tuple[str, ...] = ()
    timeout: timedelta = timedelta(minutes=10)  # for the checkpoint
    max_checkpoint_age: timedelta | None = None  # when no answer comes: newest known checkpoint this fresh will do
    include_owned: bool = False  # delete also a job that another controller owns


class Decision(msgspec.Struct, frozen=True, rename="camel"):
    """What one rule concluded about one run, and why; or what became of an action. One line of the decision log."""

    id: str
    time: datetime
    run: RunRef
    policy: PolicyRef
    rule: str
    verdict: Verdict
    severity: Severity
    reason: str  # CamelCase, for machines
    message: str  # a sentence, for people
    evidence: Evidence
    episode: int = 0  # how many times the rule has begun to fire for this job
    action: Action | None = None
    action_state: ActionState | None = None
    proof: Proof | None = None
    engine: str = ""  # version that decided


class ActionRequest(msgspec.Struct, frozen=True, rename="camel"):
    """An action for the executor, in the outbox until its result is final."""

    action: Action
    decision: Decision
    newest_checkpoint: Proof | None = None
    newest_checkpoint_age: timedelta | None = None
    reporting: bool = True  # the training has a reporter that can be asked


class ActionResult(msgspec.Struct, frozen=True, rename="camel"):
    """What the executor, or the notifier, made of an action."""

    action_id: str  # empty for a notice that no action asked for
    namespace: str
    job: str
    state: ActionState
    reason: str
    message: str
    time: datetime
    proof: Proof | None = None
    resume_command: str = ""  # of a suspended run
    notice_id: str = ""  # of a message, when the notifier tells what became of it
