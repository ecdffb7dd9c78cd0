"""Reads a TrainingRun leniently: one written by an older or newer trainwarden is shown as far as it goes. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from trainwarden.policies.expressions.functions import human_duration

__all__ = ["ago", "clean", "identity", "items", "length", "moment", "number", "percent", "status_of", "text"]

Object = Mapping[str, Any]


def status_of(run: Object) -> Object:
    """The status of an object; empty before the first one."""
    status = run.get("status")
    return status if isinstance(status, Mapping) else {}


def identity(run: Object) -> str:
    """`namespace/name` of an object."""
    return f"{run['metadata'].get('namespace', '')}/{run['metadata']['name']}"


def items(holder: Object, name: str) -> list[Object]:
    """The objects of a list."""
    listed = holder.get(name)
    return [each for each in listed if isinstance(each, Mapping)] if isinstance(listed, list | tuple) else []


def text(holder: Object, name: str) -> str:
    """A text, safe for a terminal; empty without one."""
    value = holder.get(name)
    return "" if value is None else clean(str(value))


def number(holder: Object, name: str) -> float | None:
    """A number; None without one."""
    value = holder.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def moment(holder: Object, name: str) -> datetime | None:
    """A moment; None without one."""
    value = holder.get(name)
    if isinstance(value, datetime):
        found = value
    else:
        try:
            found = datetime.fromisoformat(str(value))
        except ValueError:
            return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def percent(status: Object) -> float | None:
    """The share that is done, 0 to 100, of a text such as `42 %`; None when it is unknown."""
    try:
        share = float(text(status, "progress").removesuffix("%").strip())
    except ValueError:
        return None
    return min(100.0, max(0.0, share)) if share == share else None


def length(time: timedelta) -> str:
    """A length of time in whole seconds, such as `1h 5m`; what is negative counts as nothing."""
    return human_duration(timedelta(seconds=max(0, round(time.total_seconds()))))


def ago(when: datetime | None, now: datetime) -> str:
    """How long ago, such as `5m`; empty for never."""
    return length(now - when) if when is not None else ""


def clean(value: str) -> str:
    """The text on one line, and without what would steer a terminal: what runs report is not ours."""
    kept = (" " if each in "\t\n\r" else each for each in value)
    return "".join(each for each in kept if unicodedata.category(each) not in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp"))
