"""A checked expression on one engine: binds what it reads of a run, evaluates, and says what was used."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from trainwarden.policies.expressions.checking import Checked
from trainwarden.policies.expressions.protocol import CelValue, Limits, Outcome, Scope, UnknownValueError
from trainwarden.policies.expressions.slots import Slot
from trainwarden.policies.expressions.types import to_vocabulary
from trainwarden.policies.vocabulary import Type

__all__ = ["Compiled", "Current", "EvaluationError", "Program"]


class EvaluationError(Exception):
    """The engine gave an error instead of a value; its text says why."""


class Program(Protocol):
    """A checked text made ready by an engine."""

    def __call__(self, bindings: dict[str, Any], /) -> CelValue:
        """Evaluate.

        Raises:
            EvaluationError: There is no value.
        """
        ...


class Current:
    """The scope of the evaluation that is going on, for functions with computed arguments."""

    scope: Scope | None = None

    def call(self, function: str, arguments: tuple[CelValue, ...]) -> CelValue:
        """Call a function of the history for whoever evaluates now."""
        if self.scope is None:
            raise UnknownValueError("no run is being evaluated")
        return self.scope.call(function, arguments)


class Compiled:
    """An `Expression`."""

    __slots__ = ("_checked", "_current", "_limits", "_program", "_slots", "names", "source", "type")

    def __init__(self, checked: Checked, program: Program, current: Current, limits: Limits) -> None:
        self._checked = checked
        self._program = program
        self._current = current
        self._limits = limits
        self._slots = tuple((slot, slot.name, slot.text, _READERS[slot.kind]) for slot in checked.slots)
        self.source = checked.source
        self.names = _names(checked)
        type_ = to_vocabulary(checked.type)
        assert type_ is not None  # noqa: S101 - the checker lets only scalars pass
        self.type: Type = type_

    def evaluate(self, scope: Scope, variables: Mapping[str, CelValue | UnknownValueError]) -> Outcome:
        """Evaluate; what goes wrong is an Outcome that says so."""
        bindings: dict[str, Any] = {}
        used: dict[str, CelValue | str] = {}
        missing = ""
        try:
            for slot, name, text, read in self._slots:
                try:
                    value = read(slot, scope, variables)
                except UnknownValueError as unknown:
                    missing = missing or unknown.reason
                else:
                    bindings[name] = value
                    if slot.kind == "finite":
                        missing = missing or _not_finite(scope)
                    elif slot.kind != "names":
                        used[text] = value
            if self._checked.depth:
                self._bound_iterations(bindings)
            if self._checked.dynamic:
                self._current.scope = scope
            value = self._program(bindings)
        except EvaluationError as error:
            return Outcome(None, missing or str(error) or "no value", used)
        except Exception as error:
            return Outcome(None, missing or f"{type(error).__name__}: {error}", used)
        finally:
            self._current.scope = None
        if isinstance(value, float) and not math.isfinite(value):
            return Outcome(None, f"the result is {'NaN' if math.isnan(value) else 'infinite'}", used)
        return Outcome(value, "", used)

    def _bound_iterations(self, bindings: Mapping[str, Any]) -> None:
        longest = max((len(value) for value in bindings.values() if isinstance(value, list | dict)), default=0)
        if longest**self._checked.depth > self._limits.iterations:
            raise EvaluationError(
                f"a comprehension over {longest} names would take more than {self._limits.iterations} steps"
            )


def _variable(slot: Slot, scope: Scope, variables: Mapping[str, CelValue | UnknownValueError]) -> CelValue:
    return scope.variable(slot.of)


def _own(slot: Slot, scope: Scope, variables: Mapping[str, CelValue | UnknownValueError]) -> CelValue:
    return _value_of(slot.of, variables)


def _metric(slot: Slot, scope: Scope, variables: Mapping[str, CelValue | UnknownValueError]) -> CelValue:
    return scope.metric(slot.of)


def _known(slot: Slot, scope: Scope, variables: Mapping[str, CelValue | UnknownValueError]) -> CelValue:
    return slot.of in scope.metric_names()


def _all_names(slot: Slot, scope: Scope, variables: Mapping[str, CelValue | UnknownValueError]) -> Any:
    return sorted(scope.metric_names())


def _finite(slot: Slot, scope: Scope, variables: Mapping[str, CelValue | UnknownValueError]) -> CelValue:
    values = {}
    for name in scope.metric_names():
        try:
            values[name] = scope.metric(name)
        except UnknownValueError:
            continue
    return values


def _not_finite(scope: Scope) -> str:
    """Why a comprehension over all metrics may have no value."""
    for name in sorted(scope.metric_names()):
        try:
            scope.metric(name)
        except UnknownValueError as unknown:
            return unknown.reason
    return ""


def _call(slot: Slot, scope: Scope, variables: Mapping[str, CelValue | UnknownValueError]) -> CelValue:
    arguments = tuple(_value_of(a[0], variables) if isinstance(a, tuple) else a for a in slot.arguments)
    return scope.call(slot.of, arguments)


_Reader = Callable[[Slot, Scope, Mapping[str, CelValue | UnknownValueError]], Any]
_READERS: dict[str, _Reader] = {
    "variable": _variable,
    "own": _own,
    "metric": _metric,
    "known": _known,
    "names": _all_names,
    "finite": _finite,
    "call": _call,
}


def _value_of(name: str, variables: Mapping[str, CelValue | UnknownValueError]) -> CelValue:
    value = variables.get(name)
    if value is None:
        raise UnknownValueError(f"variables.{name} has no value")
    if isinstance(value, UnknownValueError):
        raise UnknownValueError(f"variables.{name}: {value.reason}")
    return value


def _names(checked: Checked) -> frozenset[str]:
    names = {f"{function}()" for function in checked.dynamic}
    if checked.dynamic:
        names.add("metrics")
    for slot in checked.slots:
        if slot.kind == "variable":
            names.add(slot.of)
        elif slot.kind == "own":
            names.add(f"variables.{slot.of}")
        elif slot.kind in ("metric", "known"):
            names.add(f"metrics.{slot.of}")
        elif slot.kind == "call":
            names.add(f"{slot.of}()")
            for argument in slot.arguments:
                if isinstance(argument, str) and argument not in ("lower", "higher"):
                    names.add(f"metrics.{argument}")
                elif isinstance(argument, tuple):
                    names.add(f"variables.{argument[0]}")
        else:
            names.add("metrics")
    return frozenset(names)
