"""Label selectors as kubectl's -l has them: `team=nlp,tier!=prod,stage in (dev, test),!frozen`."""

from __future__ import annotations

import re
from typing import Any

from lightkube import operators

from trainwarden.controller.cluster.console.errors import ConsoleError

__all__ = ["Selector", "parse_selector"]

Selector = list[tuple[str, operators.Operator[Any]]]
"""Pairs of a label and what it must be, as lightkube takes them."""

_KEY = r"[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?"
_VALUE = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_COMMAS = re.compile(r",(?![^()]*\))")  # those outside parentheses
_SET = re.compile(rf"({_KEY})\s+(in|notin)\s+\(\s*({_VALUE}?(?:\s*,\s*{_VALUE}?)*)\s*\)")
_EQUALITY = re.compile(rf"({_KEY})\s*(==|=|!=)\s*({_VALUE})?")
_PRESENCE = re.compile(rf"(!?)\s*({_KEY})")


def parse_selector(text: str) -> Selector:
    """Read a selector; empty text selects all.

    Raises:
        ConsoleError: It is not one.
    """
    return [_requirement(part.strip(), text) for part in _COMMAS.split(text)] if text.strip() else []


def _requirement(part: str, whole: str) -> tuple[str, operators.Operator[Any]]:
    if found := _SET.fullmatch(part):
        values = [each.strip() for each in found[3].split(",")]
        return found[1], operators.in_(values) if found[2] == "in" else operators.not_in(values)
    if found := _EQUALITY.fullmatch(part):
        value = found[3] or ""
        return found[1], operators.not_equal(value) if found[2] == "!=" else operators.equal(value)
    if found := _PRESENCE.fullmatch(part):
        return found[2], operators.not_exists() if found[1] else operators.exists()
    raise ConsoleError(f"-l {whole!r}: {part!r} is no condition on a label; write team=nlp, tier!=prod, a in (x,y), !b")
