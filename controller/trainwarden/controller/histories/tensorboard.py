"""TensorBoard's event files, without TensorBoard: scalars as simple values and as tensors of one element.

A file is TFRecords: length (8 bytes), its masked CRC-32C, an Event, its masked CRC-32C; all little-endian.
Source: in tensorflow/core, lib/io/record_writer.h, util/event.proto and framework/summary.proto.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from trainwarden.controller.histories.clocks import clocked
from trainwarden.controller.histories.files import open_bytes
from trainwarden.controller.histories.protobuf import ProtobufError, fields, floats
from trainwarden.controller.histories.recording import Opened, Reading
from trainwarden.controller.histories.values import merged, moment, row
from trainwarden.policies.backtest.recording import Row

__all__ = ["EventsRun", "by_folder", "is_events", "recordings"]

_HEADER, _FOOTER = 12, 4
_LARGEST = 1 << 30
_CASTAGNOLI = 0x82F63B78  # reflected
_PLUGIN_FLOATS = {1: "f", 2: "d", 3: "i", 9: "q", 19: "e"}  # tensor types: float, double, int32, int64, half
_VALUES = {5: "f", 6: "d"}  # fields of a tensor that hold its elements as numbers


def _table() -> tuple[int, ...]:
    made = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (_CASTAGNOLI if byte & 1 else 0)
        made.append(byte)
    return tuple(made)


_TABLE = _table()


def masked_crc(data: bytes) -> int:
    """CRC-32C, rotated right by 15 bits, plus a constant."""
    crc = 0xFFFFFFFF
    table = _TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class EventsRun:
    """The event files of one folder, oldest first: sessions of one run."""

    id: str
    paths: tuple[Path, ...]

    def open(self, reading: Reading) -> Opened:
        """Read the events. A run that was resumed goes back in steps, as a live one does."""
        rows = merged(self._rows(reading))
        first = next(rows, None)
        if first is None:
            return Opened(iter(()))
        began = first.seconds or 0.0

        def since(each: Row) -> Row:
            each.seconds = (each.seconds or 0.0) - began
            return each

        timed = clocked(map(since, itertools.chain([first], rows)), self.id, reading)
        return Opened(timed, started_at=moment(began))

    def _rows(self, reading: Reading) -> Iterator[Row]:
        for path in self.paths:
            for place, data in _records(path, reading):
                try:
                    made = _event(data)
                except (ProtobufError, struct.error) as error:
                    reading.malformed(path, place, f"a damaged event ({error})", "an Event as TensorBoard writes it")
                    continue
                if made is not None:
                    yield made


def is_events(path: Path) -> bool:
    """Whether a file is named as event files are."""
    return ".tfevents." in path.name or path.name.endswith(".tfevents")


def recordings(path: Path, reading: Reading) -> Iterator[EventsRun]:
    """The run of a file."""
    yield EventsRun(str(path), (path,))


def by_folder(paths: list[Path]) -> list[EventsRun]:
    """One run for each folder with event files, which belong together."""
    folders: dict[Path, list[Path]] = {}
    for path in sorted(paths):
        folders.setdefault(path.parent, []).append(path)
    return [EventsRun(str(folder), tuple(files)) for folder, files in folders.items()]


def _records(path: Path, reading: Reading) -> Iterator[tuple[str, bytes]]:
    """The records of a file, each with its place. After a damaged length nothing can be found any more."""
    at = 0
    with open_bytes(path) as file:
        while head := file.read(_HEADER):
            place = f"byte {at}"
            size = struct.unpack("<Q", head[:8])[0] if len(head) == _HEADER else 0
            if len(head) < _HEADER or struct.unpack("<I", head[8:])[0] != masked_crc(head[:8]) or size > _LARGEST:
                found = f"{len(head)} bytes, cut off" if len(head) < _HEADER else "a length with a wrong checksum"
                reading.malformed(path, place, found, "a TFRecord, which begins with 12 bytes")
                return
            data, crc = _taken(file, size)
            at += _HEADER + size + _FOOTER
            if crc is None:
                reading.malformed(path, place, f"a record of {size} bytes, cut off", "all of it")
                return
            if crc != masked_crc(data):
                reading.malformed(path, place, f"a record of {size} bytes with a wrong checksum", "a whole one")
                continue
            yield place, data


def _taken(file: IO[bytes], size: int) -> tuple[bytes, int | None]:
    data, end = file.read(size), file.read(_FOOTER)
    return data, struct.unpack("<I", end)[0] if len(data) == size and len(end) == _FOOTER else None


def _event(data: bytes) -> Row | None:
    """The scalars of an Event; None when it has none."""
    step, wall = 0, 0.0
    values: dict[str, float] = {}
    for number, value in fields(data):
        if number == 1 and isinstance(value, bytes):
            wall = struct.unpack("<d", value)[0]
        elif number == 2 and isinstance(value, int):
            step = value if value < 1 << 63 else 0  # a negative one, such as -1 for what comes before the training
            if step >= 1 << 53:
                raise ProtobufError(f"step {step}, beyond 2**53")
        elif number == 5 and isinstance(value, bytes):
            for field, part in fields(value):
                if field == 1 and isinstance(part, bytes):
                    values |= _scalar(part)
    return row(step, values, seconds=wall) if values else None


def _scalar(data: bytes) -> dict[str, float]:
    """Tag and value of a Summary.Value; nothing for a picture, a histogram and the like."""
    tag, found = "", None
    for number, value in fields(data):
        if number == 1 and isinstance(value, bytes):
            tag = value.decode(errors="replace")
        elif number == 2 and isinstance(value, bytes):
            found = struct.unpack("<f", value)[0]
        elif number == 8 and isinstance(value, bytes):
            found = _tensor(value)
    return {tag: found} if tag and found is not None else {}


def _tensor(data: bytes) -> float | None:
    """The only element of a tensor; None when it has more, or is no number."""
    kind = 0
    elements: tuple[float, ...] = ()
    for number, value in fields(data):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number == 4 and isinstance(value, bytes) and kind in _PLUGIN_FLOATS:
            elements = floats(value, _PLUGIN_FLOATS[kind])
        elif number in _VALUES and isinstance(value, bytes):
            elements = floats(value, _VALUES[number])
        elif number in (7, 10) and isinstance(value, int):
            elements = (float(value),)
    return elements[0] if len(elements) == 1 else None
