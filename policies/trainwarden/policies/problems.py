"""What is wrong with a policy: where, what was found, what would be right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["PolicyError", "PolicyInvalidError", "Problem"]


class PolicyError(ValueError):
    """A policy can't be used. Its author must act; retrying does not help."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a policy."""

    source: str  # file; empty for an object that came without one
    line: int  # from 1, of the file, or without one of the expression; 0 while unknown
    column: int
    field: str  # such as spec.rules[2].when; empty for the document
    found: str
    remedy: str

    def __str__(self) -> str:
        place = f"{self.source}:{self.line}:{self.column}" if self.source and self.line else self.source
        within = f"at {self.line}:{self.column} of the expression: " if self.line and not self.source else ""
        parts = [f"{part}: " for part in (place, self.field) if part]
        return f"{''.join(parts)}{within}{self.found}; {self.remedy}"


class PolicyInvalidError(PolicyError):
    """A policy has problems, each told by itself."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in problems))
