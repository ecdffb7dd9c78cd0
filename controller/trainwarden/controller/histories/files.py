"""Lines and bytes of files, packed or not, read as a stream with the place of each line."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, cast

from trainwarden.controller.histories.recording import DamagedError, HistoryError, Reading
from trainwarden.controller.histories.values import short

__all__ = ["MOST_DOCUMENT", "document", "head", "lines", "open_bytes"]

MOST_DOCUMENT = 1 << 30
"""Bytes of a file that must be read whole, since it is one JSON value."""

_MOST_LINE = 1 << 28
_PACKERS: dict[bytes, Callable[..., Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
_DAMAGED = (EOFError, OSError, zlib.error, lzma.LZMAError)


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file for reading, unpacked when it is gzip, bzip2 or xz.

    Raises:
        DamagedError: It can't be opened.
    """
    try:
        with path.open("rb") as file:
            start = file.read(6)
        for magic, opener in _PACKERS.items():
            if start.startswith(magic):
                return cast("IO[bytes]", opener(path, "rb"))
        return path.open("rb")
    except OSError as error:
        raise DamagedError(str(path), error.strerror or str(error), "name a file or folder with histories") from error


def head(path: Path, size: int = 65_536) -> bytes:
    """The beginning of a file, unpacked; as much as can be, where it is cut short.

    Raises:
        DamagedError: Nothing of it can be read.
    """
    found = b""
    with open_bytes(path) as file:
        try:
            while len(found) < size and (more := cast("io.BufferedReader", file).read1(size - len(found))):
                found += more
        except _DAMAGED as error:
            if not found:
                raise DamagedError(str(path), f"it can't be unpacked ({error})", "give the whole file") from error
    return found


def lines(path: Path, reading: Reading) -> Iterator[tuple[int, bytes]]:
    """Lines that are not empty, each with its number from 1, without its end.

    Raises:
        HistoryError: It can't be opened, or a line can't be read.
    """
    number = 0
    with open_bytes(path) as file:
        buffered = io.BufferedReader(cast("io.RawIOBase", file), 1 << 20) if not hasattr(file, "peek") else file
        while True:
            number += 1
            try:
                line = buffered.readline(_MOST_LINE)
            except _DAMAGED as error:
                reading.malformed(path, number, f"it can't be unpacked from here on ({error})", "give the whole file")
                return
            if not line:
                return
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            line = line.rstrip(b"\r\n")
            if line.strip():
                yield number, line


def document(path: Path) -> bytes:
    """A whole file.

    Raises:
        HistoryError: It can't be read, or is too large for one JSON value.
    """
    with open_bytes(path) as file:
        try:
            data = file.read(MOST_DOCUMENT + 1)
        except _DAMAGED as error:
            raise DamagedError(str(path), f"it can't be unpacked ({error})", "give the whole file") from error
    if len(data) > MOST_DOCUMENT:
        raise HistoryError(str(path), f"one JSON value of more than {short(MOST_DOCUMENT)} bytes", "write JSON Lines")
    return data
