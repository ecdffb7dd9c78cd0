"""The decision log: every Decision of the run as one line of JSON, as on the stream."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from trainwarden.controller.bus import Entry
from trainwarden.controller.payloads import decode
from trainwarden.policies.decision import Decision

__all__ = ["DecisionLog"]

log = logging.getLogger(__name__)


class DecisionLog:
    """Collects decisions, and writes them to a file when there is one. A file that can't be written is said once."""

    def __init__(self, path: Path | None, *, known: set[str] | None = None) -> None:
        self.decisions: list[Decision] = []
        self.problem = ""
        self._known = known or set()
        self._file = path.open("ab") if path is not None else None
        self._path = path

    def take(self, entry: Entry) -> None:
        """Take one message of TW_DECISIONS."""
        try:
            decision = decode(entry.data, Decision)
        except msgspec.DecodeError as error:
            log.error("a decision can't be read reason=%s", error)
            return
        if decision.id in self._known:
            return
        self._known.add(decision.id)
        self.decisions.append(decision)
        if self._file is not None:
            try:
                self._file.write(entry.data.replace(b"\n", b" ") + b"\n")
                self._file.flush()
            except OSError as error:
                self.problem = f"{self._path} can't be written: {error.strerror}; the log ends here, the run goes on"
                self._file = None

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
