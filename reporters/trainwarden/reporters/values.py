"""Read the numbers that a training hands over, and never wait for an accelerator to know one.

A tensor on a device is refused: reading it would make the training thread wait for all work queued on that device.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

from trainwarden.reporters.complaints import Complaints, said, shown

__all__ = ["MAX_NAME", "MAX_STEP", "RefusedError", "finite", "finite_number", "metric", "metrics", "whole"]

MAX_NAME = 256
"""Longest metric name in characters; what is longer is cut."""

MAX_STEP = 2**53
"""Largest step: up to here a whole number is exact in the JSON readers of all languages."""

_BEYOND = "metric {name!r} refused: an integer beyond the range of floats"


class RefusedError(ValueError):
    """A value is not a number that can be read without waiting. Its `kind` groups refusals for the log."""

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        super().__init__(message)


def metrics(given: Mapping[object, object], complaints: Complaints) -> dict[str, float]:
    """The metrics of one report that can be sent, NaN and infinities included; the others are complained of."""
    kept: dict[str, float] = {}
    for name, value in given.items():
        try:
            if not isinstance(name, str) or not name:
                refusal = f"metric named {shown(name)} refused: a text of 1 character or more is right"
                complaints.add("metric name", refusal)
                continue
            kept[name[:MAX_NAME]] = metric(name, value)
        except RefusedError as refused:
            complaints.add(refused.kind, str(refused))
        except Exception as error:
            complaints.error("reading a metric", error)
    return kept


def metric(name: str, value: object) -> float:
    """A metric's value as a float; NaN and infinities are values too.

    Raises:
        RefusedError: It is no single number, or lies on an accelerator.
    """
    if isinstance(value, int | float):  # bool and numpy.float64 too
        return _float(f"metric {name!r}", value, "metric value")
    return _read(f"metric {name!r}", value, "metric value")


def whole(what: str, value: object) -> int:
    """A step or total as an int of zero or more, exact in every language.

    Raises:
        RefusedError: It is no whole number in that range, or lies on an accelerator.
    """
    if type(value) is int or type(value) is bool:
        count = int(value)
    else:
        read = _read(what, value, what)
        if not read.is_integer():
            raise RefusedError(what, f"{what} {shown(value)} refused: a whole number of zero or more is right")
        count = int(read)
    if not 0 <= count <= MAX_STEP:
        raise RefusedError(what, f"{what} {shown(value)} refused: a whole number from 0 to 2^53 is right")
    return count


def finite_number(what: str, value: object) -> float:
    """A finite number such as an epoch.

    Raises:
        RefusedError: It is no finite number, or lies on an accelerator.
    """
    number = _float(what, value, what) if isinstance(value, int | float) else _read(what, value, what)
    if not math.isfinite(number):
        raise RefusedError(what, f"{what} {shown(value)} refused: a finite number is right")
    return number


def _float(what: str, value: int | float, kind: str) -> float:
    try:
        return float(value)
    except OverflowError:
        raise RefusedError(kind, f"{what} refused: an integer beyond the range of floats") from None
    except Exception as error:  # of a class of somebody's own
        raise RefusedError(kind, f"{what} refused: a {_kind(value)} can't be read: {said(error)}") from error


def _read(what: str, value: object, kind: str) -> float:
    try:
        on_host = _on_host(value)
    except Exception as error:
        why = f"where a {type(value).__name__} lies can't be read"
        raise RefusedError(kind, f"{what} refused: {why}: {said(error)}") from error
    if not on_host:
        raise RefusedError(
            "accelerator tensor",
            f"{what} refused: it lies on {_device(value)}, and reading it would make the training wait for it. "
            "Hand over loss.item() where you can afford the wait (docs/reporter.md shows a way without)",
        )
    try:
        item = getattr(value, "item", None)
        number = item() if callable(item) and not isinstance(value, type) else value
        if isinstance(number, Real):
            return float(number)
    except Exception as error:
        raise RefusedError(kind, f"{what} refused: a {_kind(value)} can't be read: {said(error)}") from error
    raise RefusedError(kind, f"{what} refused: it is a {_kind(value)}; a single number is right")


def _device(value: object) -> str:
    if hasattr(value, "device_mesh"):
        return "a device mesh"
    device = getattr(value, "device", "cpu")
    return str(getattr(device, "type", device))


def _on_host(value: object) -> bool:
    """Whether the value can be read without waiting; what is unknown counts as an accelerator."""
    device = _device(value)
    return device == "cpu" or "CPU:" in device


def _kind(value: object) -> str:
    name = type(value).__name__
    try:
        shape: Any = getattr(value, "shape", None)
        return f"{name} of shape {tuple(shape)}" if shape is not None else name
    except Exception:
        return name


def finite(values: Mapping[str, float], complaints: Complaints) -> tuple[dict[str, float], dict[str, str]]:
    """Split metrics into finite ones and the names of what the others are on the wire."""
    good: dict[str, float] = {}
    odd: dict[str, str] = {}
    for name, value in values.items():
        try:
            number = float(value)
        except OverflowError:
            complaints.add("metric value", _BEYOND.format(name=name))
            continue
        if math.isfinite(number):
            good[name] = number
        else:
            odd[name] = "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"
    return good, odd
