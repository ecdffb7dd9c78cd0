"""One run a line: `id`, `series` (metric to [step, value] pairs), `elapsed` ([step, seconds] pairs), `total_steps`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwarden.controller.histories.clocks import clocked
from trainwarden.controller.histories.files import document, lines
from trainwarden.controller.histories.recording import HistoryError, Opened, Reading
from trainwarden.controller.histories.values import number, parse_json, row, short, whole
from trainwarden.policies.backtest.recording import Row

__all__ = ["CurveRun", "is_curve", "recordings"]

_ID = re.compile(rb'\s*\{\s*"id"\s*:\s*"([^"\\]*)"\s*,')

_RIGHT = "an object with id, series, elapsed and total_steps"


@dataclass(frozen=True, slots=True)
class CurveRun:
    """One line, or one of a list in a file that is one JSON value; it is parsed where it is replayed."""

    id: str
    path: Path
    line: int | str
    data: bytes

    def open(self, reading: Reading) -> Opened:
        """Parse the line."""
        try:
            value = parse_json(self.data)
        except ValueError as error:
            reading.malformed(self.path, self.line, str(error), f"{_RIGHT} is right")
            return Opened(iter(()))
        if not is_curve(value):
            reading.malformed(self.path, self.line, "no series", f"{_RIGHT} is right")
            return Opened(iter(()))
        total = value.get("total_steps")
        rows = clocked(self._rows(value, reading), f"{self.path}:{self.line}", reading)
        return Opened(rows, total=whole(total) or None)

    def _rows(self, value: dict[str, Any], reading: Reading) -> Iterator[Row]:
        """Rows in order of step; the time of each is interpolated between the times that were recorded."""
        by_step: dict[int, dict[str, Any]] = {}
        for name, points in value["series"].items():
            for point in points if isinstance(points, list) else ():
                step = whole(point[0]) if isinstance(point, list) and len(point) == 2 else None
                if step is None or number(point[1]) is None:
                    found = f"{short(point)} in series {short(name)}"
                    reading.malformed(self.path, self.line, found, "a step and a number are right")
                    continue
                values = by_step.get(step)
                if values is None:
                    values = by_step[step] = {}
                values[name] = point[1]
        points = self._elapsed(value.get("elapsed") or [], reading)
        clock = _Clock(points)
        if clock.back:
            reading.note(f"{self.path}:{self.line}: elapsed goes back {clock.back}; such points are left out of it")
        for step in sorted(by_step):
            yield row(step, by_step[step], seconds=clock.at(step))

    def _elapsed(self, elapsed: Any, reading: Reading) -> list[Any]:
        points = []
        for point in elapsed if isinstance(elapsed, list) else [elapsed]:
            if (
                isinstance(point, list) and len(point) == 2
                and whole(point[0]) is not None and number(point[1]) is not None
            ):  # fmt: skip
                points.append(point)
            else:
                right = "a step and seconds are right"
                reading.malformed(self.path, self.line, f"{short(point)} in elapsed", right)
        return points


def recordings(path: Path, reading: Reading) -> Iterator[CurveRun]:
    """The runs of a file, one a line.

    Raises:
        HistoryError: A line has no `id` and `series` at its head or elsewhere.
    """
    for number_, data in _lines_or_list(path, reading):
        id_ = _id_of(data, f"{path}:{number_}")
        if id_ is None:
            reading.malformed(path, number_, short(data[:80].decode(errors="replace")), f"{_RIGHT} is right")
            continue
        yield CurveRun(id_, path, number_, data)


def is_curve(value: object) -> bool:
    """Whether a JSON value is a run of this format."""
    return isinstance(value, dict) and isinstance(value.get("series"), dict)


def _lines_or_list(path: Path, reading: Reading) -> Iterator[tuple[int | str, bytes]]:
    """The lines; or the runs of a file whose first line is no run, but begins one or a list of them."""
    first = next(lines(path, Reading(skip=True)), (1, b""))[1].strip()
    if first not in (b"{", b"[") and not first.startswith(b"["):
        yield from lines(path, reading)
        return
    try:
        value = parse_json(document(path))
    except ValueError as error:
        raise HistoryError(str(path), str(error), f"{_RIGHT} on each line, or a list of such, is right") from error
    for index, each in enumerate(value if isinstance(value, list) else [value]):
        yield f"[{index}]", json.dumps(each).encode()


def _id_of(data: bytes, unnamed: str) -> str | None:
    """The id, without parsing all of a long line when it stands first; `unnamed` for a run without one."""
    found = _ID.match(data, 0, 4096)
    if found is not None and data.rstrip().endswith(b"}"):
        return found[1].decode(errors="replace")
    try:
        value = parse_json(data)
    except ValueError:
        return None
    if not is_curve(value):
        return None
    id_ = value.get("id")
    return unnamed if id_ is None else str(id_)


class _Clock:
    """Time at a step: interpolated, and beyond both ends at the pace there, but never below 0. Steps only rise."""

    def __init__(self, elapsed: Sequence[Any]) -> None:
        self.back = ""  # where it first goes back
        points: list[tuple[int, float]] = []
        for pair in elapsed:
            step, seconds = whole(pair[0]), number(pair[1])
            if step is None or not isinstance(seconds, float):
                continue
            if points and seconds < points[-1][1]:
                self.back = self.back or f"from {points[-1][1]:,.10g} s to {seconds:,.10g} s at step {step:,}"
                continue
            if points and step <= points[-1][0]:
                if step == points[-1][0]:
                    points[-1] = step, seconds
                continue
            points.append((step, seconds))
        self._points = points
        self._next = 1

    def at(self, step: int) -> float | None:
        points = self._points
        if not points:
            return None
        if len(points) == 1:
            return points[0][1]
        while self._next < len(points) - 1 and points[self._next][0] < step:
            self._next += 1
        (a, before), (b, after) = points[self._next - 1], points[self._next]
        seconds = before + (after - before) * (step - a) / (b - a)
        return max(seconds, 0.0) if math.isfinite(seconds) else before
