"""A checked expression on one engine: binds what it reads of a run, evaluates, and says what was used."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Protocol

from trainwarden.policies.expressions.binding import Binder, Variables
from trainwarden.policies.expressions.checking import Checked
from trainwarden.policies.expressions.functions import LONGEST, OVERFLOW
from trainwarden.policies.expressions.parts import Size
from trainwarden.policies.expressions.protocol import CelValue, Limits, Outcome, Scope, UnknownValueError
from trainwarden.policies.expressions.types import to_vocabulary
from trainwarden.policies.vocabulary import Type

__all__ = ["Compiled", "Current", "EvaluationError", "Program"]

_SLOT = re.compile(r"s\d+_")
_MOST_ANSWERS = 256  # by the names of metrics
_MOST_CALLS_TOLD = 20  # of calls with computed arguments, in what an outcome says it has used


class EvaluationError(Exception):
    """The engine gave an error instead of a value: why, and the key when a map lacks one."""

    def __init__(self, reason: str, key: str | None = None) -> None:
        self.reason = reason
        self.key = key
        super().__init__(reason)


class Program(Protocol):
    """A checked text made ready by an engine."""

    def __call__(self, bindings: dict[str, Any], /) -> CelValue:
        """Evaluate.

        Raises:
            EvaluationError: There is no value.
        """
        ...


class Current:
    """The scope of the evaluation that is going on, for calls with computed arguments."""

    def __init__(self) -> None:
        self.scope: Scope | None = None
        self.told: dict[str, CelValue | str] = {}

    def call(self, function: str, arguments: tuple[CelValue, ...]) -> CelValue:
        """Call a function of the history for whoever evaluates now."""
        if self.scope is None:
            raise UnknownValueError("no run is being evaluated")
        value = self.scope.call(function, arguments)
        if isinstance(value, float) and not math.isfinite(value):
            raise UnknownValueError(f"{function} of {arguments[0]} is not finite")
        if len(self.told) < _MOST_CALLS_TOLD:
            self.told[f"{function}({', '.join(map(_written, arguments))})"] = value
        return value


class Compiled:
    """An `Expression`."""

    __slots__ = (
        "_alone",
        "_answers",
        "_binder",
        "_current",
        "_dynamic",
        "_limits",
        "_loops",
        "_program",
        "_texts",
        "names",
        "source",
        "type",
    )

    def __init__(self, checked: Checked, program: Program, current: Current, limits: Limits) -> None:
        self._binder = Binder(checked.slots)
        self._alone = (
            checked.text if any(checked.text == slot.name for slot in checked.slots) else ""
        )  # needs no engine
        # What asks for nothing but names, as a variable that picks a metric does, changes with them alone.
        by_names = bool(checked.slots) and not checked.dynamic and all(slot.kind == "known" for slot in checked.slots)
        self._answers: dict[frozenset[str], Outcome] | None = {} if by_names else None
        self._program = program
        self._current = current
        self._dynamic = bool(checked.dynamic)
        self._limits = limits
        self._loops, self._texts = checked.loops, checked.texts
        self.source = checked.source
        self.names = _names(checked)
        type_ = to_vocabulary(checked.type)
        assert type_ is not None  # noqa: S101 - the checker lets only scalars pass
        self.type: Type = type_

    def evaluate(self, scope: Scope, variables: Variables) -> Outcome:
        """Evaluate; what goes wrong is an Outcome that says so."""
        if self._answers is None:
            return self._evaluated(scope, variables)
        names = scope.metric_names()
        answer = self._answers.get(names)
        if answer is None:
            if len(self._answers) >= _MOST_ANSWERS:
                self._answers.clear()
            answer = self._answers[names] = self._evaluated(scope, variables)
        return answer

    def _evaluated(self, scope: Scope, variables: Variables) -> Outcome:
        bindings: dict[str, Any] = {}
        used: dict[str, CelValue | str] = {}
        missing: dict[str, str] | None = None
        try:
            missing = self._binder.bind(scope, variables, bindings, used)
            if self._loops:
                self._bound_steps(bindings)
            if self._texts:
                self._bound_texts(bindings)
            if self._alone:
                if missing is not None:
                    return Outcome(None, missing[self._alone], used)
                value = bindings[self._alone]
            elif self._dynamic:
                value = self._with_calls(scope, bindings, used)
            else:
                value = self._program(bindings)
        except EvaluationError as error:
            return Outcome(None, _why(error, missing or {}, scope), used)
        except Exception as error:
            return Outcome(None, f"{type(error).__name__}: {str(error)[:200]}", used)
        if value.__class__ is timedelta and abs(value) >= LONGEST:
            return Outcome(None, OVERFLOW, used)
        if value.__class__ is str and len(value) > self._limits.text:
            reason = f"the result is a text of {len(value)} characters; at most {self._limits.text} are allowed"
            return Outcome(None, reason, used)
        if value.__class__ is float and value - value != 0.0:
            return Outcome(None, f"the result is {'NaN' if value != value else 'infinite'}", used)
        return Outcome(value, "", used)

    def _with_calls(self, scope: Scope, bindings: dict[str, Any], used: dict[str, CelValue | str]) -> CelValue:
        current = self._current
        current.scope, current.told = scope, used
        try:
            return self._program(bindings)
        finally:
            current.scope, current.told = None, {}

    def _bound_steps(self, bindings: Mapping[str, Any]) -> None:
        """Refuse to begin what may take too many steps: the same count on both engines."""
        steps = 0
        for sizes in self._loops:
            steps += _steps(sizes, bindings)
        if steps >= self._limits.iterations:
            reason = f"its comprehensions could take {steps} steps; fewer than {self._limits.iterations} are allowed"
            raise EvaluationError(reason)

    def _bound_texts(self, bindings: Mapping[str, Any]) -> None:
        """Refuse to begin what may make or read too much text: texts that are joined grow beyond any other bound."""
        characters = 0
        for around, (number, slots) in self._texts:
            characters += _steps(around, bindings) * (number + sum(_longest(bindings.get(slot)) for slot in slots))
        if characters > self._limits.texts:
            reason = f"its texts could come to {characters} characters; at most {self._limits.texts} are allowed"
            raise EvaluationError(reason)


def _steps(sizes: tuple[Size, ...], bindings: Mapping[str, Any]) -> int:
    """Most steps of comprehensions inside each other."""
    return math.prod(number + sum(len(bindings.get(slot, ())) for slot in slots) for number, slots in sizes)


def _longest(bound: Any) -> int:
    """Characters of a text, or of the longest one in a list or map."""
    if isinstance(bound, str):
        return len(bound)
    texts = [*bound, *bound.values()] if isinstance(bound, Mapping) else bound or ()
    return max((len(text) for text in texts if isinstance(text, str)), default=0)


def _why(error: EvaluationError, missing: Mapping[str, str], scope: Scope) -> str:
    """What was missing where it mattered, in the words of whoever knows best."""
    if error.key is not None:
        try:
            scope.metric(error.key)
        except UnknownValueError as unknown:
            if error.key in scope.metric_names():
                return unknown.reason
        return f"there is nothing named {error.key!r}"
    slot = _SLOT.search(error.reason)
    return missing.get(slot[0], error.reason) if slot else error.reason or "no value"


def _written(argument: CelValue) -> str:
    """An argument as it could have been written."""
    if isinstance(argument, str):
        return '"' + argument.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(argument, timedelta):
        return f'duration("{argument.total_seconds():g}s")'
    return str(argument)


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
