"""Bytes from the wire to a Report, fast for what is right, tolerant of NaN as others write it, clear about the rest."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec

from trainwarden.reporters.wire import MAX_BYTES, Report

__all__ = ["RejectedError", "decode_report"]

_MOST_METRICS = 2_000
_LONGEST_NAME = 256
_LARGEST = 1 << 53
_decode = msgspec.json.Decoder(Report).decode
_BARE = {"NaN": "NaN", "Infinity": "Infinity", "-Infinity": "-Infinity"}


class RejectedError(ValueError):
    """A report does not fit the wire; its text says where, what was found and what would be right."""


def decode_report(data: bytes) -> Report:
    """Decode and check one report.

    Raises:
        RejectedError: It does not fit.
    """
    if len(data) > MAX_BYTES:
        raise RejectedError(f"{len(data)} bytes; at most {MAX_BYTES} are right")
    try:
        report = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        report = _lenient(data, str(error))
    if not (0 <= report.step <= _LARGEST and 0 <= report.seq <= _LARGEST):
        raise RejectedError(f"step {report.step} or seq {report.seq}; 0 to 2^53 is right")
    if not report.run or len(report.run) > _LONGEST_NAME:
        raise RejectedError(f"run of {len(report.run)} characters; 1 to {_LONGEST_NAME} are right")
    metrics = report.metrics
    if len(metrics) > _MOST_METRICS:
        raise RejectedError(f"{len(metrics)} metrics; at most {_MOST_METRICS} are right")
    for name in metrics:
        if len(name) > _LONGEST_NAME:
            raise RejectedError(f"a metric's name of {len(name)} characters; at most {_LONGEST_NAME} are right")
    return report


def _lenient(data: bytes, reason: str) -> Report:
    """Once more with Python's reader, which knows bare NaN and Infinity; those go where they belong."""
    try:
        body: Any = json.loads(data, parse_constant=_Bare)
    except (ValueError, RecursionError) as error:
        raise RejectedError(f"not JSON: {error}") from error
    if not isinstance(body, dict):
        raise RejectedError(f"a {type(body).__name__}; an object is right")
    metrics = body.get("metrics")
    if isinstance(metrics, dict):
        given = body.get("nonfinite")
        nonfinite = dict(given) if isinstance(given, dict) else {}
        finite = {}
        for name, value in metrics.items():
            if isinstance(value, _Bare):
                nonfinite[name] = value.text
            elif isinstance(value, float) and not math.isfinite(value):
                nonfinite[name] = "Infinity" if value > 0 else "-Infinity"
            else:
                finite[name] = value
        body = {**body, "metrics": finite, "nonfinite": nonfinite}
    try:
        return msgspec.convert(body, Report, strict=True)
    except (msgspec.ValidationError, ValueError, OverflowError) as error:
        raise RejectedError(str(error) or reason) from error


class _Bare:
    """A bare NaN or Infinity."""

    def __init__(self, text: str) -> None:
        self.text = _BARE[text]
