"""Durations as policies write them: `90s`, `10m`, `1h30m`, `2d`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

__all__ = ["DURATION_PATTERN", "Duration", "duration_text", "parse_duration"]

DURATION_PATTERN = r"^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?$"
_PARTS = re.compile(r"(?:([0-9]{1,6})d)?(?:([0-9]{1,8})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,10})s)?\Z")
_LONGEST = timedelta(days=3650)
_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def parse_duration(text: object) -> timedelta:
    """Read a duration.

    Raises:
        ValueError: It is not one; the message has what was found and what would be right.
    """
    if isinstance(text, timedelta):
        return text
    if isinstance(text, int | float) and not isinstance(text, bool):
        raise ValueError(f"the number {text!r} has no unit; write {text}s, {text}m or {text}h")  # noqa: TRY004
    found = _PARTS.match(text) if isinstance(text, str) and text else None
    if found is None:
        raise ValueError(f"{text!r} is not a duration; write one such as 90s, 10m, 1h30m or 2d")
    length = timedelta(seconds=sum(int(n or 0) * size for n, (_, size) in zip(found.groups(), _UNITS, strict=True)))
    if length > _LONGEST:
        raise ValueError(f"{text!r} is longer than ten years; write at most {_LONGEST.days}d")
    return length


def duration_text(length: timedelta) -> str:
    """The shortest text that reads back as the duration, in whole seconds: `1h30m`."""
    left, text = round(length.total_seconds()), ""
    for unit, size in _UNITS:
        number, left = divmod(left, size)
        text += f"{number}{unit}" if number else ""
    return text or "0s"


Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    PlainSerializer(duration_text),
    WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN, "minLength": 2, "maxLength": 32}),
]
"""A duration in a resource; `timedelta` in Python, text such as `10m` in YAML."""
