"""What columns and keys are called that are no metrics: steps, clocks, plans, epochs, runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from trainwarden.controller.histories.values import number, seconds_of

__all__ = ["Columns", "Stopwatch", "columns_of"]

_STEPS = (
    "global_step", "trainer/global_step", "train/global_step", "training/global_step", "_step", "step", "Step",
    "iteration", "iter", "Iteration", "iterations", "step_num", "num_steps", "steps",
)  # fmt: skip
_PASSED = (
    "_runtime", "elapsed_seconds", "elapsedSeconds", "elapsed", "seconds", "runtime", "Relative Time (Process)",
    "Relative Time (Wall)", "elapsed_time", "time_elapsed", "train_time_s", "time_total_s",
)  # fmt: skip
_MOMENTS = (
    "_timestamp", "timestamp", "Timestamp", "wall_time", "Wall time", "Wall Time", "time", "ts", "datetime", "date",
    "time_ms", "created_at",
)  # fmt: skip
_PLANS = ("total", "total_steps", "totalSteps", "max_steps", "num_training_steps", "train_iters")
_EPOCHS = ("epoch", "Epoch", "epochs_done", "train/epoch", "training/epoch")
_RUNS = ("run_id", "run", "run_name", "Run", "trial_id", "experiment_id")
_OTHERS = frozenset({"seq", "v", "rank", "world", "pod", "epochs", "dropped", "Unnamed: 0", "index"})


@dataclass(frozen=True, slots=True)
class Columns:
    """Names in one file; None where it has no such column."""

    step: str | None
    passed: str | None  # seconds since the beginning
    moment: str | None  # wall time
    plan: str | None
    epoch: str | None
    run: str | None

    @property
    def named(self) -> frozenset[str]:
        """All names that are no metrics."""
        ours = (self.step, self.passed, self.moment, self.plan, self.epoch, self.run)
        return _OTHERS | {name for name in ours if name is not None}


def columns_of(names: Collection[str]) -> Columns:
    """Find the columns among some names, whatever the case of their letters. Without a step, an epoch counts as one."""
    known = {_plain(name): name for name in names}
    known.update((name, name) for name in names)  # as it is written goes first

    def first(candidates: tuple[str, ...]) -> str | None:
        found = next((name for name in candidates if known.get(name) == name), None)
        return found or next((known[plain] for name in candidates if (plain := _plain(name)) in known), None)

    return Columns(first(_STEPS), first(_PASSED), first(_MOMENTS), first(_PLANS), first(_EPOCHS), first(_RUNS))


def _plain(name: str) -> str:
    """`Wall Time` and `wall_time` are the same."""
    return name.strip().lower().replace(" ", "_")


class Stopwatch:
    """Seconds since the first row, from what a file's clock says."""

    __slots__ = ("_columns", "_first", "started")

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._first: float | None = None
        self.started: float | None = None  # Unix seconds of the first moment

    def read(self, values: Mapping[str, Any]) -> float | None:
        """Seconds at a row; None when it has no clock."""
        columns = self._columns
        if columns.passed is not None:
            passed = number(values.get(columns.passed))
            if isinstance(passed, float):
                return passed
        if columns.moment is None:
            return None
        moment = seconds_of(values.get(columns.moment))
        if moment is None:
            return None
        if self._first is None:
            self._first = moment
            self.started = moment if moment > 1e8 else None
        return moment - self._first
