"""MLflow's stores: the folder `mlruns` of text files, and the SQLite database, each with its own way to write NaN."""

from __future__ import annotations

import heapq
import itertools
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import yaml

from trainwarden.controller.histories.clocks import clocked
from trainwarden.controller.histories.files import lines
from trainwarden.controller.histories.recording import HistoryError, Opened, Reading
from trainwarden.controller.histories.values import merged, moment, number, row, short, whole
from trainwarden.policies.backtest.recording import Row

__all__ = ["FileStoreRun", "SqliteRun", "is_sqlite", "recordings_of_sqlite", "run_folders"]

_POINT = "timestamp, value and step are right"
_MAGIC = b"SQLite format 3\x00"


class _Point(NamedTuple):
    """One logged value; sorts by time, then step."""

    milliseconds: int
    step: int
    name: str
    value: float | str


@dataclass(frozen=True, slots=True)
class FileStoreRun:
    """The folder of one run: `meta.yaml`, and a file for each metric, with lines `timestamp value step`."""

    id: str
    folder: Path

    def open(self, reading: Reading) -> Opened:
        """Merge the files of the metrics by time; each is read as a stream."""
        metrics = self.folder / "metrics"
        files = sorted(path for path in metrics.rglob("*") if path.is_file())
        streams = [self._points(path, path.relative_to(metrics).as_posix(), reading) for path in files]
        return _opened(heapq.merge(*streams), self.id, reading)

    def _points(self, path: Path, name: str, reading: Reading) -> Iterator[_Point]:
        for line, data in lines(path, reading):
            parts = data.decode(errors="replace").split(" ")
            moment = whole(parts[0])
            value = number(parts[1]) if len(parts) > 1 else None
            step = whole(parts[2]) if len(parts) > 2 else 0
            if moment is None or value is None or step is None:
                reading.malformed(path, line, short(" ".join(parts)), _POINT)
                continue
            yield _Point(moment, step, name, value)


def run_folders(root: Path) -> list[FileStoreRun]:
    """The runs of a file store, of one experiment in it, or of one run."""
    runs = []
    for meta in sorted([root / "meta.yaml", *root.glob("*/meta.yaml"), *root.glob("*/*/meta.yaml")]):
        folder = meta.parent
        if (folder / "metrics").is_dir():
            runs.append(FileStoreRun(f"{folder}{_name(meta)}", folder))
    return runs


def _name(meta: Path) -> str:
    """` (name)` of a run; empty when it has none."""
    try:
        found = yaml.safe_load(meta.read_text(encoding="utf-8"))
    except (OSError, ValueError, OverflowError, RecursionError, yaml.YAMLError):  # such as a date of a 13th month
        return ""
    name = found.get("run_name") if isinstance(found, dict) else None
    return f" ({name})" if name else ""


@dataclass(frozen=True, slots=True)
class SqliteRun:
    """One run in a database. NaN is a flag beside a value of 0, and infinity is the largest double."""

    id: str
    path: Path
    run: str

    def open(self, reading: Reading) -> Opened:
        """Read its metrics in order of time."""
        return _opened(self._points(reading), self.id, reading)

    def _points(self, reading: Reading) -> Iterator[_Point]:
        query = (
            "SELECT timestamp, step, key, value, is_nan FROM metrics WHERE run_uuid = ? ORDER BY timestamp, step, key"
        )
        with closing(_connect(self.path)) as database:
            try:
                for at, step, key, value, is_nan in database.execute(query, (self.run,)):
                    found = "NaN" if is_nan else number(value)
                    milliseconds, steps = whole(at), 0 if isinstance(step, int) and step < 0 else whole(step)
                    if found is None or milliseconds is None or steps is None:
                        here = short((at, step, key, value))
                        reading.malformed(self.path, f"metrics of {self.run}", here, _POINT)
                        continue
                    yield _Point(milliseconds, steps, str(key), found)
            except sqlite3.Error as error:
                raise HistoryError(str(self.path), f"a database that can't be read ({error})", _DATABASE) from error


_DATABASE = "give the SQLite database of an MLflow store"


def is_sqlite(start: bytes) -> bool:
    """Whether a file that begins so is a database."""
    return start.startswith(_MAGIC)


def recordings_of_sqlite(path: Path, reading: Reading) -> Iterator[SqliteRun]:
    """The runs of a database that have metrics.

    Raises:
        HistoryError: It is not one of MLflow.
    """
    query = "SELECT run_uuid, name FROM runs WHERE run_uuid IN (SELECT run_uuid FROM metrics) ORDER BY start_time"
    with closing(_connect(path)) as database:
        try:
            runs = database.execute(query).fetchall()
        except sqlite3.Error as error:
            raise HistoryError(str(path), f"a database without MLflow's tables ({error})", _DATABASE) from error
    for run, name in runs:
        yield SqliteRun(f"{path}#{run}{f' ({name})' if name else ''}", path, str(run))


def _connect(path: Path) -> sqlite3.Connection:
    try:
        return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    except sqlite3.Error as error:
        raise HistoryError(str(path), f"a database that can't be opened ({error})", _DATABASE) from error


def _opened(points: Iterable[_Point], place: str, reading: Reading) -> Opened:
    ordered = iter(points)
    first = next(ordered, None)
    if first is None:
        return Opened(iter(()))
    began = first.milliseconds

    def rows() -> Iterator[Row]:
        for point in itertools.chain([first], ordered):
            yield row(point.step, {point.name: point.value}, seconds=(point.milliseconds - began) / 1000)

    return Opened(clocked(merged(rows()), place, reading), started_at=moment(began / 1000))
