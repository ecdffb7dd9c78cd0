"""Make a report fit its limits: 1,000 metrics and 64 KiB. Pure.

What stays first: metrics that are not finite, then those with `loss` in their names, then the others, each in the order
in which the training gave them. What is left out is counted in the report's `trimmed`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from trainwarden.reporters.wire import MAX_BYTES, Report, TooLargeError, encode

__all__ = ["HEADER_BYTES", "MAX_METRICS", "fit"]

V = TypeVar("V")

MAX_METRICS = 1_000
HEADER_BYTES = 512
"""Room left for headers: a payload with its headers over the server's limit costs the connection."""


def fit(report: Report, most: int = MAX_BYTES) -> tuple[Report, bytes]:
    """The report as it can be sent in so many bytes, headers included, and its encoding.

    `trimmed` of what is given counts what was left out before. What can't be made to fit is as small as it gets.
    """
    limit = min(most, MAX_BYTES) - HEADER_BYTES
    if len(report.metrics) + len(report.nonfinite) <= MAX_METRICS:
        data = _encoded(report, limit)
        if data is not None:
            return report, data
    bare = replace(report, metrics={}, nonfinite={}, trimmed=2**53)
    room = _room(bare, limit)
    if room < 0:  # a path or a reason of kilobytes
        report, bare = replace(report, checkpoint=None, reason=None), replace(bare, checkpoint=None, reason=None)
        room = _room(bare, limit)
    smaller = _trimmed(report, room)
    return smaller, encode(smaller)


def _encoded(report: Report, limit: int) -> bytes | None:
    try:
        data = encode(report)
    except TooLargeError:
        return None
    return data if len(data) <= limit else None


def _room(bare: Report, limit: int) -> int:
    data = _encoded(bare, limit)
    return -1 if data is None else limit - len(data)


def _trimmed(report: Report, room: int) -> Report:
    kept: set[str] = set()
    loss = [name for name in report.metrics if "loss" in name.lower()]
    rest = [name for name in report.metrics if "loss" not in name.lower()]
    for name in [*report.nonfinite, *loss, *rest]:
        value: object = report.nonfinite.get(name) or report.metrics[name]
        room -= len(json.dumps(name, ensure_ascii=False).encode(errors="replace")) + len(json.dumps(value)) + 2
        if room < 0 or len(kept) == MAX_METRICS:
            break
        kept.add(name)
    left_out = len(report.metrics) + len(report.nonfinite) - len(kept)
    return replace(
        report,
        metrics=_only(kept, report.metrics),
        nonfinite=_only(kept, report.nonfinite),
        trimmed=report.trimmed + left_out,
    )


def _only(names: set[str], of: Mapping[str, V]) -> dict[str, V]:
    return {name: value for name, value in of.items() if name in names}
