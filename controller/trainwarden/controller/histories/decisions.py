"""The decision log of a live cluster: JSON Lines of Decisions, and what each said of its run's step and metrics.

A log has values only where something was decided: the metrics that a condition read, and the progress. So a replay
tells what other policies would have made of these moments, which is less than a replay of the reports themselves.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwarden.controller.histories.clocks import clocked
from trainwarden.controller.histories.files import lines
from trainwarden.controller.histories.recording import Opened, Reading
from trainwarden.controller.histories.values import merged, moment, number, parse_json, row, seconds_of, short, whole
from trainwarden.policies.backtest.recording import Row

__all__ = ["DecisionsRun", "is_decision", "recordings"]

_METRIC = re.compile(
    r"metrics\.([A-Za-z_]\w*)|metrics\[\s*(?:\"([^\"]+)\"|'([^']+)')\s*\]|(?:nonFinite)\(\s*(?:\"([^\"]+)\"|'([^']+)')\s*\)"
)
_RIGHT = "a Decision with time, run and evidence is right"


@dataclass(frozen=True, slots=True)
class DecisionsRun:
    """One job in a log."""

    id: str
    path: Path
    key: tuple[str, str, str]  # namespace, job, uid
    first: bool = True  # in its file: it tells what is malformed there

    def open(self, reading: Reading) -> Opened:
        """Read the decisions about the job."""
        began: list[float] = []
        rows = clocked(merged(self._rows(reading, began)), f"{self.path}: {self.id}", reading)
        first = next(rows, None)
        if first is None:
            return Opened(iter(()))
        return Opened(itertools.chain([first], rows), started_at=moment(began[0]))

    def _rows(self, reading: Reading, began: list[float]) -> Iterator[Row]:
        """Rows; the moment of the first report, or of the first decision, is put into `began`."""
        for line, decision in _decisions(self.path, reading if self.first else Reading(skip=True)):
            if _key(decision) != self.key:
                continue
            at = seconds_of(decision["time"])
            evidence = decision["evidence"]
            step = whole(evidence.get("step"))
            if at is None:
                found = f"time is {short(decision['time'])}"
                reading.malformed(self.path, line, found, "a moment such as 2026-12-04T23:10:00Z is right")
                continue
            if step is None:
                if evidence.get("step") is not None:  # without one, nothing was known of the run
                    found = f"evidence.step is {short(evidence['step'])}"
                    reading.malformed(self.path, line, found, "a whole number from 0 to 2**53 is right")
                continue
            if not began:
                began.append(min(seconds_of(evidence.get("knownSince")) or at, at))
            values = evidence.get("values")
            values = values if isinstance(values, dict) else {}
            yield row(step, _metrics(values), seconds=at - began[0], total=_total(step, values))


def recordings(path: Path, reading: Reading) -> Iterator[DecisionsRun]:
    """The jobs that a log is about, in the order of their first decisions."""
    known: dict[tuple[str, str, str], None] = {}
    for _, decision in _decisions(path, Reading(skip=reading.skip)):
        known[_key(decision)] = None
    for at, (namespace, job, uid) in enumerate(known):
        yield DecisionsRun(f"{namespace}/{job}" if _alone(known, namespace, job) else f"{namespace}/{job}#{uid}", path,
                           (namespace, job, uid), first=at == 0)  # fmt: skip


def is_decision(value: object) -> bool:
    """Whether a JSON value is a Decision."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("run"), dict)
        and isinstance(value.get("evidence"), dict)
        and "verdict" in value
        and "time" in value
    )


def _alone(known: Mapping[tuple[str, str, str], None], namespace: str, job: str) -> bool:
    return sum(key[:2] == (namespace, job) for key in known) == 1


def _decisions(path: Path, reading: Reading) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, data in lines(path, reading):
        try:
            value = parse_json(data)
        except ValueError as error:
            reading.malformed(path, line, str(error), _RIGHT)
            continue
        if not is_decision(value):
            reading.malformed(path, line, short(data[:80].decode(errors="replace")), _RIGHT)
            continue
        yield line, value


def _key(decision: Mapping[str, Any]) -> tuple[str, str, str]:
    run = decision["run"]
    return str(run.get("namespace", "")), str(run.get("job", "")), str(run.get("uid", ""))


def _metrics(values: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics among the values that a condition read; a call of nonFinite that is true says NaN."""
    found: dict[str, Any] = {}
    for text, value in values.items():
        match = _METRIC.fullmatch(text.strip())
        if match is None:
            continue
        if match[4] or match[5]:
            if value is True:
                found[match[4] or match[5]] = "NaN"
        elif number(value) is not None:
            found[match[1] or match[2] or match[3]] = value
    return found


def _total(step: int, values: Mapping[str, Any]) -> int | None:
    planned = whole(values.get("progress.totalSteps"))
    if planned:
        return planned
    percent = number(values.get("progress.percent"))
    if not isinstance(percent, float) or not 0 < percent < 100 or not step:
        return None
    total = 100 * step / percent
    return round(total) if total < 1 << 53 else None
