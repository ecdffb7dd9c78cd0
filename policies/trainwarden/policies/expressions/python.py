"""The pure Python engine (cel-python): everywhere, slower, and the second opinion in tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

import celpy
from celpy import celtypes
from celpy.celparser import CELParseError
from celpy.evaluation import CELEvalError, Evaluator

from trainwarden.policies.expressions.calls import dynamic_name
from trainwarden.policies.expressions.checking import Checked, check
from trainwarden.policies.expressions.compiled import DIVISION, INDEX, OVERFLOW, Compiled, Current, EvaluationError
from trainwarden.policies.expressions.errors import ExpressionError
from trainwarden.policies.expressions.functions import PLAIN_FUNCTIONS
from trainwarden.policies.expressions.protocol import CelValue, Expression, Limits, UnknownValueError
from trainwarden.policies.vocabulary import FUNCTIONS, Type

__all__ = ["PythonEngine"]


class _OutOfTimeError(Exception):
    """An evaluation has used up its time."""


class _BoundedEvaluator(Evaluator):
    """Looks at the time before each part of a comprehension."""

    until = 0.0  # on the clock of time.perf_counter

    def sub_evaluator(self, ast: Any) -> Evaluator:
        inner = _BoundedEvaluator(ast, activation=self.activation)
        inner.until = self.until
        return inner

    def evaluate(self, context: Any = None) -> Any:
        if time.perf_counter() > self.until:
            raise _OutOfTimeError
        return super().evaluate(context)


class PythonEngine:
    """A `CelEngine`."""

    name = "python"

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._current = Current()
        self._environment = celpy.Environment()
        self._functions = {name: _adapted(compute) for name, _, _, compute in PLAIN_FUNCTIONS}
        self._functions |= {"_&&_": _both, "_||_": _either}
        for function in FUNCTIONS:
            for overload in function.overloads:
                self._functions[dynamic_name(function.name, overload)] = _adapted(self._caller(function.name))

    def compile(self, source: str, *, field: str, result: Type | None, variables: Mapping[str, Type]) -> Expression:
        """Check and compile; see the protocol."""
        checked = check(source, field=field, result=result, variables=variables, limits=self._limits)
        return Compiled(checked, self._program(checked, field), self._current, self._limits)

    def _caller(self, function: str) -> Callable[..., CelValue]:
        return lambda *arguments: self._current.call(function, arguments)

    def _program(self, checked: Checked, field: str) -> Callable[[dict[str, Any]], CelValue]:
        try:
            tree = self._environment.compile(checked.text)
        except CELParseError as error:
            raise ExpressionError(field, 1, 1, "what the Python engine can't take", "simplify it") from error
        runner = self._environment.program(tree, self._functions)
        seconds = self._limits.seconds * 10  # this engine takes some hundred times longer for the same rule

        def run(bindings: dict[str, Any]) -> CelValue:
            evaluator = _BoundedEvaluator(tree, activation=runner.new_activation())
            evaluator.until = time.perf_counter() + seconds
            try:
                value = evaluator.evaluate({name: _wrapped(value) for name, value in bindings.items()})
            except _OutOfTimeError as error:
                raise EvaluationError(f"the evaluation took longer than {seconds:g} s") from error
            except CELEvalError as error:
                raise _failure(error) from error
            plain: CelValue = _plain(value)
            return plain

        return run


def _adapted(compute: Callable[..., Any]) -> Callable[..., Any]:
    """A plain function for cel-python: unwraps, computes, wraps; what fails is an error value."""

    def call(*arguments: Any) -> Any:
        for argument in arguments:
            if isinstance(argument, CELEvalError):
                return argument
        try:
            return _wrapped(compute(*map(_plain, arguments)))
        except UnknownValueError as unknown:
            return CELEvalError(unknown.reason)
        except (ValueError, OverflowError) as error:
            return CELEvalError(str(error))

    return call


def _wrapped(value: Any) -> Any:
    match value:
        case bool():
            return celtypes.BoolType(value)
        case int():
            return celtypes.IntType(value)
        case float():
            return celtypes.DoubleType(value)
        case str():
            return celtypes.StringType(value)
        case datetime():
            return celtypes.TimestampType(value)
        case timedelta():
            return celtypes.DurationType(value)
        case list():
            return celtypes.ListType([_wrapped(item) for item in value])
        case _:
            return celtypes.MapType({celtypes.StringType(key): _wrapped(item) for key, item in value.items()})


def _plain(value: Any) -> Any:
    match value:
        case celtypes.BoolType() | bool():
            return bool(value)
        case celtypes.IntType():
            return int(value)
        case celtypes.DoubleType():
            return float(value)
        case celtypes.StringType():
            return str(value)
        case datetime():
            return datetime.fromisoformat(value.isoformat())
        case timedelta():
            return timedelta(days=value.days, seconds=value.seconds, microseconds=value.microseconds)
        case CELEvalError():
            raise _failure(value)
        case _:
            return value


def _failure(error: BaseException) -> EvaluationError:
    """What the engine says, in plain words."""
    text, kind, details = (*error.args, "", None, ())[:3] if error.args else (type(error).__name__, None, ())
    if kind is KeyError and text == "no such key":
        return EvaluationError("a map lacks a key", str(details[0]))
    if kind is ZeroDivisionError:
        return EvaluationError(DIVISION)
    if kind is IndexError:
        return EvaluationError(INDEX)
    if "overflow" in str(text):
        return EvaluationError(OVERFLOW)
    return EvaluationError(str(text).partition("\n")[0][:200])


def _both(left: Any, right: Any) -> Any:
    """`left && right`: false wins over an error, and of two errors the first one."""
    return _joined(left, right, decides=False)


def _either(left: Any, right: Any) -> Any:
    """`left || right`: true wins over an error, and of two errors the first one."""
    return _joined(left, right, decides=True)


def _joined(left: Any, right: Any, *, decides: bool) -> Any:
    for side in (left, right):
        if not isinstance(side, Exception) and bool(side) is decides:
            return side
    return left if isinstance(left, Exception) else right
