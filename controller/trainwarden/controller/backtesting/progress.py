"""Progress on standard error: a bar on a terminal, else a line now and then. Standard output stays clean."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

__all__ = ["Progress", "progress"]

_EVERY = 5.0  # seconds between two lines


class Progress(Protocol):
    """Takes how many runs are done."""

    def advance(self, runs: int) -> None: ...


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
            TextColumn("replaying"),
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


class _Bar:
    def __init__(self, bar: object, total: int | None) -> None:
        from rich.progress import Progress as Bar

        assert isinstance(bar, Bar)  # noqa: S101 - for the type checker, with rich imported late
        self._bar = bar
        self._task = bar.add_task("replaying", total=total)

    def advance(self, runs: int) -> None:
        """Move the bar."""
        self._bar.advance(self._task, runs)


class _Lines:
    def __init__(self, total: int | None) -> None:
        self._of = f" of {total:,}" if total is not None else ""
        self._done = 0
        self._began = self._told = time.monotonic()

    def advance(self, runs: int) -> None:
        """Count, and tell when it is time."""
        self._done += runs
        now = time.monotonic()
        if now - self._told >= _EVERY:
            self._told = now
            self._tell(now)

    def end(self) -> None:
        """Tell the last of it, when something was told before."""
        if self._told != self._began:
            self._tell(time.monotonic())

    def _tell(self, now: float) -> None:
        print(f"trainwarden: {self._done:,}{self._of} runs replayed in {now - self._began:.0f} s", file=sys.stderr)
