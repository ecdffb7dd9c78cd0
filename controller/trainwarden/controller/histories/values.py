"""Numbers as other programs write them, and rows made of them."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from trainwarden.policies.backtest.recording import Row

__all__ = ["flat", "merged", "moment", "number", "parse_json", "row", "seconds_of", "short", "whole"]

_NAMED = {"nan": "NaN", "inf": "Infinity", "infinity": "Infinity", "+inf": "Infinity", "-inf": "-Infinity"}
_NAMED |= {"+infinity": "Infinity", "-infinity": "-Infinity", "-nan": "NaN"}
_HUGE = 1.79e308  # MLflow's stand-in for infinity is the largest double
_WRAPPED = re.compile(r"(?:np\.)?(?:float|int|tensor)\d*\(([^(),]+)(?:,.*)?\)")
_APART = 1.0  # seconds between two rows of one step that are two rows
_SHORT = 60
_LATEST = 4e9  # Unix seconds; in the year 2096


def number(value: Any) -> float | str | None:
    """A finite number; "NaN", "Infinity" or "-Infinity"; or None for what is no number, such as a text or a bool."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        text = value.strip()
        named = _NAMED.get(text.lower())
        if named is not None:
            return named
        wrapped = _WRAPPED.fullmatch(text)
        if wrapped is not None:
            return number(wrapped[1])
        if not text or text[0] not in "+-.0123456789" or "_" in text:
            return None
        try:
            value = float(text)
        except ValueError:
            return None
    if not isinstance(value, int | float):
        return None
    try:
        value = float(value)
    except OverflowError:
        return "Infinity" if value > 0 else "-Infinity"
    if value != value:
        return "NaN"
    if value >= _HUGE:
        return "Infinity"
    return "-Infinity" if value <= -_HUGE else value


def whole(value: Any) -> int | None:
    """A step: a whole number of 0 or more, also written as 12.0 or "12"; None for all else."""
    found = number(value)
    if not isinstance(found, float) or found < 0 or found != int(found) or found >= 1 << 53:
        return None
    return int(found)


def row(
    step: int,
    values: Mapping[str, Any],
    *,
    seconds: float | None = None,
    total: int | None = None,
    epoch: float | None = None,
) -> Row:
    """A row of all numbers among some values; what is no number is left out."""
    metrics: dict[str, float] = {}
    odd: dict[str, str] = {}
    for name, value in values.items():
        found = value if type(value) is float and -_HUGE < value < _HUGE else number(value)
        if isinstance(found, float):
            metrics[name] = found
        elif found is not None:
            odd[name] = found
    return Row(step, metrics, odd, seconds, total, epoch)


def merged(rows: Iterable[Row]) -> Iterator[Row]:
    """Rows of one step that follow each other at about the same time made one, unless they disagree; no empty ones."""
    held: Row | None = None
    for each in rows:
        if not each.metrics and not each.nonfinite:
            continue
        if held is not None and _belong(held, each):
            held.metrics = {**held.metrics, **each.metrics}
            held.nonfinite = {**held.nonfinite, **each.nonfinite}
            held.epoch = each.epoch if held.epoch is None else held.epoch
            held.total = each.total if held.total is None else held.total
            continue
        if held is not None:
            yield held
        held = each
    if held is not None:
        yield held


def _belong(a: Row, b: Row) -> bool:
    if a.step != b.step or (a.seconds is None) != (b.seconds is None):
        return False
    if a.seconds is not None and b.seconds is not None and abs(b.seconds - a.seconds) > _APART:
        return False
    twice = (a.metrics.keys() | a.nonfinite.keys()) & (b.metrics.keys() | b.nonfinite.keys())
    return not twice or (a.seconds is not None and a.seconds == b.seconds and all(_agree(a, b, name) for name in twice))


def _agree(a: Row, b: Row, name: str) -> bool:
    return a.metrics.get(name) == b.metrics.get(name) and a.nonfinite.get(name) == b.nonfinite.get(name)


def flat(values: Mapping[str, Any], *, open_: Iterable[str] = ()) -> dict[str, Any]:
    """A tree of values with the path as name, `a/b`; the names in `open_` leave no trace in it."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            prefix = "" if name in open_ else f"{name}/"
            found.update((f"{prefix}{key}", item) for key, item in flat(value).items())
        else:
            found[name] = value
    return found


def parse_json(data: bytes | str) -> Any:
    """JSON, also with the NaN and Infinity that JSON does not have and Python writes.

    Raises:
        ValueError: It is not JSON; the text says what is wrong and at which character.
    """
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.json.decode(data)
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(str(error)) from error


def seconds_of(value: Any) -> float | None:
    """Unix seconds of a moment: seconds, milliseconds, microseconds, nanoseconds, or ISO 8601; None for all else."""
    found = number(value)
    if isinstance(found, float):
        for limit, unit in ((1e11, 1.0), (1e14, 1e3), (1e17, 1e6)):
            if abs(found) < limit:
                return found / unit
        return found / 1e9
    if isinstance(value, str) and len(value) >= 10:
        with contextlib.suppress(ValueError):
            moment = datetime.fromisoformat(value.strip().removesuffix(" UTC"))
            return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    return None


def moment(seconds: float | None) -> datetime | None:
    """The moment of Unix seconds; None when they are none of our time."""
    if seconds is None or not 1e8 < seconds < _LATEST:
        return None
    return datetime.fromtimestamp(seconds, UTC)


def short(text: object) -> str:
    """What was found, quoted and cut, for an error."""
    shown = repr(text)
    return shown if len(shown) <= _SHORT else shown[:_SHORT] + "…"
