"""Google's C++ engine (cel-expr-python): fast, typed, with an iteration budget of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from cel_expr_python import cel

from trainwarden.policies.expressions.calls import dynamic_name
from trainwarden.policies.expressions.checking import Checked, check
from trainwarden.policies.expressions.compiled import Compiled, Current, EvaluationError
from trainwarden.policies.expressions.errors import ExpressionError
from trainwarden.policies.expressions.functions import DIVISION, INDEX, OVERFLOW, PLAIN_FUNCTIONS
from trainwarden.policies.expressions.protocol import CelValue, Expression, Limits
from trainwarden.policies.expressions.types import CelType, of_vocabulary
from trainwarden.policies.vocabulary import FUNCTIONS, Type

__all__ = ["CppEngine"]

_TYPES = {
    "bool": cel.Type.BOOL, "int": cel.Type.INT, "double": cel.Type.DOUBLE, "string": cel.Type.STRING,
    "duration": cel.Type.DURATION, "timestamp": cel.Type.TIMESTAMP,
}  # fmt: skip
_CALL = re.compile(r"\w+_(?=\()")
_STATUS = re.compile(r"^[A-Z_]+: ")
_KEY = re.compile(r"""Key not found in map : (["'])(.*)\1""", re.DOTALL)
_REASONS = {
    "Iteration budget": "its comprehensions take too many steps",
    "divide by zero": DIVISION,
    "modulus by zero": DIVISION,
    "Index error": INDEX,
    "overflow": OVERFLOW,
    "allowed timestamp": OVERFLOW,
}


def _type(type_: CelType) -> Any:
    if type_.item is None:
        return _TYPES[type_.name]
    item = _type(type_.item)
    return cel.Type.List(item) if type_.name == "list" else cel.Type.Map(cel.Type.STRING, item)


class CppEngine:
    """A `CelEngine`."""

    name = "cpp"

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._current = Current()
        self._functions = {**_plain_functions(), **self._history_functions()}

    def compile(self, source: str, *, field: str, result: Type | None, variables: Mapping[str, Type]) -> Expression:
        """Check and compile; see the protocol."""
        checked = check(source, field=field, result=result, variables=variables, limits=self._limits)
        return Compiled(checked, self._program(checked, field), self._current, self._limits)

    def _program(self, checked: Checked, field: str) -> Callable[[dict[str, Any]], CelValue]:
        environment = cel.NewEnv(
            variables={slot.name: _type(slot.type) for slot in checked.slots},
            functions=[self._functions[name] for name in set(_CALL.findall(checked.text)) & self._functions.keys()],
        )
        try:
            evaluate = environment.compile(checked.text).eval
        except RuntimeError as error:
            found = str(error).partition("\n")[0]
            raise ExpressionError(field, 1, 1, f"what the C++ engine can't take ({found})", "simplify it") from error
        error_type = cel.Type.ERROR

        def run(bindings: dict[str, Any]) -> CelValue:
            try:
                value = evaluate(None, bindings)
            except RuntimeError as error:
                raise _failure(str(error)) from error
            plain: CelValue = value.plain_value()
            if plain.__class__ is str and value.type() == error_type:  # an error's plain value is its text
                raise _failure(str(plain))
            return plain

        return run

    def _history_functions(self) -> dict[str, Any]:
        declared = {}
        for function in FUNCTIONS:
            for overload in function.overloads:
                name = dynamic_name(function.name, overload)
                parameters = [_type(of_vocabulary(type_)) for _, type_ in overload.parameters]
                implementation = self._caller(function.name)
                result = _type(of_vocabulary(overload.result))
                way = cel.Overload(f"{name}o", result, parameters, impl=implementation)
                declared[name] = cel.FunctionDecl(name, [way])
        return declared

    def _caller(self, function: str) -> Callable[..., CelValue]:
        return lambda *arguments: self._current.call(function, arguments)


def _plain_functions() -> dict[str, Any]:
    declared = {}
    for name, parameters, result, compute in PLAIN_FUNCTIONS:
        way = cel.Overload(f"{name}o", _type(result), [_type(p) for p in parameters], impl=compute)
        declared[name] = cel.FunctionDecl(name, [way])
    return declared


def _failure(text: str) -> EvaluationError:
    """What the engine says, in plain words; `UNKNOWN: No value with name "s0_" found` stays, as it names a slot."""
    text = _STATUS.sub("", text.partition("\n")[0])
    key = _KEY.search(text)
    if key:
        return EvaluationError("a map lacks a key", key[2])
    for sign, reason in _REASONS.items():
        if sign in text:
            return EvaluationError(reason)
    return EvaluationError(text)
