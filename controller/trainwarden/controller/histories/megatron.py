"""The JSON that Megatron-LM's tests keep of a training: each metric with its steps and values, in two generations."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwarden.controller.histories.clocks import clocked
from trainwarden.controller.histories.files import document
from trainwarden.controller.histories.recording import HistoryError, Opened, Reading
from trainwarden.controller.histories.values import number, parse_json, row, short, whole
from trainwarden.policies.backtest.recording import Row

__all__ = ["MegatronRun", "is_megatron", "recordings"]

_PACE = "iteration-time"
_SPACING = {"start_step": 0, "step_interval": 1}
_RIGHT = "metrics with start_step, step_interval or values by step are right"


@dataclass(frozen=True, slots=True)
class MegatronRun:
    """One file: `{metric: {start_step, end_step, step_interval, values}}`, values a list or an object by step."""

    id: str
    path: Path

    def open(self, reading: Reading) -> Opened:
        """Read all metrics. The clock is the sum of the iteration times; a step without one takes as long as before.

        Raises:
            HistoryError: It is not such a file.
        """
        data = document(self.path)
        if not data.strip():
            raise HistoryError(str(self.path), "an empty file", _RIGHT)
        try:
            value = parse_json(data)
        except ValueError as error:
            raise HistoryError(str(self.path), str(error), _RIGHT) from error
        if not is_megatron(value):
            raise HistoryError(str(self.path), short(value), _RIGHT)
        return Opened(clocked(self._rows(value, reading), self.id, reading))

    def _rows(self, value: Mapping[str, Any], reading: Reading) -> Iterator[Row]:
        series = {name: self._points(name, each, reading) for name, each in value.items()}
        paces = {step: pace for step, pace in series.pop(_PACE, {}).items() if isinstance(pace, float)}
        names: dict[int, dict[str, float | str]] = {}
        for name, points in series.items():
            for step, point in _measured(points).items():
                names.setdefault(step, {})[name] = point
        seconds, before = 0.0, 0
        pace = next(iter(paces.values()), None)
        for step in sorted(names.keys() | paces.keys()):
            if pace is not None:
                pace = paces.get(step, pace)
                seconds += pace * (step - before)
            before = step
            if step in names:
                yield row(step, names[step], seconds=seconds if pace is not None else None)

    def _points(self, name: str, series: Mapping[str, Any], reading: Reading) -> dict[int, float | str]:
        values = series["values"]
        start, every = (self._whole(series, name, key, usual, reading) for key, usual in _SPACING.items())
        pairs = values.items() if isinstance(values, dict) else enumerate(values)
        points: dict[int, float | str] = {}
        for key, value in pairs:
            step = whole(key if isinstance(values, dict) else start + key * every)
            found = number(value)
            if step is None or found is None:
                reading.malformed(self.path, f"{name}.values[{key}]", short(value), "a number at a step is right")
                continue
            points[step] = found
        return points

    def _whole(self, series: Mapping[str, Any], name: str, key: str, usual: int, reading: Reading) -> int:
        found = series.get(key, usual)
        step = whole(found)
        if step is None:
            reading.malformed(self.path, f"{name}.{key}", short(found), "a whole number from 0 to 2**53 is right")
        return usual if step is None else step


def is_megatron(value: object) -> bool:
    """Whether a JSON value has the format."""
    return (
        isinstance(value, dict)
        and bool(value)
        and all(isinstance(each, dict) and isinstance(each.get("values"), dict | list) for each in value.values())
    )


def _measured(points: Mapping[int, float | str]) -> dict[int, float | str]:
    """The values without the "nan" of steps at which nothing was measured.

    Such stand between values at a regular distance. Where twice as many and more follow each other as do usually, the
    value itself was NaN.
    """
    gaps = [
        (value != "NaN", list(group))
        for value, group in itertools.groupby(sorted(points), key=lambda step: "NaN" if points[step] == "NaN" else 0.0)
    ]
    inner = [len(group) for finite, group in gaps[1:-1] if not finite]
    usual = round(statistics.median(inner)) if len(inner) > 1 else 0
    kept: dict[int, float | str] = {}
    for finite, group in gaps:
        if finite:
            kept.update((step, points[step]) for step in group)
        elif len(group) > 2 * usual:
            kept.update((step, "NaN") for step in group[usual:])
    return kept


def recordings(path: Path, reading: Reading) -> Iterator[MegatronRun]:
    """The run of a file."""
    yield MegatronRun(str(path), path)
