"""Prove that a checkpoint is complete: its size, and one digest over all of its files.

The digest, for those who compute it elsewhere: SHA-256 over, for each file in the order of the UTF-8 bytes of its
relative path with `/` between parts, the path, a zero byte, the size in decimal, a zero byte, the contents. A symbolic
link is not followed: `link` stands in place of its size and its target in place of the contents. A single file has the
path `.`. Empty folders don't count.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from trainwarden.reporters.wire import Checkpoint

__all__ = ["INCOMPLETE_MARKER", "Measured", "ProofError", "measure", "verify"]

INCOMPLETE_MARKER = "checkpoint-is-incomplete.txt"
"""A file of this name in a checkpoint says that it is still being written."""

CHUNK = 1024 * 1024


class ProofError(Exception):
    """A checkpoint can't be proven complete, or is not what its proof says."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a checkpoint weighs, and the digest over all of it."""

    bytes: int  # sum of all files
    digest: str  # "sha256:<64 hexadecimal digits>"


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...


def measure(path: str | Path) -> Measured:
    """Read every file of a checkpoint, a folder or one file. Takes as long as reading them takes.

    Raises:
        ProofError: There is nothing, it is marked incomplete, it changes meanwhile, or holds what is no regular file.
    """
    root = Path(path)
    try:
        return _measure(root.resolve(strict=True), root)
    except FileNotFoundError as error:
        raise ProofError(
            f"{error.filename or root} vanished or never was; keep a checkpoint until it is measured"
        ) from error
    except (OSError, RuntimeError, ValueError) as error:
        raise ProofError(f"{root} can't be read: {error}") from error


def verify(checkpoint: Checkpoint) -> Measured:
    """Measure a checkpoint and compare it with its proof; gives what was measured.

    Raises:
        ProofError: It can't be measured, carries no proof, or differs from it.
    """
    if checkpoint.digest is None:
        raise ProofError(f"{checkpoint.path} carries no digest to compare with")
    found = measure(checkpoint.path)
    if checkpoint.bytes is not None and checkpoint.bytes != found.bytes:
        raise ProofError(f"{checkpoint.path} has {found.bytes} bytes; {checkpoint.bytes} were saved")
    if checkpoint.digest != found.digest:
        raise ProofError(f"{checkpoint.path} has the digest {found.digest}; {checkpoint.digest} was saved")
    return found


def _measure(root: Path, named: Path) -> Measured:
    import hashlib  # here, since loading OpenSSL would double the time that importing the reporter takes

    total = hashlib.sha256()
    if root.is_file():
        return Measured(_add(total, ".", root), f"sha256:{total.hexdigest()}")
    if not root.is_dir():
        raise ProofError(f"{named} is neither a folder nor a regular file")
    files = sorted((file.relative_to(root).as_posix().encode(errors="surrogateescape"), file) for file in _files(root))
    if any(file.name == INCOMPLETE_MARKER for _, file in files):
        raise ProofError(f"{named} is still being written: it holds {INCOMPLETE_MARKER}")
    if not files:
        raise ProofError(f"{named} holds no file")
    size = sum(_add(total, relative, file) for relative, file in files)
    return Measured(size, f"sha256:{total.hexdigest()}")


def _files(root: Path) -> Iterator[Path]:
    with os.scandir(root) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(Path(entry.path))
            else:
                yield Path(entry.path)


def _add(total: _Hash, relative: bytes | str, file: Path) -> int:
    """Add one file to the hash; gives its size, 0 for a link."""
    name = relative.encode() if isinstance(relative, str) else relative
    found = file.lstat()
    if stat.S_ISLNK(found.st_mode):
        if not file.exists():
            raise ProofError(f"{file} is a link to nothing")
        total.update(b"%b\0link\0%b" % (name, os.fsencode(file.readlink())))
        return 0
    if not stat.S_ISREG(found.st_mode):
        raise ProofError(f"{file} is no regular file")
    total.update(b"%b\0%d\0" % (name, found.st_size))
    read = 0
    with file.open("rb", buffering=0) as opened:
        while read <= found.st_size and (chunk := opened.read(CHUNK)):
            read += len(chunk)
            total.update(chunk)
    if read != found.st_size:
        raise ProofError(f"{file} changed while it was measured: {found.st_size} bytes, then {read}")
    return read
