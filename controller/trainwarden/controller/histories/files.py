"""Lines and bytes of files, packed or not, read as a stream with the place of each line."""

from __future__ import annotations

import bz2
import codecs
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
_MARKS = {  # the longer ones first
    codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16",
}  # fmt: skip
_CHUNK = 1 << 16
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


class _Recoded(io.RawIOBase):
    """A file in another encoding, as UTF-8; what is damaged in it becomes U+FFFD."""

    def __init__(self, file: IO[bytes], encoding: str) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
        self._ready = b""
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready and not self._ended:
            data = self._file.read(_CHUNK)
            self._ended = not data
            self._ready = self._decoder.decode(data, final=self._ended).encode("utf-8", errors="replace")
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size

    def close(self) -> None:
        self._file.close()
        super().close()


def _open_text(path: Path) -> io.BufferedReader:
    """Open a file of text, in UTF-8, or in UTF-16 or UTF-32 as its first bytes say.

    Raises:
        DamagedError: It can't be opened.
    """
    file = open_bytes(path)
    try:
        start = cast("io.BufferedReader", file).peek(64)[:64]
    except _DAMAGED:
        file.close()
        return cast("io.BufferedReader", open_bytes(path))  # where it is read, this is found anew, and told
    encoding = next((name for mark, name in _MARKS.items() if start.startswith(mark)), _unmarked(start))
    if encoding is None:
        return cast("io.BufferedReader", file)
    return io.BufferedReader(_Recoded(file, encoding), 1 << 20)


def _unmarked(start: bytes) -> str | None:
    """UTF-16 without a mark, whose every other byte is 0 where the text is of ASCII; None for all else."""
    if len(start) >= 8 and not any(start[1::2]) and all(start[::2]):
        return "utf-16-le"
    if len(start) >= 8 and not any(start[::2]) and all(start[1::2]):
        return "utf-16-be"
    return None


def head(path: Path, size: int = 65_536) -> bytes:
    """The beginning of a file, unpacked; as much as can be, where it is cut short.

    Raises:
        DamagedError: Nothing of it can be read.
    """
    found = b""
    with _open_text(path) as file:
        try:
            while len(found) < size and (more := file.read1(size - len(found))):
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
    with _open_text(path) as file:
        while True:
            number += 1
            try:
                line = file.readline(_MOST_LINE)
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
    with _open_text(path) as file:
        try:
            data = file.read(MOST_DOCUMENT + 1)
        except _DAMAGED as error:
            raise DamagedError(str(path), f"it can't be unpacked ({error})", "give the whole file") from error
    if len(data) > MOST_DOCUMENT:
        raise HistoryError(str(path), f"one JSON value of more than {short(MOST_DOCUMENT)} bytes", "write JSON Lines")
    return data
