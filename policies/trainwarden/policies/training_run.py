"""TrainingRun, trainwarden.dev/v1alpha1: what is known of one TrainJob, for people and tools. Written by us alone.

What a person tells us about a run stands in its annotations: APPROVE, DENY and RESUME.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from trainwarden.policies.condition import Condition
from trainwarden.policies.decision import ActionState, ActionType, Mode, Severity, Verdict
from trainwarden.policies.models import SpecModel

__all__ = [
    "APPROVE",
    "DENY",
    "RESUME",
    "ActionStatus",
    "CheckpointStatus",
    "RuleStanding",
    "TrainingRunSpec",
    "TrainingRunStatus",
]

APPROVE = "trainwarden.dev/approve"
"""Annotation with the id of the action that is approved; its author is recorded by admission."""
DENY = "trainwarden.dev/deny"
"""Annotation with the id of the action that is denied."""
RESUME = "trainwarden.dev/resume"
"""Annotation that asks for the resume of a run that we have suspended; its value is free, such as the time."""

_MOST = 64


class CheckpointStatus(SpecModel):
    """A complete checkpoint as the training announced or proved it."""

    step: Annotated[int, Field(ge=0)]
    """Optimizer step that it holds."""
    path: str
    """Where the training wrote it, as the training sees it."""
    bytes: int | None = None
    """Size of its files."""
    digest: str | None = None
    """Digest over its files."""


class ActionStatus(SpecModel):
    """One step of a rule's ladder, and what became of it."""

    id: str
    """What `trainwarden approve` and `deny` name."""
    type: ActionType
    """Notify, Checkpoint, Suspend, Stop or Delete."""
    policy: str
    """Policy that asks for it."""
    rule: str
    """Rule that asks for it."""
    state: ActionState | None = None
    """Where it stands; WouldAct in Audit."""
    reason: str = ""
    """Why, in one word for machines."""
    message: str = ""
    """Why, in a sentence for people."""
    time: datetime | None = None
    """When that changed."""


class RuleStanding(SpecModel):
    """Where one rule stands about this run."""

    policy: str
    """Policy that holds the rule, `namespace/name` or `name`."""
    rule: str
    """Name of the rule."""
    mode: Mode
    """Audit or Enforce."""
    severity: Severity = Severity.WARNING
    """How much it matters."""
    verdict: Verdict
    """Inactive, Pending, Firing, Resolved or Unknown."""
    since: datetime | None = None
    """Since when it is pending or firing."""
    reason: str = ""
    """Why it has no value now, when it is unknown."""
    values: dict[str, str] = Field(default_factory=dict)
    """What its condition has read when it was looked at last, by name or call as written; 16 at most."""
    actions: tuple[ActionStatus, ...] = ()
    """Its ladder, while it fires and from the last time it fired."""


class TrainingRunSpec(SpecModel):
    """Which TrainJob the run is of."""

    train_job: str
    """Name of the TrainJob in the same namespace."""
    uid: str
    """UID of the TrainJob."""


class TrainingRunStatus(SpecModel):
    """What is known of the run now."""

    state: str = ""
    """Pending, Queued, Running, Suspended, Complete, Failed or Deleting."""
    source: str = ""
    """Where progress comes from: reporter, or bridge (also what stands on the TrainJob); empty before any."""
    attempt: str = ""
    """Changes with each restart and resume."""
    progress: str = ""
    """Share of the plan that is done, such as `42 %`; empty when the total is unknown."""
    eta: str = ""
    """Time left, such as `3h10m`."""
    eta_low: str = ""
    """The optimistic end of its 80 % band."""
    eta_high: str = ""
    """The pessimistic end of its 80 % band."""
    loss: str = ""
    """Newest loss."""
    step: int | None = None
    """Optimizer steps done."""
    total_steps: int | None = None
    """Planned steps."""
    epoch: float | None = None
    """Epochs done."""
    steps_per_second: float | None = None
    """Pace of this session."""
    metrics: dict[str, str] = Field(default_factory=dict)
    """Newest values, at most 64 of them; not finite ones as NaN, Infinity and -Infinity."""
    checkpoint: CheckpointStatus | None = None
    """The newest complete checkpoint."""
    gpus: int = 0
    """GPUs that the job asks for."""
    gpu_hours: float = 0.0
    """GPU-hours of all attempts so far."""
    cost: float | None = None
    """What they cost, where a price is known."""
    saved_gpu_hours: float = 0.0
    """GPU-hours that actions saved so far, or would have saved in Audit."""
    suspended_by: str = ""
    """The action that suspended the run; only such runs are resumed by us."""
    rules: tuple[RuleStanding, ...] = Field(default=(), max_length=_MOST)
    """Where the rules stand, those that fire first."""
    problems: tuple[str, ...] = ()
    """Policies that can't be used, and other things that somebody must know."""
    known_since: datetime | None = None
    """From when the engine's windows are."""
    time: datetime | None = None
    """When all this was so."""
    conditions: tuple[Condition, ...] = ()
    """Progressing, PolicyFiring and Acting."""
