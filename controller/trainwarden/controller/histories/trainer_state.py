"""The trainer_state.json that transformers' Trainer, and TRL's trainers on top of it, put into each checkpoint."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwarden.controller.histories.clocks import clocked
from trainwarden.controller.histories.files import document
from trainwarden.controller.histories.recording import HistoryError, Opened, Reading
from trainwarden.controller.histories.values import merged, number, parse_json, row, short, whole
from trainwarden.policies.backtest.recording import Row

__all__ = ["TrainerStateRun", "newest", "recordings"]

_CHECKPOINT = re.compile(r"checkpoint-(\d+)")
_SUMMARY = "train_runtime"  # stands in the last entry alone
_PACE = re.compile(r".*_(runtime|samples_per_second|steps_per_second)|total_flos|step|epoch")


@dataclass(frozen=True, slots=True)
class TrainerStateRun:
    """One file."""

    id: str
    path: Path

    def open(self, reading: Reading) -> Opened:
        """Read the log history. The only clock in it is the whole run time at its end, which is spread over the steps.

        Raises:
            HistoryError: It is not such a file.
        """
        try:
            state = parse_json(document(self.path))
        except ValueError as error:
            raise HistoryError(str(self.path), str(error), "give the whole trainer_state.json") from error
        log = state.get("log_history") if isinstance(state, dict) else None
        if not isinstance(log, list):
            raise HistoryError(str(self.path), "no list log_history", "give a trainer_state.json of transformers")
        total = whole(state.get("max_steps"))
        return Opened(clocked(merged(self._rows(log, reading)), self.id, reading), total=total or None)

    def _rows(self, log: Sequence[Any], reading: Reading) -> Iterator[Row]:
        pace = _seconds_per_step(log)
        for index, entry in enumerate(log):
            step = whole(entry.get("step")) if isinstance(entry, dict) else None
            if step is None:
                right = "an object with a whole number as its step is right"
                reading.malformed(self.path, f"log_history[{index}]", short(entry), right)
                continue
            if _SUMMARY in entry:
                continue
            epoch = number(entry.get("epoch"))
            made = row(
                step,
                {name: value for name, value in entry.items() if not _PACE.fullmatch(name)},
                seconds=pace * step if pace is not None else None,
                epoch=epoch if isinstance(epoch, float) else None,
            )
            if made.metrics or made.nonfinite:
                yield made


def _seconds_per_step(log: Sequence[Any]) -> float | None:
    for entry in reversed(log):
        if isinstance(entry, Mapping) and _SUMMARY in entry:
            runtime, steps = number(entry[_SUMMARY]), whole(entry.get("step"))
            if isinstance(runtime, float) and runtime > 0 and steps:
                return runtime / steps
    return None


def recordings(path: Path, reading: Reading) -> Iterator[TrainerStateRun]:
    """The run of a file."""
    yield TrainerStateRun(str(path), path)


def newest(paths: Sequence[Path]) -> list[Path]:
    """Of the states of one run's checkpoints, which repeat each other, the newest."""
    best: dict[Path, tuple[int, Path]] = {}
    for path in paths:
        found = _CHECKPOINT.fullmatch(path.parent.name)
        folder, step = (path.parent.parent, int(found[1])) if found is not None else (path.parent, 1 << 60)
        if folder not in best or step > best[folder][0]:
            best[folder] = step, path
    return sorted(path for _, path in best.values())
