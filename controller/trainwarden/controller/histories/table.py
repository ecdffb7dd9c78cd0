"""CSV: plain, Lightning's metrics.csv, and the exports of W&B, which may hold many runs side by side."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainwarden.controller.histories.columns import columns_of
from trainwarden.controller.histories.files import head, lines
from trainwarden.controller.histories.recording import HistoryError, Opened, Reading, Recording
from trainwarden.controller.histories.records import Record, grouped, opened
from trainwarden.controller.histories.values import number, short

__all__ = ["header", "recordings", "records"]

_WANDB = re.compile(r"^(?P<run>.+) - (?P<metric>.+?)$")
_EMPTY = frozenset({"", "None", "null", "N/A", "n/a", "NA", "-"})
_ENVELOPE = ("__MIN", "__MAX")


def recordings(path: Path, reading: Reading) -> Iterator[Recording]:
    """The runs of a table: one, one for each value of a run column, or one for each `run - metric` of its columns."""
    names, _ = header(path)
    found = [_WANDB.match(name) for name in names]
    runs = list(dict.fromkeys(match["run"] for match in found if match is not None))
    if runs and columns_of(names).step is not None:
        for run in runs:
            yield SideBySideRun(f"{path}#{run}" if len(runs) > 1 else str(path), path, run)
        return
    yield from grouped(path, records, reading)


def header(path: Path) -> tuple[list[str], str]:
    """Names of the columns, and what stands between them.

    Raises:
        HistoryError: There is no header.
    """
    text = head(path).decode("utf-8-sig", errors="replace")
    first = next((line for line in text.splitlines() if line.strip()), "")
    delimiter = max(",\t;", key=first.count)
    names = next(csv.reader([first], delimiter=delimiter), [])
    if len(names) < 2 or all(isinstance(number(name), float) for name in names):
        found = f"no header but {short(first)}" if first else "nothing"
        raise HistoryError(f"{path}:1", found, "the first line names the columns, such as step,loss")
    return [name.strip() for name in names], delimiter


def records(path: Path, reading: Reading) -> Iterator[Record]:
    """One record a line; an empty cell is no value."""
    names, delimiter = header(path)
    rows = iter(lines(path, reading))
    next(rows, None)
    for line, data in rows:
        try:
            cells = next(csv.reader([data.decode("utf-8")], delimiter=delimiter, strict=True))
        except (UnicodeDecodeError, csv.Error, StopIteration) as error:
            reading.malformed(path, line, f"no line of a table ({error})", f"{len(names)} cells in UTF-8")
            continue
        if len(cells) != len(names):
            reading.malformed(path, line, f"{len(cells)} cells", f"{len(names)} as in the first line are right")
            continue
        filled = zip(names, cells, strict=True)
        yield line, {name: cell for name, cell in filled if cell not in _EMPTY}


@dataclass(frozen=True, slots=True)
class SideBySideRun:
    """One run of a chart that W&B exported: columns `run - metric`, and `…__MIN` and `…__MAX` beside each."""

    id: str
    path: Path
    run: str

    def open(self, reading: Reading) -> Opened:
        """Read the columns of the run; a line without a value of it is of the others."""
        return opened(self._records(reading), self.path, reading)

    def _records(self, reading: Reading) -> Iterator[Record]:
        prefix = f"{self.run} - "
        for line, values in records(self.path, reading):
            mine = {name.removeprefix(prefix): value for name, value in values.items() if self._is_mine(name, prefix)}
            if mine:
                yield line, {**_common(values), **mine}

    def _is_mine(self, name: str, prefix: str) -> bool:
        metric = name.removeprefix(prefix)
        return name.startswith(prefix) and not name.endswith(_ENVELOPE) and metric not in columns_of([metric]).named


def _common(values: Mapping[str, object]) -> dict[str, object]:
    named = columns_of(values).named
    return {name: value for name, value in values.items() if name in named}
