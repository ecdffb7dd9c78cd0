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
_NAN = re.compile(r"[+-]?nan\(\w*\)", re.IGNORECASE)  # C: nan(0x8000000000000), and -nan(ind) on Windows
_OLD_WINDOWS = re.compile(r"([+-]?)1\.#(?:(INF)|IND|[QS]NAN)0*", re.IGNORECASE)  # its C runtime before 2015
_BARE = re.compile(r'"(?:[^"\\]|\\.)*"|[+-]?(?:nan(?:\(\w*\))?|inf(?:inity)?|1\.#[A-Z]+0*)', re.IGNORECASE)
_MOST_DIGITS = 400  # of a whole number in JSON; one with more of them, beyond every double, stays as it is written
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
        if text.endswith(")") and _NAN.fullmatch(text):
            return "NaN"
        if "#" in text and (windows := _OLD_WINDOWS.fullmatch(text)) is not None:
            return "NaN" if windows[2] is None else "-Infinity" if windows[1] == "-" else "Infinity"
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
    levels = [("", iter(values.items()))]  # no recursion, since files may be nested deeply
    while levels:
        prefix, items = levels[-1]
        for name, value in items:
            if isinstance(value, Mapping):
                opens = len(levels) == 1 and name in open_
                levels.append(("" if opens else f"{prefix}{name}/", iter(value.items())))
                break
            found[f"{prefix}{name}"] = value
        else:
            levels.pop()
    return found


def parse_json(data: bytes | str) -> Any:
    """JSON, also with NaN and Infinity, which JSON does not have, as Python and C write them.

    Raises:
        ValueError: It is not JSON, or has a key twice in one object; the text says what is wrong and where.
    """
    try:
        try:
            value = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return _parse_slowly(data)
        if _may_repeat_keys(data, value):
            _parse_slowly(data)
    except RecursionError as error:
        raise ValueError("not JSON that can be read (nested too deeply)") from error
    return value


class _RepeatedKeyError(ValueError):
    """A key stands twice in one object."""


def _parse_slowly(data: bytes | str) -> Any:
    try:
        text = data.decode("utf-8-sig") if isinstance(data, bytes) else data
        try:
            return _loads(text)
        except json.JSONDecodeError:
            mended = _BARE.sub(_as_json, text)
            if mended == text:
                raise
            try:
                return _loads(mended)
            except json.JSONDecodeError:
                pass
            raise
    except _RepeatedKeyError:
        raise
    except ValueError as error:
        raise ValueError(f"not JSON ({error})") from error


def _loads(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_object, parse_int=_integer)


def _as_json(found: re.Match[str]) -> str:
    named = None if found[0].startswith('"') else number(found[0])
    return named if isinstance(named, str) else found[0]


def _integer(text: str) -> int | str:
    return int(text) if len(text) < _MOST_DIGITS else text


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _RepeatedKeyError(f"the key {short(key)} twice in one object")
            seen.add(key)
    return found


def _may_repeat_keys(data: bytes | str, value: Any) -> bool:
    """Whether there are more or less of what ends a key than keys were found. A text may have it too, so it may not."""
    return (data.count(b'":') if isinstance(data, bytes) else data.count('":')) != _keys(value)


def _keys(value: Any) -> int:
    """The keys of an object and of those in it, also in lists of objects."""
    count = 0
    if isinstance(value, dict):
        count = len(value)
        for item in value.values():
            kind = type(item)
            if kind is dict or kind is list:
                count += _keys(item)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        count = sum(map(_keys, value))
    return count


def seconds_of(value: Any) -> float | None:
    """Unix seconds of a moment: seconds, milliseconds, microseconds, nanoseconds, or ISO 8601; None for all else."""
    found = number(value)
    if isinstance(found, float):
        for limit, unit in ((1e11, 1.0), (1e14, 1e3), (1e17, 1e6)):
            if abs(found) < limit:
                return found / unit
        return found / 1e9
    if isinstance(value, str) and len(value) >= 10:
        with contextlib.suppress(ValueError, OverflowError):
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
    try:
        shown = repr(text)
    except (RecursionError, ValueError):  # a whole number of too many digits
        shown = f"a {type(text).__name__} that is too large to be shown"
    return shown if len(shown) <= _SHORT else shown[:_SHORT] + "…"
