"""MLPerf training logs: lines that begin with `:::MLLOG` and go on with one JSON object each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwarden.controller.histories.clocks import clocked
from trainwarden.controller.histories.files import lines
from trainwarden.controller.histories.recording import Opened, Reading
from trainwarden.controller.histories.values import merged, moment, number, parse_json, row, short, whole
from trainwarden.policies.backtest.recording import Row

__all__ = ["MARK", "MllogRun", "recordings"]

MARK = b":::MLLOG"
"""How each line of interest begins, wherever on it."""

_UNITS = ("step_num", "step", "iteration", "samples_count", "samples", "epoch_num", "epoch")
_VALUES = ("eval_accuracy", "eval_error", "eval_loss", "train_loss", "loss", "validation_loss", "tracked_stats")
_PLANS = {"max_steps": "step", "opt_learning_rate_training_steps": "step", "max_samples": "samples"}
_FINE = 1_000_000  # fractions of an epoch become whole steps of a millionth


@dataclass(frozen=True, slots=True)
class MllogRun:
    """One log. A step is what the log itself counts in: steps, samples or epochs, whichever its first value carries."""

    id: str
    path: Path

    def open(self, reading: Reading) -> Opened:
        """Read the values since `run_start`, or since the first of them when there is none."""
        began: list[float] = []
        rows = clocked(merged(self._rows(reading, began)), self.id, reading)
        first = next(rows, None)
        if first is None:
            return Opened(iter(()))
        return Opened(itertools.chain([first], rows), started_at=moment(began[0]))

    def _rows(self, reading: Reading, began: list[float]) -> Iterator[Row]:
        """Rows; the first moment is put into `began`."""
        unit: str | None = None
        plans: dict[str, int] = {}
        step = 0
        for line, data in lines(self.path, reading):
            at = data.find(MARK)
            if at < 0:
                continue
            event = _event(data[at + len(MARK) :])
            if event is None:
                found = short(data[at:].decode(errors="replace"))
                reading.malformed(self.path, line, found, "an object with key and time_ms is right")
                continue
            key, value, metadata, seconds = event
            if key == "run_start" and not began:
                began.append(seconds)
            if key in _PLANS and (plan := whole(value)):
                plans[_PLANS[key]] = plan
            values = _metrics(key, value)
            if not values:
                continue
            if not began:
                began.append(seconds)
            unit = unit or next((name for name in _UNITS if name in metadata), None)
            if unit is not None and metadata.get(unit) is not None:
                here = _step(unit, metadata[unit])
                if here is None:
                    found = f"{unit} is {short(metadata[unit])}"
                    reading.malformed(self.path, line, found, "a number from 0 to 2**53 is right")
                    continue
                step = here
            total = plans.get("samples" if unit is not None and unit.startswith("samples") else "step")
            yield row(
                step,
                values,
                seconds=seconds - began[0],
                total=total if unit and not unit.startswith("epoch") else None,
            )


def _event(data: bytes) -> tuple[str, Any, Mapping[str, Any], float] | None:
    """Key, value, metadata and Unix seconds; None when it is no event."""
    try:
        event = parse_json(data)
    except ValueError:
        return None
    if not isinstance(event, dict) or not isinstance(event.get("key"), str):
        return None
    moment = number(event.get("time_ms"))
    if not isinstance(moment, float):
        return None
    metadata = event.get("metadata")
    return event["key"], event.get("value"), metadata if isinstance(metadata, dict) else {}, moment / 1000


def _step(unit: str, value: Any) -> int | None:
    here = number(value)
    if not isinstance(here, float) or not 0 <= (scaled := here * (_FINE if unit.startswith("epoch") else 1)) < 1 << 53:
        return None
    return round(scaled) if unit.startswith("epoch") else int(scaled)


def _metrics(key: str, value: Any) -> dict[str, Any]:
    if key not in _VALUES:
        return {}
    if isinstance(value, dict):
        return {name: item for name, item in value.items() if number(item) is not None}
    return {key: value} if number(value) is not None else {}


def recordings(path: Path, reading: Reading) -> Iterator[MllogRun]:
    """The run of a log."""
    yield MllogRun(str(path), path)
