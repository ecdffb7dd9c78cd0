"""The wire format of Protocol Buffers, as much of it as TensorBoard's event files need.

Source: https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

__all__ = ["ProtobufError", "fields", "floats"]

_VARINT, _I64, _LEN, _I32 = 0, 1, 2, 5


class ProtobufError(ValueError):
    """The bytes are no message."""


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field in order: an int for a varint, bytes for all else.

    Raises:
        ProtobufError: The bytes are no message.
    """
    at, end = 0, len(data)
    while at < end:
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if kind == _LEN:
            size, at = _varint(data, at)
        elif kind in (_I64, _I32):
            size = 8 if kind == _I64 else 4
        else:
            raise ProtobufError(f"field {number} of the unknown wire type {kind}")
        if at + size > end:
            raise ProtobufError(f"field {number} of {size} bytes, of which {end - at} are there")
        yield number, data[at : at + size]
        at += size


def floats(data: bytes, code: str) -> tuple[float, ...]:
    """Numbers packed one after the other, little-endian; `code` as in struct.

    Raises:
        ProtobufError: Their length is no multiple of one's.
    """
    size = struct.calcsize(f"<{code}")
    if len(data) % size:
        raise ProtobufError(f"{len(data)} bytes, which are no multiple of {size}")
    return struct.unpack(f"<{len(data) // size}{code}", data)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
    raise ProtobufError("a number that does not end")
