"""Records with named values, one after the other, made rows: what CSV, JSON Lines and the like have in common."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwarden.controller.histories.clocks import clocked, in_order
from trainwarden.controller.histories.columns import Columns, Stopwatch, columns_of
from trainwarden.controller.histories.recording import Opened, Reading
from trainwarden.controller.histories.values import merged, moment, number, row, short, whole
from trainwarden.policies.backtest.recording import Row

__all__ = ["Record", "RecordsOf", "grouped", "opened"]

_MOST_RUNS = 100_000
_MOST_NAMELESS = 1000  # records without a run after which there are no runs in a file

Record = tuple[int | str, Mapping[str, Any]]
"""Line, or another place, and the values by name."""

RecordsOf = Callable[[Path, Reading], Iterator[Record]]
"""Reads the records of a file; a function of a module, so that it can go to another process."""


@dataclass(frozen=True, slots=True)
class RecordsRun:
    """One run among the records of a file."""

    id: str
    path: Path
    records: RecordsOf
    run: str | None = None  # value of the run column; None: all records are of this run
    others: int = 0  # runs beside it, for the first, which tells what is malformed in records of none

    def open(self, reading: Reading) -> Opened:
        """Read the records of the run."""
        records = self.records(self.path, reading) if self.run is None else self._mine(self.run, reading)
        return opened(records, self.path, reading, place=self.id)

    def _mine(self, run: str, reading: Reading) -> Iterator[Record]:
        for line, values in self.records(self.path, reading if self.others else Reading(skip=True)):
            name = _run_of(values)
            if name == run:
                yield line, values
            elif name is None and self.others:
                found = f"of no run, among those of {self.others + 1:,}"
                reading.malformed(self.path, line, found, "each names its run")


def grouped(path: Path, records: RecordsOf, reading: Reading) -> Iterator[RecordsRun]:
    """The runs of a file: one, or one for each value of a column such as `run_id` or `run`.

    Raises:
        HistoryError: A record can't be read.
    """
    names: dict[str, None] = {}
    for count, (_, values) in enumerate(records(path, Reading(skip=reading.skip))):
        name = _run_of(values)
        if name is None:
            if not names and count >= _MOST_NAMELESS:
                break
            continue
        names[name] = None
        if len(names) > _MOST_RUNS:
            break
    if len(names) < 2:
        yield RecordsRun(str(path), path, records)
        return
    for at, name in enumerate(names):
        yield RecordsRun(f"{path}#{name}", path, records, name, others=len(names) - 1 if at == 0 else 0)


def _run_of(values: Mapping[str, Any]) -> str | None:
    column = columns_of(values).run
    name = values.get(column) if column is not None else None
    return None if name in (None, "") else str(name)


def opened(records: Iterable[Record], path: Path, reading: Reading, *, place: str) -> Opened:
    """Rows of records that are all of one run, and when it began; `place` names them in what is told of their clock."""
    rows = _Rows(path, reading)
    made = clocked(merged(in_order(rows.of(records), place, reading)), place, reading)
    first = next(made, None)
    if first is None:
        return Opened(iter(()))
    return Opened(itertools.chain([first], made), started_at=moment(rows.started()))


class _Rows:
    """Makes rows, and keeps what only the records together tell."""

    def __init__(self, path: Path, reading: Reading) -> None:
        self._path, self._reading = path, reading
        self._columns: dict[tuple[str, ...], Columns] = {}
        self._stopwatch: Stopwatch | None = None
        self._texts: dict[str, bool] = {}  # whether a name stands for texts, once a value of it was seen
        self._step_name: str | None = None
        self._stepped = False  # some record had a step of its own
        self._count = 0
        self._step = 0

    def started(self) -> float | None:
        """Unix seconds of the first row; None when there is no such clock."""
        return self._stopwatch.started if self._stopwatch is not None else None

    def of(self, records: Iterable[Record]) -> Iterator[Row]:
        for line, values in records:
            keys = tuple(values)
            columns = self._columns.get(keys)
            if columns is None:
                if len(self._columns) > 10_000:
                    self._columns.clear()
                columns = self._columns[keys] = columns_of(keys)
            named = columns.named
            metrics = {
                name: value for name, value in values.items() if name not in named and self._is_metric(name, value)
            }
            if wrong := next((name for name, value in metrics.items() if number(value) is None), None):
                found = f"{wrong} is {short(metrics[wrong])}"
                self._reading.malformed(self._path, line, found, f"numbers stand at {wrong}")
                continue
            made = row(0, metrics)
            if not made.metrics and not made.nonfinite:
                continue
            step = self._step_of(line, values, columns)
            if step is None:
                continue
            if self._stopwatch is None and (columns.passed is not None or columns.moment is not None):
                self._stopwatch = Stopwatch(columns)
            made.step = self._step = step
            made.seconds = self._stopwatch.read(values) if self._stopwatch is not None else None
            made.total = _plan(values.get(columns.plan)) if columns.plan is not None else None
            epoch = number(values.get(columns.epoch)) if columns.epoch is not None else None
            made.epoch = epoch if isinstance(epoch, float) else None
            yield made

    def _is_metric(self, name: str, value: Any) -> bool:
        """Whether a name stands for numbers: it does, or does not, from its first value on."""
        return value is not None and not self._texts.setdefault(name, number(value) is None)

    def _step_of(self, line: int | str, values: Mapping[str, Any], columns: Columns) -> int | None:
        self._count += 1
        name = self._step_name = self._step_name or columns.step  # one row may have the step of another counter alone
        if name is not None:
            value = values.get(name)
            step = whole(value)
            if step is not None:
                self._stepped = True
                return step
            if value not in (None, ""):
                right = "a step is a whole number from 0 to 2**53"
                self._reading.malformed(self._path, line, f"{name} is {short(value)}", right)
                return None
        if self._stepped:  # as a line that was logged after the step, such as a summary
            return self._step
        if columns.epoch is not None and (step := whole(values.get(columns.epoch))) is not None:
            return step
        return self._count


def _plan(value: Any) -> int | None:
    plan = whole(value)
    return plan if plan is not None and plan > 0 else None
