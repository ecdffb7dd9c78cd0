"""Check the calls of an expression: functions, methods and macros."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

from trainwarden.policies.expressions.errors import nearest
from trainwarden.policies.expressions.parts import Part, a, duration_text, finite, quoted
from trainwarden.policies.expressions.remedies import FOREIGN_FUNCTIONS
from trainwarden.policies.expressions.slots import Argument
from trainwarden.policies.expressions.syntax import Call, Index, Literal, Name, Place, Select, read_duration
from trainwarden.policies.expressions.types import (
    BOOL,
    DOUBLE,
    DURATION,
    INT,
    STRING,
    TIMESTAMP,
    CelType,
    list_of,
    of_vocabulary,
)
from trainwarden.policies.vocabulary import FUNCTIONS, RANGES, Function, Overload

if TYPE_CHECKING:
    from trainwarden.policies.expressions.checking import Checker

__all__ = ["check_call", "dynamic_name"]

MOST_NESTED = 2  # comprehensions: three over 60 items each took the Python engine 91 s

_PATTERN_MEMORY = 1 << 18  # bytes of a compiled pattern; larger ones take long on every text
_MACROS = ("all", "exists", "exists_one", "filter", "map")
_KNOWN_FUNCTIONS = {function.name: function for function in FUNCTIONS}
_TIME_PARTS = {
    TIMESTAMP: (
        "getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getHours",
        "getMinutes", "getSeconds",
    ),
    DURATION: ("getHours", "getMinutes", "getSeconds"),
}  # fmt: skip
_LONGEST = 40  # characters of a number, duration, moment or bool as text
_LENGTH = re.compile(r"(\d+(h|m|s|ms))+\Z|\d+d\Z")
_PLAIN = ("size", "human", "bool", "double", "duration", "int", "string", "timestamp")
_STRING_METHODS = ("contains", "endsWith", "matches", "startsWith")


def check_call(checker: Checker, node: Call) -> Part:
    """Check a call, and all below it."""
    if node.function == "has" and node.target is None:
        return _has(checker, node)
    if node.target is not None:
        if node.function in _MACROS:
            return _macro(checker, node)
        return _method(checker, node)
    if node.function in _KNOWN_FUNCTIONS:
        return _history(checker, node, _KNOWN_FUNCTIONS[node.function])
    if node.function == "size":
        _arity(checker, node, 1)
        return _size(checker, node, checker.names_or(node.arguments[0]))
    if node.function in _PLAIN:
        return _convert(checker, node)
    remedy = FOREIGN_FUNCTIONS.get(node.function, "") or nearest(
        node.function, [*_KNOWN_FUNCTIONS, *_PLAIN, "has"], "docs/expressions.md lists the functions"
    )
    raise checker.syntax.error(node.place, f"unknown function {node.function!r}", remedy)


def _arity(checker: Checker, node: Call, *allowed: int) -> None:
    if len(node.arguments) not in allowed:
        right = " or ".join(str(number) for number in allowed)
        raise checker.syntax.error(
            node.place, f"{node.function} with {len(node.arguments)} arguments", f"it takes {right}"
        )


def _has(checker: Checker, node: Call) -> Part:
    _arity(checker, node, 1)
    argument = node.arguments[0]
    if isinstance(argument, Select):
        if checker.dotted(argument.operand) == "metrics":
            return checker.slot("known", argument.field, BOOL, checker.syntax.text(node.place))
        if checker.dotted(argument.operand) not in checker.roots:
            operand = checker.part(argument.operand)
            if operand.type.name == "map":
                return Part(f"({quoted(argument.field)} in {operand.text})", BOOL)
    raise checker.syntax.error(
        node.place, checker.syntax.text(node.place), "has() asks for a metric or a label, such as has(metrics.loss)"
    )


def _size(checker: Checker, node: Call, part: Part) -> Part:
    if part.type != STRING and part.type.scalar:
        raise checker.syntax.error(node.place, f"the size of {a(part.type)}", "texts, lists and maps have a size")
    return Part(f"size({part.text})", INT)


def _convert(checker: Checker, node: Call) -> Part:
    _arity(checker, node, 1)
    part, name, place = checker.part(node.arguments[0]), node.function, node.place
    kind = part.type
    if name == "human":
        if kind not in (DURATION, DOUBLE, INT):
            raise checker.syntax.error(place, f"human of {a(kind)}", "it puts a duration or a number into few words")
        number = kind.number
        text = f"human_double_({finite(part, DOUBLE)})" if number else f"human_duration_({part.text})"
        return Part(text, STRING, length=(_LONGEST, ()))
    allowed = {
        "string": (BOOL, INT, DOUBLE, STRING, DURATION, TIMESTAMP), "double": (INT, DOUBLE, STRING),
        "int": (INT, DOUBLE, STRING, TIMESTAMP), "bool": (BOOL, STRING), "duration": (DURATION, STRING),
        "timestamp": (TIMESTAMP, STRING),
    }[name]  # fmt: skip
    if kind not in allowed:
        raise checker.syntax.error(place, f"{name} of {a(kind)}", f"it takes {', '.join(map(str, allowed))}")
    result = {"string": STRING, "double": DOUBLE, "int": INT, "bool": BOOL, "duration": DURATION}.get(name, TIMESTAMP)
    if kind == result:
        return part
    if name == "duration" and isinstance(part.constant, str):
        length = read_duration(part.constant)
        if length is None:
            remedy = 'write hours, minutes and seconds, such as "1h30m" (CEL has no days: "48h")'
            raise checker.syntax.error(place, f"the duration {part.constant!r}", remedy)
        return Part(duration_text(length), DURATION, constant=length)
    if name == "string" and kind != INT:
        return Part(f"text_{kind}_({finite(part, kind)})", STRING, length=(_LONGEST, ()))
    if kind == STRING or (name == "int" and kind in (DOUBLE, TIMESTAMP)):
        return Part(f"{name}_of_{kind}_({part.text})", result, computed=result == DOUBLE)
    return Part(f"{name}({part.text})", result, length=(_LONGEST, ()))


def _method(checker: Checker, node: Call) -> Part:
    assert node.target is not None  # noqa: S101 - the caller has looked
    target = checker.names_or(node.target)
    arguments = [checker.part(argument) for argument in node.arguments]
    if node.function == "size":
        _arity(checker, node, 0)
        return _size(checker, node, target)
    if target.type == STRING and node.function in _STRING_METHODS:
        _arity(checker, node, 1)
        if arguments[0].type != STRING:
            raise checker.syntax.error(node.arguments[0].place, f"{a(arguments[0].type)}", "a string is right")
        if node.function == "matches":
            _check_pattern(checker, arguments[0], node.arguments[0].place)
        return Part(f"{target.text}.{node.function}({arguments[0].text})", BOOL)
    parts = _TIME_PARTS.get(target.type, ())
    if node.function in parts:
        _arity(checker, node, *((0, 1) if target.type == TIMESTAMP else (0,)))
        if arguments and arguments[0].type != STRING:
            raise checker.syntax.error(
                node.arguments[0].place, f"{a(arguments[0].type)}", 'a time zone such as "Europe/Berlin" is right'
            )
        zone = arguments[0].text if arguments else '"UTC"'
        more = f", {zone}" if target.type == TIMESTAMP else ""
        return Part(f"{node.function}_{target.type}_({target.text}{more})", INT)
    if target.type == STRING and node.function == "format":
        remedy = "join texts with +, and put a number or duration into few words with human(...)"
        raise checker.syntax.error(node.place, "format, which only one of the engines has", remedy)
    known = [*_STRING_METHODS, "size"] if target.type == STRING else [*parts]
    known += ["size", *_MACROS] if not target.type.scalar else []
    otherwise = f"{a(target.type)} has {', '.join(known)}" if known else f"{a(target.type)} has no methods"
    raise checker.syntax.error(
        node.place, f"unknown method {node.function!r}", nearest(node.function, known, otherwise)
    )


def _check_pattern(checker: Checker, pattern: Part, place: Place) -> None:
    import re2

    quiet = re2.Options()
    quiet.log_errors = False
    quiet.max_mem = _PATTERN_MEMORY
    if not isinstance(pattern.constant, str):
        raise checker.syntax.error(place, "a pattern that is computed", "write the pattern as a text in quotes")
    try:
        re2.compile(pattern.constant, options=quiet)
    except re2.error as error:
        raise checker.syntax.error(
            place, f"the pattern {pattern.constant!r}", f"RE2 says: {_decoded(error)}"
        ) from error


def _macro(checker: Checker, node: Call) -> Part:
    assert node.target is not None  # noqa: S101 - the caller has looked
    target = checker.names_or(node.target)
    _arity(checker, node, 2)
    variable, body = node.arguments
    if not isinstance(variable, Name):
        raise checker.syntax.error(
            variable.place,
            f"{checker.syntax.text(variable.place)} as a variable of {node.function}",
            "a plain name is right",
        )
    if variable.name in checker.locals or variable.name in checker.roots:
        raise checker.syntax.error(variable.place, f"{variable.name!r} again", "choose a name that is not in use")
    item = STRING if target.type.name == "map" else target.type.item
    if item is None:
        raise checker.syntax.error(
            node.target.place,
            f"{node.function} over {a(target.type)}",
            "it goes over a list, a map of labels, or metrics",
        )
    if len(checker.locals) >= MOST_NESTED:
        raise checker.syntax.error(node.place, "three comprehensions inside each other", "two are allowed")
    local = f"l{len(checker.locals)}_"
    checker.locals[variable.name] = Part(local, item, length=target.length)
    checker.around.append(target.size)
    checker.loops.append(tuple(checker.around))
    inner = checker.part(body)
    checker.around.pop()
    del checker.locals[variable.name]
    text = f"{target.text}.{node.function}({local}, {finite(inner, inner.type)})"
    if node.function == "map":
        if not inner.type.scalar:
            raise checker.syntax.error(body.place, f"a list of {inner.type}", "lists have single values")
        return Part(text, list_of(inner.type), size=target.size, length=inner.length)
    if inner.type != BOOL:
        raise checker.syntax.error(body.place, f"{a(inner.type)} in {node.function}", "a bool is right")
    if node.function == "filter":
        return Part(text, list_of(item), size=target.size, length=target.length)
    return Part(text, BOOL)


def _history(checker: Checker, node: Call, function: Function) -> Part:
    """A function of the vocabulary. With arguments known beforehand it is read like a variable."""
    _check_metric_names(checker, node, function)
    arguments = [checker.part(argument) for argument in node.arguments]
    types = tuple(argument.type for argument in arguments)
    overload = next((o for o in function.overloads if tuple(of_vocabulary(t) for _, t in o.parameters) == types), None)
    if overload is None:
        ways = "; ".join(
            f"{function.name}({', '.join(f'{name} {type_}' for name, type_ in o.parameters)})"
            for o in function.overloads
        )
        found = f"{function.name}({', '.join(map(str, types))})"
        for argument, part in zip(node.arguments[1:], arguments[1:], strict=True):
            if isinstance(part.constant, str) and _LENGTH.match(part.constant) and _takes_window(function):
                remedy = f'write a window as duration("{_in_hours(part.constant)}")'
                raise checker.syntax.error(argument.place, f"the text {part.constant!r}", remedy)
        _check_whole_numbers(checker, node, function, types)
        raise checker.syntax.error(node.place, found, f"it is called as {ways}")
    for argument, part, (name, _) in zip(node.arguments, arguments, overload.parameters, strict=True):
        _check_argument(checker, name, part.constant, argument.place)
    result = of_vocabulary(overload.result)
    known = tuple(part.constant for part in arguments if part.constant is not None)
    if len(known) == len(arguments):
        return checker.slot("call", function.name, result, checker.syntax.text(node.place), known)
    checker.dynamic.add(function.name)
    return Part(
        f"{dynamic_name(function.name, overload)}({', '.join(finite(part, part.type) for part in arguments)})", result
    )


def _check_metric_names(checker: Checker, node: Call, function: Function) -> None:
    """A metric is given by its name, in quotes: neither as a plain name nor as its value."""
    for index, argument in enumerate(node.arguments):
        if not any(
            o.parameters[index][0].lower().endswith("metric") for o in function.overloads if index < len(o.parameters)
        ):
            continue
        dotted = checker.dotted(argument) or ""
        name = ""
        if isinstance(argument, Name) and dotted not in {"", "now", "metrics"} | checker.roots:
            name = argument.name
        elif dotted.startswith("metrics."):
            name = dotted.removeprefix("metrics.")
        elif isinstance(argument, Index) and checker.dotted(argument.operand) == "metrics":
            name = str(argument.key.value) if isinstance(argument.key, Literal) else ""
        if name and name not in checker.variables:
            found = f"{checker.syntax.text(argument.place)} where {function.name} takes the name of a metric"
            raise checker.syntax.error(argument.place, found, f'write the name in quotes: "{name}"')


def _check_whole_numbers(checker: Checker, node: Call, function: Function, types: tuple[CelType, ...]) -> None:
    """Say which argument is a whole number where a double is meant: CEL tells 1 from 1.0."""
    for overload in function.overloads:
        wanted = tuple(of_vocabulary(type_) for _, type_ in overload.parameters)
        if len(wanted) != len(types):
            continue
        apart = [index for index, (is_, right) in enumerate(zip(types, wanted, strict=True)) if is_ != right]
        if all(types[index] == INT and wanted[index] == DOUBLE for index in apart):
            argument = node.arguments[apart[0]]
            written = isinstance(argument, Literal)
            remedy = (
                f"write {checker.syntax.text(argument.place)}.0" if written else "write it with a point, such as 0.5"
            )
            found = f"the {overload.parameters[apart[0]][0]} as a whole number"
            raise checker.syntax.error(argument.place, found, remedy)


def _takes_window(function: Function) -> bool:
    return any(name == "window" for overload in function.overloads for name, _ in overload.parameters)


def _in_hours(text: str) -> str:
    """A length of time for duration(...), which has no days."""
    return f"{int(text[:-1]) * 24}h" if text.endswith("d") else text


def _check_argument(checker: Checker, name: str, value: Argument | None, place: Place) -> None:
    if name == "direction" and isinstance(value, str) and value not in ("lower", "higher"):
        raise checker.syntax.error(place, f"the direction {value!r}", '"lower" or "higher" is better')
    if name == "window" and isinstance(value, timedelta) and value <= timedelta(0):
        raise checker.syntax.error(
            place, "a window that is not longer than nothing", 'write one such as duration("2h")'
        )
    if name == "steps" and isinstance(value, int) and value < 1:
        raise checker.syntax.error(place, f"a window of {value} steps", "at least 1 is right")
    if name in RANGES and isinstance(value, int | float) and value not in RANGES[name]:
        raise checker.syntax.error(place, f"the {name} {value}", str(RANGES[name]))


def dynamic_name(function: str, overload: Overload) -> str:
    """Name in the checked text of an overload that is called with computed arguments."""
    return "_".join([function, *(str(of_vocabulary(type_)) for _, type_ in overload.parameters), ""])


def _decoded(error: Exception) -> str:
    reason = error.args[0] if error.args else "it is not valid"
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
