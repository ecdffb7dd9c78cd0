"""The pure Python engine (cel-python): everywhere, slower, and the second opinion in tests."""

from __future__ import annotations

import operator
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
from trainwarden.policies.expressions.compiled import Compiled, Current, EvaluationError
from trainwarden.policies.expressions.errors import ExpressionError
from trainwarden.policies.expressions.functions import DIVISION, INDEX, LONGEST, OVERFLOW, PLAIN_FUNCTIONS
from trainwarden.policies.expressions.protocol import CelValue, Expression, Limits, UnknownValueError
from trainwarden.policies.vocabulary import FUNCTIONS, Type

__all__ = ["PythonEngine"]


_OPERATORS: dict[str, Callable[..., Any]] = {
    "-_": operator.neg,
    "_+_": operator.add,
    "_-_": operator.sub,
    "_*_": operator.mul,
    "_/_": operator.truediv,
    "_%_": operator.mod,
}
_OF_TEXT: dict[str, Callable[[str, str], bool]] = {
    "contains": lambda text, part: part in text,
    "startsWith": lambda text, part: text.startswith(part),
    "endsWith": lambda text, part: text.endswith(part),
}
_MACROS = ("all", "exists", "exists_one", "filter", "map")


class _OutOfTimeError(Exception):
    """An evaluation has used up its time."""


class _Evaluator(Evaluator):
    """cel-python's, with a clock, and with errors that are values wherever CEL wants them to be."""

    until = 0.0  # on the clock of time.perf_counter

    def sub_evaluator(self, ast: Any) -> Evaluator:
        inner = _Evaluator(ast, activation=self.activation)
        inner.until = self.until
        return inner

    def evaluate(self, context: Any = None) -> Any:
        if time.perf_counter() > self.until:
            raise _OutOfTimeError
        return super().evaluate(context)

    def expr(self, tree: Any) -> Any:
        """`condition ? then : otherwise`; cel-python hides why a condition has no value."""
        if len(tree.children) == 1:
            return super().expr(tree)
        condition = self.visit(tree.children[0])
        if isinstance(condition, CELEvalError):
            return condition
        return self.visit(tree.children[1 if condition else 2])

    def conditionaland(self, tree: Any) -> Any:
        """`left && right`: what is on the right of a false is not looked at, as in the C++ engine."""
        return self._short(tree, super().conditionaland, decides=False)

    def conditionalor(self, tree: Any) -> Any:
        """`left || right`: what is on the right of a true is not looked at."""
        return self._short(tree, super().conditionalor, decides=True)

    def _short(self, tree: Any, whole: Callable[[Any], Any], *, decides: bool) -> Any:
        if len(tree.children) == 1:
            return whole(tree)
        left = self.visit(tree.children[0])
        if not isinstance(left, Exception) and bool(left) is decides:
            return left
        return _joined(left, self.visit(tree.children[1]), decides=decides)

    def member_dot_arg(self, tree: Any) -> Any:
        """A method or a macro; cel-python lets errors escape from some macros, past `false && …`."""
        name = str(tree.children[1])
        if name not in _MACROS:
            return super().member_dot_arg(tree)
        items = self.visit(tree.children[0])
        return items if isinstance(items, CELEvalError) else _comprehend(name, items, self.build_ss_macro_eval(tree))


def _comprehend(name: str, items: Any, body: Callable[[Any], Any]) -> Any:
    """The value of a macro; a body's error is its value unless, for `all` and `exists`, another item decides."""
    failed: CELEvalError | None = None
    kept, count = [], 0
    for item in items:
        value = body(item)
        if isinstance(value, CELEvalError):
            if name not in ("all", "exists"):
                return value
            failed = failed or value
        elif name == "map":
            kept.append(value)
        elif bool(value) is (name != "all"):
            if name in ("all", "exists"):
                return celtypes.BoolType(name == "exists")
            kept.append(item)
            count += 1
    if failed is not None:
        return failed
    if name in ("map", "filter"):
        return celtypes.ListType(kept)
    return celtypes.BoolType(count == 1 if name == "exists_one" else name == "all")


class PythonEngine:
    """A `CelEngine`."""

    name = "python"

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._current = Current()
        self._environment = celpy.Environment()
        self._functions = {name: _adapted(compute) for name, _, _, compute in PLAIN_FUNCTIONS}
        self._functions |= {"_[_]": _entry}
        self._functions |= {name: _past_errors(function) for name, function in _OPERATORS.items()}
        self._functions |= {name: _adapted(function) for name, function in _OF_TEXT.items()}
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
            evaluator = _Evaluator(tree, activation=runner.new_activation())
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


def _past_errors(compute: Callable[..., Any]) -> Callable[..., Any]:
    """An operator whose value is the first error among its operands; cel-python hides why there is none.

    A duration that is too long for the C++ engine is an error here, too.
    """

    def call(*operands: Any) -> Any:
        for operand in operands:
            if isinstance(operand, CELEvalError):
                return operand
        value = compute(*operands)
        if isinstance(value, timedelta) and abs(value) >= LONGEST:
            return CELEvalError(OVERFLOW)
        return value

    return call


def _entry(of: Any, key: Any) -> Any:
    """`of[key]`; unlike Python's, a list has no entries from its end."""
    for side in (of, key):
        if isinstance(side, Exception):
            return side
    if isinstance(of, list) and key < 0:
        raise IndexError(key)
    return of[key]


def _joined(left: Any, right: Any, *, decides: bool) -> Any:
    """Of two sides the one that decides, which also wins over an error; of two errors the first one."""
    for side in (left, right):
        if not isinstance(side, Exception) and bool(side) is decides:
            return side
    return left if isinstance(left, Exception) else right
