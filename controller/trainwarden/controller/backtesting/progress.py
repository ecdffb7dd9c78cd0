"""Progress on standard error: a bar on a terminal, else a line now and then. Standard output stays clean."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from trainwarden.controller.histories.recording import Opened, Reading, Recording
from trainwarden.policies.backtest.recording import Row

__all__ = ["Counted", "Progress", "progress"]

_TOLD_ROWS = 10_000
_EVERY = 5.0  # seconds between two lines


class Progress(Protocol):
    """Takes how many runs are done."""

    def advance(self, runs: int) -> None: ...

    def read(self, rows: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Counted:
    """A recording whose rows are told while they are read; for one that is replayed in this process."""

    recording: Recording
    shown: Progress

    @property
    def id(self) -> str:
        """Name of the run."""
        return self.recording.id

    def open(self, reading: Reading) -> Opened:
        """Begin to read."""
        opened = self.recording.open(reading)
        return replace(opened, rows=self._rows(opened.rows))

    def _rows(self, rows: Iterator[Row]) -> Iterator[Row]:
        for number, row in enumerate(rows, 1):
            yield row
            if number % _TOLD_ROWS == 0:
                self.shown.read(_TOLD_ROWS)


@contextmanager
def progress(total: int | None, *, quiet: bool) -> Iterator[Progress]:
    """Show progress while runs are replayed; `total` is None while nobody knows how many there are."""
    if quiet:
        yield _Silent()
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("runs"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        with bar:
            yield _Bar(bar, total)
    else:
        lines = _Lines(total)
        yield lines
        lines.end()


class _Silent:
    def advance(self, runs: int) -> None:
        """Say nothing."""

    def read(self, rows: int) -> None:
        """Say nothing."""


class _Bar:
    def __init__(self, bar: object, total: int | None) -> None:
        from rich.progress import Progress as Bar

        assert isinstance(bar, Bar)  # noqa: S101 - for the type checker, with rich imported late
        self._bar = bar
        self._task = bar.add_task("replaying", total=total)
        self._rows = 0

    def advance(self, runs: int) -> None:
        """Move the bar."""
        self._bar.advance(self._task, runs)

    def read(self, rows: int) -> None:
        """Tell how much of a long run has been read."""
        self._rows += rows
        self._bar.update(self._task, description=f"replaying ({self._rows:,} rows)")


class _Lines:
    def __init__(self, total: int | None) -> None:
        self._of = f" of {total:,}" if total is not None else ""
        self._done = self._rows = 0
        self._began = self._told = time.monotonic()

    def advance(self, runs: int) -> None:
        """Count, and tell when it is time."""
        self._done += runs
        self._tell_in_time()

    def read(self, rows: int) -> None:
        """Count the rows of a long run, and tell when it is time."""
        self._rows += rows
        self._tell_in_time()

    def _tell_in_time(self) -> None:
        now = time.monotonic()
        if now - self._told >= _EVERY:
            self._told = now
            self._tell(now)

    def end(self) -> None:
        """Tell the last of it, when something was told before."""
        if self._told != self._began:
            self._tell(time.monotonic())

    def _tell(self, now: float) -> None:
        rows = f", {self._rows:,} rows" if self._rows else ""
        text = f"trainwarden: {self._done:,}{self._of} runs{rows} replayed in {now - self._began:.0f} s"
        print(text, file=sys.stderr)
