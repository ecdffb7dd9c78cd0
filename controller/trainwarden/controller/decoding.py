"""Bytes from the wire to a report, fast for what is right, tolerant of NaN as others write it, clear about the rest."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from trainwarden.reporters.wire import MAX_BYTES, Phase

__all__ = ["HeardCheckpoint", "HeardReport", "RejectedError", "decode_report"]

_Count = Annotated[int, Meta(ge=0, le=1 << 53)]
_Name = Annotated[str, Meta(min_length=1, max_length=256)]
_Nonfinite = Literal["NaN", "Infinity", "-Infinity"]


class RejectedError(ValueError):
    """A report does not fit the wire; its text says where, what was found and what would be right."""


class HeardCheckpoint(msgspec.Struct, frozen=True, gc=False):
    """`trainwarden.reporters.wire.Checkpoint` with the bounds of the schema."""

    step: _Count
    path: Annotated[str, Meta(min_length=1)]
    bytes: Annotated[int, Meta(ge=0)] | None = None
    digest: str | None = None


class HeardReport(msgspec.Struct, frozen=True):
    """`trainwarden.reporters.wire.Report` with the bounds of the schema. Twice as fast to read as that dataclass."""

    v: Literal[1]
    run: Annotated[str, Meta(min_length=1, max_length=128)]
    seq: _Count
    ts: float
    pod: str
    phase: Phase
    step: _Count
    rank: Annotated[int, Meta(ge=0)] = 0
    world: Annotated[int, Meta(ge=1)] = 1
    total: _Count | None = None
    epoch: float | None = None
    epochs: float | None = None
    metrics: Annotated[dict[_Name, float], Meta(max_length=1000)] = {}
    nonfinite: Annotated[dict[_Name, _Nonfinite], Meta(max_length=1000)] = {}
    checkpoint: HeardCheckpoint | None = None
    dropped: Annotated[int, Meta(ge=0)] = 0
    trimmed: Annotated[int, Meta(ge=0)] = 0
    reason: str | None = None


_decode = msgspec.json.Decoder(HeardReport).decode


def decode_report(data: bytes) -> HeardReport:
    """Decode and check one report.

    Raises:
        RejectedError: It does not fit.
    """
    if len(data) > MAX_BYTES:
        raise RejectedError(f"{len(data)} bytes; at most {MAX_BYTES} are right")
    try:
        return _decode(data)
    except (ValueError, RecursionError) as error:
        return _lenient(data, str(error))


def _lenient(data: bytes, reason: str) -> HeardReport:
    """Once more with Python's reader, which knows bare NaN and Infinity; those go where they belong."""
    try:
        body: Any = json.loads(data, parse_constant=_Bare)
    except (ValueError, RecursionError) as error:
        raise RejectedError(f"not JSON: {error}") from error
    if not isinstance(body, dict):
        raise RejectedError(f"a {type(body).__name__}; an object is right")
    metrics, given = body.get("metrics"), body.get("nonfinite", {})
    if not isinstance(metrics, dict) or not isinstance(given, dict):
        raise RejectedError(reason)
    body["metrics"], found = {}, {}
    for name, value in metrics.items():
        text = _odd(value)
        if text:
            found[name] = text
        else:
            body["metrics"][name] = value
    if not found:
        raise RejectedError(reason)  # it was not for these
    body["nonfinite"] = {**given, **found}
    try:
        return _decode(
            msgspec.json.encode({name: body[name] for name in HeardReport.__struct_fields__ if name in body})
        )
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise RejectedError(str(error) or reason) from error


def _odd(value: object) -> str:
    """What a number that is not finite is called; empty for all else."""
    if isinstance(value, _Bare):
        return value.text
    if isinstance(value, float) and not math.isfinite(value):  # written as 1e999
        return "Infinity" if value > 0 else "-Infinity"
    return ""


class _Bare:
    """A bare NaN or Infinity."""

    def __init__(self, text: str) -> None:
        self.text = text
