"""Say once per kind what was wrong, and count the rest. Training code never sees an exception of ours."""

from __future__ import annotations

import logging
from collections.abc import Mapping

__all__ = ["Complaints", "logger", "said", "shown"]

logger = logging.getLogger("trainwarden.reporters")

_LONGEST = 200  # characters of a value in a complaint


def said(value: object) -> str:
    """The value's text, or that it has none: `str` of what a training hands over may raise."""
    try:
        return str(value)
    except Exception as error:
        return f"a {type(value).__name__} whose text can't be had ({type(error).__name__})"


def shown(value: object) -> str:
    """The value as a programmer writes it, shortened, or that it can't be shown."""
    try:
        text = repr(value)
    except Exception as error:
        return f"a {type(value).__name__} that can't be shown ({type(error).__name__})"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


class Complaints:
    """What one reporter refused: a warning for the first of a kind, a number for all of them."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    @property
    def counts(self) -> Mapping[str, int]:
        """How often each kind was refused."""
        return dict(self._counts)

    def add(self, kind: str, message: str) -> None:
        """Count one refusal; the first of its kind is logged."""
        seen = self._counts.get(kind, 0)
        self._counts[kind] = seen + 1
        if not seen:
            logger.warning("%s (told once; what follows of this kind is only counted)", message)

    def error(self, doing: str, error: BaseException) -> None:
        """Count an error of ours that must not reach the training; the first of each is logged with its traceback."""
        kind = f"{doing}: {type(error).__name__}"
        seen = self._counts.get(kind, 0)
        self._counts[kind] = seen + 1
        if not seen:
            logger.warning("%s failed inside the reporter; training goes on", doing, exc_info=error)
