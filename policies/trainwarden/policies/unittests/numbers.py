"""The values of a metric as a row: constant, ramp, decay, noise, missing, not finite, frozen."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from trainwarden.policies.unittests.rows import NotationError, Row, read_row

__all__ = ["Missing", "Numbers", "Span", "read_number", "read_numbers", "span_values", "values"]

_NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_SPAN = re.compile(
    rf"(?P<start>=|{_NUMBER})"
    rf"(?:(?P<add>[+-](?![+-]){_NUMBER})|\.\.(?P<end>{_NUMBER})|\*(?P<times>{_NUMBER})"
    rf"|>(?P<floor>{_NUMBER})/(?P<half>{_NUMBER}))?"
    rf"(?:~(?P<noise>{_NUMBER})(?:@(?P<seed>[0-9]+))?)?\Z"
)
_NON_FINITE = {"NaN": math.nan, "Inf": math.inf, "+Inf": math.inf, "-Inf": -math.inf}
_EXAMPLES = "write a number, 3-0.1x20 (a ramp), 3..1x20 (a ramp to an end), 3~0.1x20 (noise), _ (missing), NaN or Inf"


@dataclass(frozen=True, slots=True)
class Span:
    """Numbers that follow from each other. Without a start they go on from the newest one."""

    start: float | None
    change: Literal["none", "add", "to", "times", "toward"] = "none"
    by: float = 0.0  # what is added, the end, the factor, or what it falls toward
    half: float = 1.0  # toward: values until half of the way is done
    noise: float = 0.0  # standard deviation
    seed: int | None = None


class Missing:
    """No value."""


Numbers = Row[Span | Missing]


def read_numbers(text: str) -> Numbers:
    """Read a row of a metric.

    Raises:
        NotationError: What was found, and what would be right.
    """
    return read_row(text, _read)


def _read(text: str) -> tuple[Span | Missing, bool]:
    if text == "_":
        return Missing(), True
    return read_number(text, _EXAMPLES), True


def read_number(text: str, examples: str) -> Span:
    """Read one item that stands for numbers.

    Raises:
        NotationError: It does not; the remedy is `examples`.
    """
    if text in _NON_FINITE:
        return Span(_NON_FINITE[text])
    for name in _NON_FINITE:
        if text.lower() in (name.lower(), f".{name.lower()}", f"{name.lower()}inity"):
            raise NotationError(f"{text!r}", f"write {name}")
    found = _SPAN.match(text)
    if found is None:
        raise NotationError(f"{text!r}", examples)
    start = None if found["start"] == "=" else float(found["start"])
    noise, seed = float(found["noise"] or 0), int(found["seed"]) if found["seed"] else None
    if noise < 0:
        raise NotationError(f"{text!r}", "the standard deviation behind ~ is not negative")
    if found["add"]:
        return Span(start, "add", float(found["add"]), noise=noise, seed=seed)
    if found["end"]:
        return Span(start, "to", float(found["end"]), noise=noise, seed=seed)
    if found["times"]:
        return Span(start, "times", float(found["times"]), noise=noise, seed=seed)
    if found["floor"]:
        half = float(found["half"])
        if half <= 0:
            raise NotationError(f"{text!r}", "what stands behind / is how many values half of the way takes")
        return Span(start, "toward", float(found["floor"]), half, noise=noise, seed=seed)
    return Span(start, noise=noise, seed=seed)


def values(row: Numbers, *, end: int, name: str, seed: int) -> list[float | None]:
    """The first `end` values of a row; None where there is none, also beyond the end of the row.

    Args:
        row: The row.
        end: How many.
        name: Of the metric: rows of different names have different noise.
        seed: Of the test's noise.
    """
    result: list[float | None] = []
    noise = _normal(f"{seed}/{name}")
    newest: float | None = None
    for item, count in row.until(end):
        if isinstance(item, Missing):
            result += [None] * count
            continue
        if item.start is None and newest is None:
            raise NotationError("a row that begins with =", "begin with a number; = goes on from the one before")
        draws = noise if item.seed is None else _normal(f"@{item.seed}")
        for value in span_values(item, count, newest):
            newest = value + item.noise * next(draws) if item.noise else value
            result.append(newest)
    return result + [None] * (end - len(result))


def span_values(span: Span, count: int, newest: float | None) -> Iterator[float]:
    """The numbers of a span without noise. One that goes on from the newest number begins one change after it."""
    first = 0 if span.start is not None else 1
    start = span.start if span.start is not None else newest or 0.0
    for number in range(first, first + count):
        if span.change == "add":
            yield start + span.by * number
        elif span.change == "to":
            last = count - 1 + first
            yield start + (span.by - start) * number / last if last else start
        elif span.change == "times":
            yield _product(start, span.by, number)
        elif span.change == "toward":
            yield span.by + (start - span.by) * 0.5 ** (number / span.half)
        else:
            yield start


def _product(start: float, factor: float, number: int) -> float:
    try:
        return start * factor**number
    except OverflowError:
        return math.copysign(math.inf, start)


def _normal(seed: str) -> Iterator[float]:
    """Standard normal numbers that are the same for a seed everywhere. Source: Box and Muller, 1958."""
    uniform = random.Random(seed).random  # noqa: S311 - noise of a test
    while True:
        yield math.sqrt(-2.0 * math.log(1.0 - uniform())) * math.cos(math.tau * uniform())
