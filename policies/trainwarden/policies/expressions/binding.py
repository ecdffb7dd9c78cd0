"""Read what an expression needs of a run, once per evaluation: only that, and never a number that is not finite."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trainwarden.policies.expressions.protocol import CelValue, Scope, UnknownValueError
from trainwarden.policies.expressions.slots import Argument, Slot
from trainwarden.policies.expressions.types import DOUBLE

__all__ = ["Binder", "Variables"]

Variables = Mapping[str, CelValue | UnknownValueError]


class Binder:
    """Binds the slots of one expression."""

    __slots__ = ("_calls", "_metrics", "_others", "_own", "_variables")

    def __init__(self, slots: tuple[Slot, ...]) -> None:
        # Plain tuples by kind: this runs for every rule at every report.
        self._metrics = tuple((s.name, s.text, s.of) for s in slots if s.kind == "metric")
        self._variables = tuple((s.name, s.text, s.of, s.type == DOUBLE) for s in slots if s.kind == "variable")
        self._own = tuple((s.name, s.text, s.of, s.type == DOUBLE) for s in slots if s.kind == "own")
        self._calls = tuple(
            (s.name, s.text, s.of, *_prepared(s.arguments), s.type == DOUBLE) for s in slots if s.kind == "call"
        )
        self._others = tuple((s.name, s.text, s.of, _OTHERS[s.kind]) for s in slots if s.kind in _OTHERS)

    def bind(
        self, scope: Scope, variables: Variables, bindings: dict[str, Any], used: dict[str, CelValue | str]
    ) -> dict[str, str] | None:
        """Put each slot's value into `bindings` and, as written, into `used`.

        Returns:
            Why there is no value, by the name of each slot without one; None when all have one.
        """
        missing: dict[str, str] | None = None
        for name, text, of in self._metrics:
            try:
                value: Any = scope.metric(of)
                if value - value != 0.0:
                    raise _not_finite(text, value)  # noqa: TRY301 - caught with the scope's own
                bindings[name] = used[text] = value if value.__class__ is float else float(value)
            except Exception as error:
                missing = _noted(missing, name, text, error)
        for name, text, of, double in self._variables:
            try:
                value = scope.variable(of)
                bindings[name] = used[text] = _double(text, value) if double else value
            except Exception as error:
                missing = _noted(missing, name, text, error)
        for name, text, of, arguments, open_, double in self._calls:
            try:
                value = scope.call(of, arguments if open_ is None else _resolved(open_, variables))
                bindings[name] = used[text] = _double(text, value) if double else value
            except Exception as error:
                missing = _noted(missing, name, text, error)
        for name, text, of, double in self._own:
            try:
                value = _value_of(of, variables)
                bindings[name] = used[text] = _double(text, value) if double else value
            except Exception as error:
                missing = _noted(missing, name, text, error)
        for name, text, of, read in self._others:
            try:
                bindings[name] = value = read(of, scope)
                if value.__class__ is bool:
                    used[text] = value
            except Exception as error:
                missing = _noted(missing, name, text, error)
        return missing


def _noted(missing: dict[str, str] | None, name: str, text: str, error: Exception) -> dict[str, str]:
    """The reasons so far, and why there is no value of this slot."""
    if missing is None:
        missing = {}
    if isinstance(error, UnknownValueError):
        missing[name] = error.reason
    else:
        missing[name] = f"{text} can't be read: {type(error).__name__}: {error}"
    return missing


def _not_finite(text: str, value: float) -> UnknownValueError:
    return UnknownValueError(f"{text} is {'NaN' if value != value else 'infinite'}")


def _double(text: str, value: Any) -> float:
    if value - value != 0:
        raise _not_finite(text, value)
    return value if value.__class__ is float else float(value)


def _value_of(name: str, variables: Variables) -> CelValue:
    value = variables.get(name)
    if value is None:
        raise UnknownValueError(f"variables.{name} has no value")
    if isinstance(value, UnknownValueError):
        raise UnknownValueError(f"variables.{name}: {value.reason}")
    return value


def _prepared(arguments: tuple[Argument, ...]) -> tuple[tuple[CelValue, ...], tuple[Argument, ...] | None]:
    """The arguments when all are constants; else also those with names of variables among them."""
    constants = tuple(a for a in arguments if not isinstance(a, tuple))
    return constants, None if len(constants) == len(arguments) else arguments


def _resolved(arguments: tuple[Argument, ...], variables: Variables) -> tuple[CelValue, ...]:
    return tuple(_value_of(a[0], variables) if isinstance(a, tuple) else a for a in arguments)


def _known(of: str, scope: Scope) -> bool:
    return of in scope.metric_names()


def _names(of: str, scope: Scope) -> list[str]:
    return sorted(scope.metric_names())


def _finite(of: str, scope: Scope) -> dict[str, float]:
    values = {}
    for name in scope.metric_names():
        try:
            value = scope.metric(name)
        except UnknownValueError:
            continue
        if value - value == 0:
            values[name] = float(value)
    return values


_OTHERS: dict[str, Callable[[str, Scope], Any]] = {"known": _known, "names": _names, "finite": _finite}
