"""One recorded run as rows in the order in which they were written, and the setting it is replayed in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

__all__ = ["Row", "Setting"]


@dataclass(slots=True)
class Row:
    """What was recorded at one step; becomes one progress report."""

    step: int
    metrics: Mapping[str, float]  # finite
    nonfinite: Mapping[str, str] = field(default_factory=dict)  # name to "NaN", "Infinity" or "-Infinity"
    seconds: float | None = None  # since the run began; None when no clock was recorded
    total: int | None = None  # steps planned, as known at this row
    epoch: float | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """What a recording does not say of its job."""

    namespace: str = "backtest"
    labels: Mapping[str, str] = field(default_factory=dict)
    gpus: int = 1
    price_per_hour: float | None = None  # of the whole job
    deadline: timedelta | None = None  # after the beginning of the run
    seconds_per_step: float = 1.0  # for rows without a clock
    started_at: datetime = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)  # when the recording does not say: a Monday morning
    fineness: float = 128.0  # two looks lie apart by this part of the time that the run has taken; infinity: all rows
