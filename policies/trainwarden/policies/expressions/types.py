"""Types of expressions, as the checker reckons with them."""

from __future__ import annotations

from dataclasses import dataclass

from trainwarden.policies.vocabulary import Type

__all__ = [
    "BOOL",
    "DOUBLE",
    "DURATION",
    "INT",
    "STRING",
    "TIMESTAMP",
    "CelType",
    "list_of",
    "of_vocabulary",
    "to_vocabulary",
]


@dataclass(frozen=True, slots=True)
class CelType:
    """A scalar, a list of scalars, or a map from text to one."""

    name: str
    item: CelType | None = None

    def __str__(self) -> str:
        if self.item is None:
            return self.name
        return f"list({self.item})" if self.name == "list" else f"map(string, {self.item})"

    @property
    def number(self) -> bool:
        """Whether it is int or double."""
        return self.name in ("int", "double")

    @property
    def scalar(self) -> bool:
        """Whether it is neither list nor map."""
        return self.item is None


BOOL, INT, DOUBLE, STRING = CelType("bool"), CelType("int"), CelType("double"), CelType("string")
DURATION, TIMESTAMP = CelType("duration"), CelType("timestamp")
_VOCABULARY = {
    Type.BOOL: BOOL, Type.INT: INT, Type.DOUBLE: DOUBLE, Type.STRING: STRING, Type.DURATION: DURATION,
    Type.TIMESTAMP: TIMESTAMP, Type.STRING_MAP: CelType("map", STRING), Type.METRICS: CelType("map", DOUBLE),
}  # fmt: skip


def of_vocabulary(type_: Type) -> CelType:
    """The checker's type for one of the vocabulary."""
    return _VOCABULARY[type_]


def to_vocabulary(type_: CelType) -> Type | None:
    """The vocabulary's type for a scalar; None for a list or map."""
    return next((known for known, mine in _VOCABULARY.items() if mine == type_ and mine.scalar), None)


def list_of(item: CelType) -> CelType:
    """List of a scalar."""
    return CelType("list", item)
