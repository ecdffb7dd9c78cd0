"""What the place where a job runs says of it: identity, phase, size, attempt. Published by operator or local mode."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

__all__ = ["Budget", "JobPhase", "RunFacts"]


class JobPhase(StrEnum):
    """Phase of a job. Only COMPLETE is completion; 100 % is not."""

    PENDING = "Pending"
    QUEUED = "Queued"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    COMPLETE = "Complete"
    FAILED = "Failed"
    DELETING = "Deleting"

    @property
    def ended(self) -> bool:
        """Whether nothing can be decided about the job any more."""
        return self in (JobPhase.COMPLETE, JobPhase.FAILED, JobPhase.DELETING)


class Budget(msgspec.Struct, frozen=True, rename="camel"):
    """State of the budget that a job draws on, in its own unit (GPU-hours or money)."""

    name: str
    limit: float
    used: float


class RunFacts(msgspec.Struct, frozen=True, rename="camel"):
    """All that is known of a job from outside its reports, at `time`. Newer facts replace older ones whole."""

    namespace: str
    job: str
    uid: str
    phase: JobPhase
    time: datetime
    created_at: datetime
    attempt: str  # changes with each restart, resume or new JobSet
    attempt_started_at: datetime | None = None  # None until its pods are ready
    ready: bool = False  # trainer pods are ready: the stall clock runs
    pods: tuple[str, ...] = ()  # host names of this attempt; empty: any pod is of this attempt
    restarts: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    namespace_labels: dict[str, str] = {}
    gpus: int = 0
    gpu_type: str = ""
    nodes: int = 1
    queue: str = ""
    owner: str = ""
    running_seconds: float = 0.0  # of all attempts before this one
    price_per_hour: float | None = None  # of the whole job
    deadline: datetime | None = None
    budget: Budget | None = None
    ended_because: str = ""  # what more is known of an end, such as `interrupted by Ctrl-C`
