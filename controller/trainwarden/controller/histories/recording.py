"""What every reader gives, and how it reports what it can't read."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol

from trainwarden.policies.backtest.recording import Row

__all__ = ["DamagedError", "HistoryError", "NoHistoryError", "Opened", "Reading", "Recording"]

_TOLD = 20  # places that are told one by one
_DIGITS = re.compile(r"(\d{1,18})")


class HistoryError(Exception):
    """A history can't be read: where, what was found, and what would be right. Retrying does not help."""

    def __init__(self, place: str, found: str, remedy: str = "") -> None:
        self.place, self.found, self.remedy = place, found, remedy
        super().__init__(f"{place}: {found}{f'; {remedy}' if remedy else ''}")


class DamagedError(HistoryError):
    """A file can't be read or unpacked, whatever its format is."""


class NoHistoryError(HistoryError):
    """A file is sound, and of another kind."""


@dataclass(slots=True)
class Reading:
    """How to read, and what was left out on the way."""

    skip: bool = False  # leave out what is malformed
    skipped: int = 0
    told: list[str] = field(default_factory=list)  # the first of them by file and line, and notes
    ids: set[str] = field(default_factory=set)  # of the recordings that were found

    def malformed(self, path: Path | str, line: int | str, found: str, right: str) -> None:
        """Something that does not fit stands at a line, or at another place such as `byte 96`.

        Raises:
            HistoryError: Unless malformed places are to be skipped.
        """
        place = f"{path}:{line}"
        if not self.skip:
            raise HistoryError(place, found, f"{right}; --skip-malformed leaves such places out")
        self.left_out(f"{place}: {found}")

    def left_out(self, what: str) -> None:
        """Something that does not fit was left out."""
        self.skipped += 1
        self._tell(f"{what}, left out")

    def note(self, what: str) -> None:
        """Something was read, but not as one might think: tell it once, and count nothing as left out."""
        if what not in self.told:
            self._tell(what)

    def _tell(self, text: str) -> None:
        bisect.insort(self.told, text, key=_by_place)
        del self.told[_TOLD:]


def _by_place(text: str) -> list[str | int]:
    """Key that puts what is told in order of file and line: line 9 before line 10. Texts and numbers stand by turns."""
    return [int(part) if at % 2 else part for at, part in enumerate(_DIGITS.split(text))]


@dataclass(slots=True)
class Opened:
    """A recording that is being read."""

    rows: Iterator[Row]
    total: int | None = None  # steps planned
    started_at: datetime | None = None  # aware; None when it was not recorded


class Recording(Protocol):
    """One run in a file; small, and goes to another process."""

    @property
    def id(self) -> str:
        """Name of the run, unique in its file."""
        ...

    def open(self, reading: Reading) -> Opened:
        """Begin to read. Rows come in the order in which they were written.

        Raises:
            HistoryError: It can't be read; also while the rows are taken.
        """
        ...
