"""Why an expression can't be used: where it stands, what was found, what would be right."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["ExpressionError", "nearest"]


class ExpressionError(ValueError):
    """An expression can't be used as written. Its author must act; retrying does not help."""

    def __init__(self, field: str, line: int, column: int, found: str, remedy: str) -> None:
        self.field = field
        self.line = line  # from 1, within the expression
        self.column = column  # from 1
        self.found = found
        self.remedy = remedy
        super().__init__(f"{field}:{line}:{column}: {found}; {remedy}")


def nearest(name: str, known: Iterable[str], otherwise: str, *, before: str = "") -> str:
    """A remedy that names the closest known name, with `before` put before it, or else says `otherwise`."""
    close = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean {before}{close[0]}?" if close else otherwise
