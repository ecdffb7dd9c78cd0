"""The functions of checked expressions that both engines take from here, so that they can't differ."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

from trainwarden.policies import readable
from trainwarden.policies.expressions.syntax import read_duration
from trainwarden.policies.expressions.types import (
    BOOL,
    DOUBLE,
    DURATION,
    INT,
    STRING,
    TIMESTAMP,
    CelType,
)

__all__ = [
    "DIVISION",
    "INDEX",
    "LONGEST",
    "OVERFLOW",
    "PLAIN_FUNCTIONS",
    "PlainFunction",
    "human_duration",
    "human_number",
]

PlainFunction = tuple[str, tuple[CelType, ...], CelType, Callable[..., Any]]
"""Name in the checked text, parameters, result, and what computes it; a ValueError makes the expression unknown."""


# What both engines say of the same mistake.
DIVISION = "division by zero"
INDEX = "an index is outside its list"
OVERFLOW = "a number, duration or moment is out of its range"

_FIRST_MOMENT = datetime(1, 1, 2, tzinfo=UTC)  # the C++ engine takes the first moment of year 1 for "never"


LONGEST = timedelta(microseconds=2**63 // 1000)  # int64 nanoseconds, some 292 years: the C++ engine hands out no more


def human_number(value: float) -> str:
    """A number with at most four significant digits: `2.346`, `12,800`, `1.2e-05`."""
    return readable.number(value)


def human_duration(length: timedelta) -> str:
    """A duration in its two largest units: `2h 5m`, `3d 4h`, `45s`."""
    return readable.duration(length.total_seconds())


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("a computed value is NaN or infinite")
    return value


def _text_of_double(value: float) -> str:
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return repr(float(value))


def _handed_out(compute: Callable[[timedelta], Any]) -> Callable[[timedelta], Any]:
    def call(length: timedelta) -> Any:
        if abs(length) >= LONGEST:
            raise ValueError(OVERFLOW)
        return compute(length)

    return call


def _text_of_duration(value: timedelta) -> str:
    micros = value // timedelta(microseconds=1)
    sign, micros = ("-" if micros < 0 else ""), abs(micros)
    fraction = f".{micros % 1_000_000:06}".rstrip("0") if micros % 1_000_000 else ""
    return f"{sign}{micros // 1_000_000}{fraction}s"


def _text_of_timestamp(value: datetime) -> str:
    text = value.astimezone(UTC).isoformat()
    head, _, _ = text.partition("+")
    return (head.rstrip("0") if "." in head else head) + "Z"


def _int_of_double(value: float) -> int:
    _finite(value)
    if not -(2.0**63) < value < 2.0**63:
        raise ValueError(f"{value:g} does not fit an int")
    return int(value)


def _int_of_string(text: str) -> int:
    try:
        number = int(text) if text.lstrip("-").isascii() and text.lstrip("-").isdigit() else None
    except ValueError:
        number = None
    if number is None or not -(2**63) <= number < 2**63:
        raise ValueError(f"{text[:40]!r} is not an int")
    return number


def _double_of_string(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text[:40]!r} is not a number") from None


def _bool_of_string(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{text[:40]!r} is neither true nor false")
    return text == "true"


def _duration_of_string(text: str) -> timedelta:
    length = read_duration(text)
    if length is None:
        raise ValueError(f"{text[:40]!r} is not a duration such as 1h30m")
    return length


def _timestamp_of_string(text: str) -> datetime:
    moment: datetime | None = None
    with suppress(ValueError):
        moment = datetime.fromisoformat(text)
    if moment is None or moment.tzinfo is None or moment < _FIRST_MOMENT:
        raise ValueError(f"{text[:40]!r} is not a moment such as 2026-01-31T12:00:00Z")
    return moment


def _in_zone(moment: datetime, zone: str) -> datetime:
    if zone == "UTC":
        return moment.astimezone(UTC)
    if zone[:1] in ("+", "-") or zone[:1].isdigit():
        try:
            sign = -1 if zone.startswith("-") else 1
            hours, minutes = zone.lstrip("+-").split(":")
            return moment.astimezone(timezone(sign * timedelta(hours=int(hours), minutes=int(minutes))))
        except ValueError:
            raise ValueError(f"{zone[:40]!r} is not a time zone") from None
    try:
        return moment.astimezone(ZoneInfo(zone))
    except (KeyError, ValueError, OSError):
        raise ValueError(f"{zone[:40]!r} is not a time zone") from None


_OF_TIMESTAMP: dict[str, Callable[[datetime], int]] = {
    "getFullYear": lambda moment: moment.year,
    "getMonth": lambda moment: moment.month - 1,
    "getDate": lambda moment: moment.day,
    "getDayOfMonth": lambda moment: moment.day - 1,
    "getDayOfWeek": lambda moment: moment.isoweekday() % 7,
    "getDayOfYear": lambda moment: moment.timetuple().tm_yday - 1,
    "getHours": lambda moment: moment.hour,
    "getMinutes": lambda moment: moment.minute,
    "getSeconds": lambda moment: moment.second,
}
_SECONDS = {"getHours": 3600, "getMinutes": 60, "getSeconds": 1}


def _part_of(take: Callable[[datetime], int]) -> Callable[[datetime, str], int]:
    return lambda moment, zone: take(_in_zone(moment, zone))


def _whole(seconds: int) -> Callable[[timedelta], int]:
    return lambda length: int(length.total_seconds() / seconds)


PLAIN_FUNCTIONS: tuple[PlainFunction, ...] = (
    ("finite_", (DOUBLE,), DOUBLE, _finite),
    ("human_double_", (DOUBLE,), STRING, human_number),
    ("human_duration_", (DURATION,), STRING, _handed_out(human_duration)),
    ("text_bool_", (BOOL,), STRING, lambda value: "true" if value else "false"),
    ("text_double_", (DOUBLE,), STRING, _text_of_double),
    ("text_duration_", (DURATION,), STRING, _handed_out(_text_of_duration)),
    ("text_timestamp_", (TIMESTAMP,), STRING, _text_of_timestamp),
    ("int_of_double_", (DOUBLE,), INT, _int_of_double),
    ("int_of_timestamp_", (TIMESTAMP,), INT, lambda moment: math.floor(moment.timestamp())),
    ("int_of_string_", (STRING,), INT, _int_of_string),
    ("double_of_string_", (STRING,), DOUBLE, _double_of_string),
    ("bool_of_string_", (STRING,), BOOL, _bool_of_string),
    ("duration_of_string_", (STRING,), DURATION, _duration_of_string),
    ("timestamp_of_string_", (STRING,), TIMESTAMP, _timestamp_of_string),
    *((f"{name}_timestamp_", (TIMESTAMP, STRING), INT, _part_of(take)) for name, take in _OF_TIMESTAMP.items()),
    *((f"{name}_duration_", (DURATION,), INT, _handed_out(_whole(seconds))) for name, seconds in _SECONDS.items()),
)
