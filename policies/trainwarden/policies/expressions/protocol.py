"""What stands between a policy's expressions and the engine that evaluates them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from trainwarden.policies.vocabulary import Type

__all__ = ["CelEngine", "CelValue", "Expression", "Limits", "Outcome", "Scope", "UnknownValueError"]

CelValue = bool | int | float | str | timedelta | datetime | Mapping[str, str] | Mapping[str, float]


class UnknownValueError(Exception):
    """A name or a call has no value now. The policy is right: its expression is unknown where that matters."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class Scope(Protocol):
    """One run at one moment, as an expression sees it. Called only for the names that an expression uses."""

    def variable(self, name: str) -> CelValue:
        """Value of a dotted name of the vocabulary, such as `progress.percent` (never `metrics`).

        Raises:
            UnknownValueError: It has no value now, and why.
        """
        ...

    def metric(self, name: str) -> float:
        """Newest value of a metric; always finite.

        Raises:
            UnknownValueError: Never reported, or not finite at the newest step that carried it, and which.
        """
        ...

    def metric_names(self) -> frozenset[str]:
        """Every metric ever reported in this run, finite or not: what `"loss" in metrics` asks."""
        ...

    def call(self, function: str, arguments: tuple[CelValue, ...]) -> CelValue:
        """Call a function of the vocabulary.

        Raises:
            UnknownValueError: Too little history, or data that is not finite.
        """
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one expression. Beyond the first two it is refused when written, beyond the others it is unknown."""

    length: int = 2048  # characters
    nesting: int = 32  # depth of the syntax tree in operators and calls
    iterations: int = 10_000  # of comprehension steps in one evaluation, all macros together
    text: int = 16_384  # characters of a value
    texts: int = 4_000_000  # characters made and read in one evaluation: some 10 ms on the C++ engine
    seconds: float = 0.1  # of one evaluation; ten times as long on the Python engine, none on the C++ one


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an expression gave: a value, or why there is none."""

    value: CelValue | None
    unknown: str = ""  # the reason; empty when there is a value
    used: Mapping[str, CelValue | str] = field(default_factory=dict)  # as written, such as `metrics.loss`, to its value


class Expression(Protocol):
    """A checked expression. Safe to use again and again, from one thread."""

    @property
    def source(self) -> str: ...

    @property
    def type(self) -> Type: ...

    @property
    def names(self) -> frozenset[str]:
        """Dotted names, `metrics.<name>` for a known metric, `metrics` when any may be read, `f()` for a call."""
        ...

    def evaluate(self, scope: Scope, variables: Mapping[str, CelValue | UnknownValueError]) -> Outcome:
        """Evaluate. Never raises: what goes wrong is an Outcome that says so.

        Args:
            scope: The run.
            variables: The policy's own variables by name (without `variables.`), evaluated before.
        """
        ...


class CelEngine(Protocol):
    """One implementation of CEL."""

    @property
    def name(self) -> str: ...

    def compile(self, source: str, *, field: str, result: Type | None, variables: Mapping[str, Type]) -> Expression:
        """Check an expression.

        Args:
            source: The expression as written.
            field: Where it stands, such as `spec.rules[2].when`; for errors.
            result: The type it must give; None for any.
            variables: Types of the policy's own variables that it may read as `variables.<name>`.

        Raises:
            ExpressionError: It can't be used: field, line and column, what was found, what would be right.
        """
        ...
