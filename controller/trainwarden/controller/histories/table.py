"""CSV: plain, Lightning's metrics.csv, and the exports of W&B, which may hold many runs side by side."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainwarden.controller.histories.columns import columns_of
from trainwarden.controller.histories.files import head, lines
from trainwarden.controller.histories.recording import DamagedError, HistoryError, Opened, Reading, Recording
from trainwarden.controller.histories.records import Record, grouped, opened
from trainwarden.controller.histories.values import number, short

__all__ = ["header", "recordings", "records"]

_WANDB = re.compile(r"^(?P<run>.+) - (?P<metric>.+?)$")
_EMPTY = frozenset({"", "None", "null", "N/A", "n/a", "NA", "-"})
_ENVELOPE = ("__MIN", "__MAX")
_TENSORBOARD = {"Step", "Wall time", "Value"}
_TAG = re.compile(r"(?:run-.*-tag-)?(.+?)(?:\.(?:csv|tsv|gz|bz2|xz))*", re.IGNORECASE)
_LONGEST_CELL = 1000  # lines


def recordings(path: Path, reading: Reading) -> Iterator[Recording]:
    """The runs of a table: one, one for each value of a run column, or one for each `run - metric` of its columns.

    Raises:
        HistoryError: It has no header, or one with a name twice.
    """
    names, _ = header(path)
    twice = [name for name, count in Counter(names).items() if name and count > 1]
    if twice:
        raise DamagedError(f"{path}:1", f"the column {short(twice[0])} twice", "a name of its own for each is right")
    found = [_WANDB.match(name) for name in names]
    runs = list(dict.fromkeys(match["run"] for match in found if match is not None))
    if runs and columns_of(names).step is not None:
        for at, run in enumerate(runs):
            yield SideBySideRun(f"{path}#{run}" if len(runs) > 1 else str(path), path, run, first=at == 0)
        return
    yield from grouped(path, records, reading)


def header(path: Path) -> tuple[list[str], str]:
    """Names of the columns, and what stands between them.

    Raises:
        HistoryError: There is no header.
    """
    names, delimiter, _ = _header(path)
    return names, delimiter


def _header(path: Path) -> tuple[list[str], str, int]:
    """As `header`, and how many lines it takes: a quoted name may go over several."""
    start = head(path)
    if b"\n" not in start:  # it is longer than the beginning
        start = next((data for _, data in lines(path, Reading(skip=True))), start)
    text = start.decode("utf-8-sig", errors="replace")
    first = next((line for line in text.splitlines() if line.strip()), "")
    text = text[text.find(first) :]
    delimiter = max(",\t;", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        names = next(reader, [])
    except csv.Error as error:
        right = "the first line names the columns, such as step,loss"
        raise HistoryError(f"{path}:1", f"no header but {short(first)} ({error})", right) from error
    if len(names) < 2 or all(isinstance(number(name), float) for name in names):
        found = f"no header but {short(first)}" if first else "nothing"
        raise HistoryError(f"{path}:1", found, "the first line names the columns, such as step,loss")
    return [" ".join(name.split()) for name in names], delimiter, reader.line_num


def _cells(texts: list[str], delimiter: str) -> list[str] | None:
    """The cells of a record; None when a quoted one does not end in it.

    Raises:
        csv.Error: It is no record.
    """
    try:
        return next(csv.reader(texts, delimiter=delimiter, strict=True), [])
    except csv.Error as error:
        if "unexpected end of data" in str(error):
            return None
        raise


def _split(path: Path, delimiter: str, size: int, reading: Reading) -> Iterator[tuple[int, list[str] | str]]:
    """The cells of each record after the header with its first line, or what is wrong there."""
    rows = iter(lines(path, reading))
    later: list[tuple[int, bytes]] = []  # lines that were looked at for the end of a cell
    for _ in itertools.islice(rows, size):
        pass
    while True:
        line, data = later.pop(0) if later else next(rows, (0, b""))
        if not line:
            return
        taken: list[tuple[int, bytes]] = []
        try:
            texts = [data.decode("utf-8") + "\n"]
            cells = _cells(texts, delimiter)
            while cells is None and len(taken) < _LONGEST_CELL:
                following = later.pop(0) if later else next(rows, None)
                if following is None:
                    break
                taken.append(following)
                texts.append(following[1].decode("utf-8") + "\n")
                if b'"' in following[1]:
                    cells = _cells(texts, delimiter)
        except (UnicodeDecodeError, csv.Error) as error:
            later[:0] = taken
            yield line, f"no line of a table ({error})"
            continue
        if cells is None:
            later[:0] = taken
            yield line, "no line of a table (a quoted cell that does not end)"
        else:
            yield line, cells


def records(path: Path, reading: Reading) -> Iterator[Record]:
    """One record a line, or several where a quoted cell has them; an empty cell is no value."""
    names, delimiter, size = _header(path)
    if set(names) == _TENSORBOARD and (tag := _TAG.fullmatch(path.name)) is not None:
        names = [tag[1] if name == "Value" else name for name in names]
    for line, cells in _split(path, delimiter, size, reading):
        if isinstance(cells, str):
            reading.malformed(path, line, cells, f"{len(names)} cells in UTF-8 are right")
            continue
        if len(cells) != len(names):
            reading.malformed(path, line, f"{len(cells)} cells", f"{len(names)} as in the first line are right")
            continue
        filled = zip(names, cells, strict=True)
        yield line, {name: cell for name, cell in filled if name and cell not in _EMPTY}


@dataclass(frozen=True, slots=True)
class SideBySideRun:
    """One run of a chart that W&B exported: columns `run - metric`, and `…__MIN` and `…__MAX` beside each."""

    id: str
    path: Path
    run: str
    first: bool = True  # in its file: it tells what is malformed there

    def open(self, reading: Reading) -> Opened:
        """Read the columns of the run; a line without a value of it is of the others."""
        return opened(self._records(reading), self.path, reading, place=self.id)

    def _records(self, reading: Reading) -> Iterator[Record]:
        prefix = f"{self.run} - "
        for line, values in records(self.path, reading if self.first else Reading(skip=True)):
            mine = {name.removeprefix(prefix): value for name, value in values.items() if self._is_mine(name, prefix)}
            if mine:
                yield line, {**_common(values), **mine}

    def _is_mine(self, name: str, prefix: str) -> bool:
        metric = name.removeprefix(prefix)
        return name.startswith(prefix) and not name.endswith(_ENVELOPE) and metric not in columns_of([metric]).named


def _common(values: Mapping[str, object]) -> dict[str, object]:
    named = columns_of(values).named
    return {name: value for name, value in values.items() if name in named}
