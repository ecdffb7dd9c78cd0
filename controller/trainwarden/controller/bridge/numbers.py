"""Numbers from the texts that metrics are posted as. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from trainwarden.policies.readable import not_finite

__all__ = ["count", "split"]

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")  # float() alone takes 1_000 too
_ODD = {"nan": "NaN", "inf": "Infinity", "infinity": "Infinity"}
_MOST = 2**53


def split(texts: Mapping[str, str]) -> tuple[dict[str, float], dict[str, str]]:
    """Finite numbers, and what the others are called on the wire; a text that is no number is left out."""
    finite: dict[str, float] = {}
    nonfinite: dict[str, str] = {}
    for name, text in texts.items():
        number = _number(text)
        if number is None:
            continue
        if math.isfinite(number):
            finite[name] = number
        else:
            nonfinite[name] = not_finite(number)
    return finite, nonfinite


def count(text: str | None) -> int | None:
    """A whole number below 2^53; None for all else, as the largest integer that streaming data has as its total."""
    number = None if text is None else _number(text)
    if number is None or not number.is_integer() or not 0 <= number < _MOST:
        return None
    return int(number)


def _number(text: str) -> float | None:
    text = text.strip()
    if _NUMBER.fullmatch(text):
        return float(text)
    word = _ODD.get(text.lstrip("+-").lower())
    if word is None or len(text) - len(text.lstrip("+-")) > 1:
        return None
    return math.nan if word == "NaN" else -math.inf if text.startswith("-") else math.inf
