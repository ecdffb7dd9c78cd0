"""Where local mode keeps its runs: `.trainwarden/runs/<name>-<id>/` here, or below TRAINWARDEN_HOME."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shlex
import shutil
import tempfile
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from trainwarden.policies.decision import Proof

__all__ = ["RecordState", "RunFolder", "RunRecord", "UnwritableTextError", "Workspace", "WorkspaceError", "job_name"]

_KEPT = 20  # runs that can't be resumed
_HOME = ".trainwarden"


class WorkspaceError(Exception):
    """A run's folder can't be used; the text says which, why, and what would help."""


class UnwritableTextError(WorkspaceError):
    """Something that the run's record must hold is no text that can be written."""


class RecordState(StrEnum):
    """How a run stands, or ended."""

    RUNNING = "running"  # or it was, when its trainwarden was lost
    SUSPENDED = "suspended"
    STOPPED = "stopped"
    DELETED = "deleted"
    COMPLETE = "complete"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class RunRecord(msgspec.Struct, rename="camel"):
    """What must be known to resume a run."""

    name: str
    id: str
    uid: str
    namespace: str
    command: list[str]
    folder: str
    created_at: datetime
    labels: dict[str, str] = {}
    gpus: int = 0
    price_per_hour: float | None = None
    deadline: datetime | None = None
    attempts: int = 0
    running_seconds: float = 0.0
    notify_file: str = ""  # `resume` reads it again; addresses themselves are never kept
    log: str = ""
    state: RecordState = RecordState.RUNNING
    checkpoint: Proof | None = None
    reason: str = ""

    @property
    def resumable(self) -> bool:
        """Whether `resume` takes it: suspended, or ended before its time with a complete checkpoint."""
        if self.state is RecordState.SUSPENDED:
            return True
        return self.checkpoint is not None and self.state not in (RecordState.COMPLETE, RecordState.DELETED)


class RunFolder:
    """One run on disk, held by one trainwarden at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None

    @property
    def policies(self) -> Path:
        return self.path / "policies"

    @property
    def nats(self) -> Path:
        return self.path / "nats"

    def resume_command(self, record: RunRecord) -> str:
        """What a person types, in any folder, to go on with the run."""
        home = self.path.parent.parent
        place = home.parent if home.name == _HOME else home
        return f"trainwarden resume {record.name}-{record.id} --dir {shlex.quote(str(place.absolute()))}"

    def acquire(self) -> None:
        """Take the run for this process.

        Raises:
            WorkspaceError: Another trainwarden has it.
        """
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise WorkspaceError(f"{self.path}: another trainwarden works on this run; let it end") from error
        self._lock = descriptor

    def release(self) -> None:
        """Give the run back."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def discard(self) -> None:
        """Give a run back that has never begun, and forget it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.release()

    def held(self) -> bool:
        """Whether some trainwarden works on it."""
        try:
            descriptor = os.open(self.path / "lock", os.O_RDWR)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False

    def save(self, record: RunRecord) -> None:
        """Write the record, whole or not at all."""
        target = self.path / "run.json"
        descriptor, name = tempfile.mkstemp(dir=self.path, prefix=".run-")
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(target)

    def load(self) -> RunRecord:
        """Read the record.

        Raises:
            WorkspaceError: It is missing or can't be read.
        """
        path = self.path / "run.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=RunRecord)
        except (OSError, msgspec.DecodeError) as error:
            raise WorkspaceError(f"{path} can't be read: {error}") from error


class Workspace:
    """All runs of one folder.

    Args:
        place: The folder that runs were started in, or a TRAINWARDEN_HOME; without it the one of now.
    """

    def __init__(self, place: Path | None = None) -> None:
        given = os.environ.get("TRAINWARDEN_HOME")
        if place is not None:
            self.home = place / _HOME if (place / _HOME / "runs").is_dir() else place
        else:
            self.home = Path(given) if given else Path.cwd() / _HOME

    def create(self, name: str, **fields: Any) -> tuple[RunFolder, RunRecord]:
        """Make a folder for a new run, and take it.

        Raises:
            UnwritableTextError: The command or another field has bytes that are not UTF-8.
            WorkspaceError: The folder can't be written.
        """
        identity = secrets.token_hex(3)
        path = self.home / "runs" / f"{name}-{identity}"
        record = RunRecord(name=name, id=identity, uid=secrets.token_hex(16), created_at=datetime.now(UTC), **fields)
        _check_texts(record)
        try:
            path.mkdir(parents=True)
            ignore = self.home / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n")
            folder = RunFolder(path)
            folder.acquire()
            folder.policies.mkdir()
            folder.save(record)
        except OSError as error:
            raise WorkspaceError(
                f"{path} can't be written: {error.strerror}; set TRAINWARDEN_HOME to a folder that can"
            ) from error
        self._prune()
        return folder, record

    def find(self, wanted: str | None) -> tuple[RunFolder, RunRecord]:
        """The run of a name (or name-id), else the newest suspended one; taken.

        Raises:
            WorkspaceError: There is none, or it can't be resumed.
        """
        runs = []
        for path in sorted((self.home / "runs").glob("*/run.json")):
            with contextlib.suppress(WorkspaceError):
                folder = RunFolder(path.parent)
                runs.append((folder, folder.load()))
        runs.sort(key=lambda each: each[1].created_at)
        names = [f"{record.name}-{record.id} ({_state(folder, record)})" for folder, record in runs]
        elsewhere = "runs belong to the folder that they were started in: give that one with --dir"
        shown = f"known are {', '.join(names[-8:])}; other {elsewhere}" if names else elsewhere
        if wanted is None:
            fitting = [each for each in runs if each[1].state is RecordState.SUSPENDED]
            if not fitting:
                remedy = f"name one to resume it: {shown}" if names else shown
                raise WorkspaceError(f"no suspended run in {self.home}; {remedy}")
        else:
            fitting = [each for each in runs if wanted in (each[1].name, f"{each[1].name}-{each[1].id}", each[1].id)]
            if not fitting:
                raise WorkspaceError(f"no run {wanted!r} in {self.home}; {shown}")
        folder, _ = fitting[-1]
        folder.acquire()
        return folder, folder.load()

    def _prune(self) -> None:
        """Forget the oldest runs that nobody will resume."""
        old = []
        for path in (self.home / "runs").glob("*/run.json"):
            with contextlib.suppress(WorkspaceError, OSError):
                folder = RunFolder(path.parent)
                if not folder.load().resumable and not folder.held():
                    old.append((path.stat().st_mtime, folder.path))
        for _, path in sorted(old)[:-_KEPT]:
            shutil.rmtree(path, ignore_errors=True)


def _state(folder: RunFolder, record: RunRecord) -> RecordState:
    """The state for a person: a run that nobody works on any more does not run."""
    if record.state is not RecordState.RUNNING or folder.held():
        return record.state
    return RecordState.INTERRUPTED if record.attempts else RecordState.FAILED  # without an attempt it never began


def _check_texts(record: RunRecord) -> None:
    """Raise UnwritableTextError for a field that JSON, which is UTF-8, can't hold."""
    for field in record.__struct_fields__:
        try:
            msgspec.json.encode(getattr(record, field))
        except UnicodeEncodeError as error:
            found = ascii(error.object[error.start : error.end])
            raise UnwritableTextError(
                f"the {field.replace('_', ' ')} has {found}, bytes that are not UTF-8, and can't be kept for `resume`; "
                "give such a name in a script or a file, not here"
            ) from error


def job_name(command: list[str]) -> str:
    """A name for a job after its script: `train` for `python train.py`."""
    words = [word for word in command if not word.startswith("-")]
    script = next((word for word in words if word.endswith(".py")), words[0] if words else "job")
    name = re.sub(r"[^a-z0-9]+", "-", Path(script).stem.lower()).strip("-")
    return name[:40].strip("-") or "job"
