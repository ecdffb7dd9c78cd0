"""One job as the engine holds it: its run, what is remembered of it, and when to look at it again."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainwarden.controller.decoding import HeardReport
from trainwarden.policies.memory import RunMemory
from trainwarden.policies.run import RunState

__all__ = ["Early", "Job"]


@dataclass(slots=True)
class Job:
    """State of one job. Times are Unix seconds."""

    run: RunState
    memory: RunMemory = field(default_factory=RunMemory)
    judged: int = 0  # sequence of the newest report that was judged
    seen: int = 0  # sequence of the newest report that was taken
    judged_at: float = 0.0
    wake_at: float | None = None
    told_at: float = 0.0  # of the newest status
    changed: bool = True  # since the newest status
    faulty: str = ""  # why it can't be judged; said once


@dataclass(slots=True)
class Early:
    """Reports that came before anything was known of their job."""

    reports: list[tuple[HeardReport, int, float]] = field(default_factory=list)
