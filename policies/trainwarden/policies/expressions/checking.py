"""Check an expression against the vocabulary, and put it into plain CEL that both engines evaluate alike.

The checker is shared, so both engines accept the same language with the same messages. In the checked text every
thing that is read of a run is a name of its own (a `Slot`); a name without a value is left unbound, which CEL's own
logic turns into unknown exactly where it matters. Ints beside doubles are converted, and a double that was computed is
compared only when it is finite: NaN and infinity become unknown, never false.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from trainwarden.policies.expressions.errors import ExpressionError, nearest
from trainwarden.policies.expressions.protocol import Limits
from trainwarden.policies.expressions.slots import Argument, Slot
from trainwarden.policies.expressions.syntax import (
    Binary,
    Call,
    Index,
    Listing,
    Literal,
    Logic,
    Name,
    Node,
    Place,
    Select,
    Syntax,
    Ternary,
    Unary,
    read_duration,
)
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
from trainwarden.policies.vocabulary import FUNCTIONS, VARIABLES, Function, Overload, Type

__all__ = ["Checked", "Checker", "check", "dynamic_name"]

_MACROS = ("all", "exists", "exists_one", "filter", "map")
_COMPARISONS = ("<", "<=", ">", ">=")
_KNOWN_VARIABLES = {variable.name: variable for variable in VARIABLES}
_ROOTS = {name.split(".")[0] for name in _KNOWN_VARIABLES} | {"variables"}
_KNOWN_FUNCTIONS = {function.name: function for function in FUNCTIONS}
_TIME_PARTS = {
    TIMESTAMP: (
        "getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getHours",
        "getMinutes", "getSeconds",
    ),
    DURATION: ("getHours", "getMinutes", "getSeconds"),
}  # fmt: skip
_TIME_SUMS = (
    ("+", (TIMESTAMP, DURATION)),
    ("-", (TIMESTAMP, DURATION)),
    ("+", (DURATION, TIMESTAMP)),
)
_CONVERSIONS = ("bool", "double", "duration", "int", "string", "timestamp")
_PLAIN = ("size", "human", *_CONVERSIONS)
_STRING_METHODS = ("contains", "endsWith", "matches", "startsWith")


@dataclass(frozen=True, slots=True)
class Checked:
    """An expression that can be evaluated."""

    source: str
    text: str  # plain CEL over slots
    type: CelType
    slots: tuple[Slot, ...]
    dynamic: frozenset[str]  # functions of the history that are called with arguments computed in the expression
    depth: int  # of comprehensions


@dataclass(frozen=True, slots=True)
class _Part:
    """A checked part of an expression."""

    text: str
    type: CelType
    computed: bool = False  # a double from arithmetic, so it may be NaN or infinite
    constant: Argument | None = None  # its value, when it is known before evaluation


def check(
    source: str, *, field: str, result: Type | None, variables: Mapping[str, Type], limits: Limits | None = None
) -> Checked:
    """Check one expression.

    Raises:
        ExpressionError: It can't be used.
    """
    syntax = Syntax(source, field=field, limits=limits or Limits())
    checker = Checker(syntax, {name: of_vocabulary(type_) for name, type_ in variables.items()})
    tree = syntax.read()
    part = checker.part(tree)
    if result is not None and part.type != of_vocabulary(result):
        remedy = f"a {result} is right here"
        if result is Type.BOOL:
            remedy += ": compare it with something"
        elif result is Type.STRING:
            remedy += ": put it into string(...)" if part.type.scalar else ""
        raise syntax.error(tree.place, _a(part.type), remedy)
    if not part.type.scalar:
        raise syntax.error(tree.place, _a(part.type), "an expression gives a single value")
    return Checked(
        source, part.text, part.type, tuple(checker.slots.values()), frozenset(checker.dynamic), checker.depth
    )


class Checker:
    """Walks one syntax tree."""

    def __init__(self, syntax: Syntax, variables: Mapping[str, CelType]) -> None:
        self.syntax = syntax
        self.variables = variables
        self.slots: dict[tuple[object, ...], Slot] = {}
        self.dynamic: set[str] = set()
        self.depth = 0
        self._locals: dict[str, tuple[str, CelType]] = {}

    def part(self, node: Node) -> _Part:
        """Check a node, and all below it."""
        match node:
            case Literal():
                return _literal(node.value)
            case Name():
                return self._name(node)
            case Select():
                return self._select(node)
            case Index():
                return self._index(node)
            case Listing():
                return self._listing(node)
            case Unary():
                return self._unary(node)
            case Logic():
                return self._logic(node)
            case Ternary():
                return self._ternary(node)
            case Binary():
                return self._binary(node)
            case Call():
                return self._call(node)

    # ------------------------------------------------------------------ names

    def _slot(self, kind: str, of: str, type_: CelType, text: str, arguments: tuple[Argument, ...] = ()) -> _Part:
        key = (kind, of, *arguments)
        if key not in self.slots:
            self.slots[key] = Slot(f"s{len(self.slots)}_", kind, of, type_, text, arguments)
        constant: Argument | None = (of,) if kind == "own" else None
        return _Part(self.slots[key].name, type_, constant=constant)

    def _dotted(self, node: Node) -> str | None:
        """`job.gpus` for a chain of plain names that no comprehension has bound; else None."""
        names: list[str] = []
        while isinstance(node, Select):
            names.append(node.field)
            node = node.operand
        if not isinstance(node, Name) or node.name in self._locals:
            return None
        return ".".join([node.name, *reversed(names)])

    def _name(self, node: Name) -> _Part:
        if node.name in self._locals:
            text, type_ = self._locals[node.name]
            return _Part(text, type_)
        if node.name == "now":
            return self._slot("variable", "now", TIMESTAMP, "now")
        if node.name == "metrics":
            raise self.syntax.error(
                node.place, "metrics as a value", 'read one, such as metrics.loss or metrics["eval/loss"]'
            )
        if node.name in _ROOTS:
            raise self.syntax.error(node.place, f"{node.name} as a value", self._fields_remedy(node.name))
        remedy = nearest(
            node.name, [*_ROOTS, *self._locals], "names are job, progress, checkpoint, budget, metrics, now"
        )
        if node.name in self.variables:
            remedy = f"write variables.{node.name}"
        raise self.syntax.error(node.place, f"unknown name {node.name!r}", remedy)

    def _fields_remedy(self, root: str) -> str:
        if root == "variables":
            known = sorted(self.variables)
        else:
            known = [name.split(".", 1)[1] for name in _KNOWN_VARIABLES if name.startswith(f"{root}.")]
        return f"read one of {', '.join(f'{root}.{name}' for name in known)}" if known else "none is declared before it"

    def _select(self, node: Select) -> _Part:
        dotted = self._dotted(node)
        if dotted is None or dotted.count(".") != 1:
            operand = self.part(node.operand)
            return self._entry(operand, _literal(node.field), node.place, node.operand)
        root, name = dotted.split(".")
        if root == "metrics":
            return self._slot("metric", name, DOUBLE, self.syntax.text(node.place))
        if root == "variables":
            if name not in self.variables:
                remedy = nearest(name, self.variables, self._fields_remedy("variables"))
                raise self.syntax.error(node.place, f"unknown variable {dotted!r}", remedy)
            return self._slot("own", name, self.variables[name], dotted)
        if dotted in _KNOWN_VARIABLES:
            return self._slot("variable", dotted, of_vocabulary(_KNOWN_VARIABLES[dotted].type), dotted)
        if root in _ROOTS - {"now"}:
            known = [each.split(".", 1)[1] for each in _KNOWN_VARIABLES if each.startswith(f"{root}.")]
            close = nearest(name, known, self._fields_remedy(root)).replace("did you mean ", f"did you mean {root}.")
            raise self.syntax.error(node.place, f"unknown name {dotted!r}", close)
        return self._name(Name(root, node.place))

    def _entry(self, operand: _Part, key: _Part, place: Place, of: Node) -> _Part:
        """An entry of a map or list."""
        if operand.type.name == "map" and operand.type.item is not None:
            if key.type != STRING:
                raise self.syntax.error(place, f"a key of type {key.type}", "a string is right")
            return _Part(f"{operand.text}[{key.text}]", operand.type.item)
        if operand.type.name == "list" and operand.type.item is not None:
            if key.type != INT:
                raise self.syntax.error(place, f"an index of type {key.type}", "an int from 0 is right")
            return _Part(f"{operand.text}[{key.text}]", operand.type.item)
        raise self.syntax.error(
            place, f"a field of {self.syntax.text(of.place)}, {_a(operand.type)}", "only maps have fields"
        )

    def _index(self, node: Index) -> _Part:
        if self._dotted(node.operand) == "metrics":
            key = self.part(node.key)
            if isinstance(key.constant, str):
                return self._slot("metric", key.constant, DOUBLE, self.syntax.text(node.place))
            if key.type != STRING:
                raise self.syntax.error(node.key.place, f"a metric's name of type {key.type}", "a string is right")
            values = self._slot("finite", "", CelType("map", DOUBLE), "metrics")
            return _Part(f"{values.text}[{key.text}]", DOUBLE)
        return self._entry(self.part(node.operand), self.part(node.key), node.place, node.operand)

    def _names_or(self, node: Node) -> _Part:
        """A node; `metrics` counts as the list of its names."""
        if self._dotted(node) == "metrics":
            return self._slot("names", "", list_of(STRING), "metrics")
        return self.part(node)

    # ------------------------------------------------------------------ operators

    def _listing(self, node: Listing) -> _Part:
        parts = [self.part(item) for item in node.items]
        if not parts:
            raise self.syntax.error(node.place, "an empty list", "lists need at least one value")
        kind = (
            DOUBLE
            if any(part.type == DOUBLE for part in parts) and all(part.type.number for part in parts)
            else parts[0].type
        )
        for item, part in zip(node.items, parts, strict=True):
            if (part.type != kind and not (kind == DOUBLE and part.type == INT)) or not part.type.scalar:
                raise self.syntax.error(
                    item.place, f"{_a(part.type)} in a list of {kind}", "a list has values of one type"
                )
        return _Part(f"[{', '.join(_as(part, kind) for part in parts)}]", list_of(kind))

    def _unary(self, node: Unary) -> _Part:
        part = self.part(node.operand)
        if node.operator == "!":
            if part.type != BOOL:
                raise self.syntax.error(node.operand.place, f"! before {_a(part.type)}", "! turns a bool round")
            return _Part(f"!({part.text})", BOOL)
        if not part.type.number:
            raise self.syntax.error(
                node.operand.place, f"- before {_a(part.type)}", "only an int or a double has a negative"
            )
        value = part.constant
        negative = -value if isinstance(value, int | float) and not isinstance(value, bool) else None
        return _Part(f"(-({part.text}))", part.type, part.computed, negative)

    def _logic(self, node: Logic) -> _Part:
        parts = [self.part(item) for item in node.items]
        for item, part in zip(node.items, parts, strict=True):
            if part.type != BOOL:
                what = self.syntax.text(item.place)
                raise self.syntax.error(
                    item.place, f"{what} is {_a(part.type)}", f"{node.operator} joins bools: compare it with something"
                )
        return _Part(f"({f' {node.operator} '.join(part.text for part in parts)})", BOOL)

    def _ternary(self, node: Ternary) -> _Part:
        condition, then, otherwise = self.part(node.condition), self.part(node.then), self.part(node.otherwise)
        if condition.type != BOOL:
            raise self.syntax.error(node.condition.place, f"{_a(condition.type)} before ?", "a bool is right")
        kind = then.type
        if then.type != otherwise.type:
            if not (then.type.number and otherwise.type.number):
                raise self.syntax.error(
                    node.place, f"{_a(then.type)} or {_a(otherwise.type)}", "both sides of : must have one type"
                )
            kind = DOUBLE
        text = f"({condition.text} ? {_as(then, kind)} : {_as(otherwise, kind)})"
        return _Part(text, kind, then.computed or otherwise.computed)

    def _binary(self, node: Binary) -> _Part:
        if node.operator == "in":
            return self._in(node)
        left, right = self.part(node.left), self.part(node.right)
        if node.operator in ("==", "!="):
            if left.type.number and right.type.number:
                return self._compared(node.operator, left, right)
            if left.type != right.type:
                raise self._clash(node, left, right)
            return _Part(f"({left.text} {node.operator} {right.text})", BOOL)
        if node.operator in _COMPARISONS:
            if left.type.number and right.type.number:
                return self._compared(node.operator, left, right)
            if left.type != right.type or not left.type.scalar:
                raise self._clash(node, left, right)
            return _Part(f"({left.text} {node.operator} {right.text})", BOOL)
        return self._arithmetic(node, left, right)

    def _compared(self, operator: str, left: _Part, right: _Part) -> _Part:
        kind = DOUBLE if DOUBLE in (left.type, right.type) else INT
        return _Part(f"({_finite(left, kind)} {operator} {_finite(right, kind)})", BOOL)

    def _arithmetic(self, node: Binary, left: _Part, right: _Part) -> _Part:
        operator, pair = node.operator, (left.type, right.type)
        result: CelType | None = None
        if pair in ((INT, INT), (DOUBLE, DOUBLE)):
            result = None if operator == "%" and pair[0] == DOUBLE else left.type
        elif operator == "+" and (pair == (STRING, STRING) or (pair[0] == pair[1] and not pair[0].scalar)):
            result = left.type
        elif operator in ("+", "-") and pair == (DURATION, DURATION):
            result = DURATION
        elif (operator in ("+", "-") and pair == (TIMESTAMP, DURATION)) or (
            operator == "+" and pair == (DURATION, TIMESTAMP)
        ):
            result = TIMESTAMP
        elif operator == "-" and pair == (TIMESTAMP, TIMESTAMP):
            result = DURATION
        if result is None:
            raise self._clash(node, left, right)
        return _Part(f"({left.text} {operator} {right.text})", result, computed=result == DOUBLE)

    def _in(self, node: Binary) -> _Part:
        if self._dotted(node.right) == "metrics":
            left = self.part(node.left)
            if left.type != STRING:
                raise self.syntax.error(node.left.place, f"{_a(left.type)} in metrics", "a metric's name is a string")
            if isinstance(left.constant, str):
                return self._slot("known", left.constant, BOOL, self.syntax.text(node.place))
            return _Part(f"({left.text} in {self._names_or(node.right).text})", BOOL)
        left, right = self.part(node.left), self.part(node.right)
        item = STRING if right.type.name == "map" else right.type.item
        if item is None or not (left.type == item or (item == DOUBLE and left.type == INT)):
            raise self._clash(node, left, right)
        return _Part(f"({_as(left, item)} in {right.text})", BOOL)

    def _clash(self, node: Binary, left: _Part, right: _Part) -> ExpressionError:
        kinds = {left.type, right.type}
        remedy = "both sides must have one type"
        if node.operator == "in":
            remedy = "the right side of in is a list, a map of labels, or metrics"
        elif kinds == {INT, DOUBLE}:
            remedy = "write double(...) around the int"
        elif STRING in kinds and any(kind.number for kind in kinds):
            remedy = (
                "write the number without quotes" if node.operator != "+" else "write string(...) around the number"
            )
        elif DURATION in kinds and any(kind.number or kind == STRING for kind in kinds):
            remedy = 'write a duration as duration("10m")'
        elif TIMESTAMP in kinds and STRING in kinds:
            remedy = 'write a moment as timestamp("2026-01-31T12:00:00Z")'
        elif STRING in kinds and node.operator == "+":
            remedy = "write string(...) around what is not text"
        return self.syntax.error(node.place, f"{left.type} {node.operator} {right.type}", remedy)

    # ------------------------------------------------------------------ calls

    def _call(self, node: Call) -> _Part:
        if node.function == "has" and node.target is None:
            return self._has(node)
        if node.target is not None:
            if node.function in _MACROS:
                return self._macro(node)
            return self._method(node)
        if node.function in _KNOWN_FUNCTIONS:
            return self._history(node, _KNOWN_FUNCTIONS[node.function])
        if node.function == "size":
            self._arity(node, 1)
            return self._size(node, self._names_or(node.arguments[0]))
        if node.function in _PLAIN:
            return self._convert(node)
        remedy = nearest(node.function, [*_KNOWN_FUNCTIONS, *_PLAIN, "has"], "docs/expressions.md lists the functions")
        raise self.syntax.error(node.place, f"unknown function {node.function!r}", remedy)

    def _arity(self, node: Call, *allowed: int) -> None:
        if len(node.arguments) not in allowed:
            right = " or ".join(str(number) for number in allowed)
            raise self.syntax.error(
                node.place, f"{node.function} with {len(node.arguments)} arguments", f"it takes {right}"
            )

    def _has(self, node: Call) -> _Part:
        self._arity(node, 1)
        argument = node.arguments[0]
        if isinstance(argument, Select):
            if self._dotted(argument.operand) == "metrics":
                return self._slot("known", argument.field, BOOL, self.syntax.text(node.place))
            operand = self.part(argument.operand)
            if operand.type.name == "map":
                return _Part(f"({json.dumps(argument.field)} in {operand.text})", BOOL)
        raise self.syntax.error(
            node.place, self.syntax.text(node.place), "has() asks for a metric or a label, such as has(metrics.loss)"
        )

    def _size(self, node: Call, part: _Part) -> _Part:
        if part.type != STRING and part.type.scalar:
            raise self.syntax.error(node.place, f"the size of {_a(part.type)}", "texts, lists and maps have a size")
        return _Part(f"size({part.text})", INT)

    def _convert(self, node: Call) -> _Part:
        self._arity(node, 1)
        part, name, place = self.part(node.arguments[0]), node.function, node.place
        kind = part.type
        if name == "human":
            if kind not in (DURATION, DOUBLE, INT):
                raise self.syntax.error(place, f"human of {_a(kind)}", "it puts a duration or a number into few words")
            number = kind.number
            return _Part(
                f"human_double_({_finite(part, DOUBLE)})" if number else f"human_duration_({part.text})", STRING
            )
        allowed = {
            "string": (BOOL, INT, DOUBLE, STRING, DURATION, TIMESTAMP), "double": (INT, DOUBLE, STRING),
            "int": (INT, DOUBLE, STRING, TIMESTAMP), "bool": (BOOL, STRING), "duration": (DURATION, STRING),
            "timestamp": (TIMESTAMP, STRING),
        }[name]  # fmt: skip
        if kind not in allowed:
            raise self.syntax.error(place, f"{name} of {_a(kind)}", f"it takes {', '.join(map(str, allowed))}")
        result = {"string": STRING, "double": DOUBLE, "int": INT, "bool": BOOL, "duration": DURATION}.get(
            name, TIMESTAMP
        )
        if kind == result:
            return part
        if name == "duration" and isinstance(part.constant, str):
            length = read_duration(part.constant)
            if length is None:
                remedy = 'write hours, minutes and seconds, such as "1h30m" (CEL has no days: "48h")'
                raise self.syntax.error(place, f"the duration {part.constant!r}", remedy)
            return _Part(_duration_text(length), DURATION, constant=length)
        if name == "string" and kind != INT:
            return _Part(f"text_{kind}_({_finite(part, kind)})", STRING)
        if kind == STRING or (name == "int" and kind in (DOUBLE, TIMESTAMP)):
            return _Part(f"{name}_of_{kind}_({part.text})", result, computed=result == DOUBLE)
        return _Part(f"{name}({part.text})", result)

    def _method(self, node: Call) -> _Part:
        assert node.target is not None  # noqa: S101 - the caller has looked
        target = self._names_or(node.target)
        arguments = [self.part(argument) for argument in node.arguments]
        if node.function == "size":
            self._arity(node, 0)
            return self._size(node, target)
        if target.type == STRING and node.function in _STRING_METHODS:
            self._arity(node, 1)
            if arguments[0].type != STRING:
                raise self.syntax.error(node.arguments[0].place, f"{_a(arguments[0].type)}", "a string is right")
            if node.function == "matches":
                self._check_pattern(arguments[0], node.arguments[0].place)
            return _Part(f"{target.text}.{node.function}({arguments[0].text})", BOOL)
        parts = _TIME_PARTS.get(target.type, ())
        if node.function in parts:
            self._arity(node, *((0, 1) if target.type == TIMESTAMP else (0,)))
            if arguments and arguments[0].type != STRING:
                raise self.syntax.error(
                    node.arguments[0].place, f"{_a(arguments[0].type)}", 'a time zone such as "Europe/Berlin" is right'
                )
            zone = arguments[0].text if arguments else '"UTC"'
            more = f", {zone}" if target.type == TIMESTAMP else ""
            return _Part(f"{node.function}_{target.type}_({target.text}{more})", INT)
        known = [*_STRING_METHODS, "size"] if target.type == STRING else [*parts]
        known += ["size", *_MACROS] if not target.type.scalar else []
        otherwise = f"{_a(target.type)} has {', '.join(known)}" if known else f"{_a(target.type)} has no methods"
        raise self.syntax.error(
            node.place, f"unknown method {node.function!r}", nearest(node.function, known, otherwise)
        )

    def _check_pattern(self, pattern: _Part, place: Place) -> None:
        import re2

        quiet = re2.Options()
        quiet.log_errors = False
        if not isinstance(pattern.constant, str):
            raise self.syntax.error(place, "a pattern that is computed", "write the pattern as a text in quotes")
        try:
            re2.compile(pattern.constant, options=quiet)
        except re2.error as error:
            raise self.syntax.error(
                place, f"the pattern {pattern.constant!r}", f"RE2 says: {_decoded(error)}"
            ) from error

    def _macro(self, node: Call) -> _Part:
        assert node.target is not None  # noqa: S101 - the caller has looked
        target = self._names_or(node.target)
        self._arity(node, 2)
        variable, body = node.arguments
        if not isinstance(variable, Name):
            raise self.syntax.error(
                variable.place,
                f"{self.syntax.text(variable.place)} as a variable of {node.function}",
                "a plain name is right",
            )
        if variable.name in self._locals or variable.name in _ROOTS:
            raise self.syntax.error(variable.place, f"{variable.name!r} again", "choose a name that is not in use")
        item = STRING if target.type.name == "map" else target.type.item
        if item is None:
            raise self.syntax.error(
                node.target.place,
                f"{node.function} over {_a(target.type)}",
                "it goes over a list, a map of labels, or metrics",
            )
        if len(self._locals) >= 2:
            raise self.syntax.error(node.place, "three comprehensions inside each other", "two are allowed")
        local = f"l{len(self._locals)}_"
        self._locals[variable.name] = (local, item)
        self.depth = max(self.depth, len(self._locals))
        inner = self.part(body)
        del self._locals[variable.name]
        text = f"{target.text}.{node.function}({local}, {inner.text})"
        if node.function == "map":
            if not inner.type.scalar:
                raise self.syntax.error(body.place, f"a list of {inner.type}", "lists have single values")
            return _Part(text, list_of(inner.type))
        if inner.type != BOOL:
            raise self.syntax.error(body.place, f"{_a(inner.type)} in {node.function}", "a bool is right")
        return _Part(text, list_of(item) if node.function == "filter" else BOOL)

    def _history(self, node: Call, function: Function) -> _Part:
        """A function of the vocabulary. With arguments known beforehand it is read like a variable."""
        arguments = [self.part(argument) for argument in node.arguments]
        types = tuple(argument.type for argument in arguments)
        overload = next(
            (o for o in function.overloads if tuple(of_vocabulary(t) for _, t in o.parameters) == types), None
        )
        if overload is None:
            ways = "; ".join(
                f"{function.name}({', '.join(f'{name} {type_}' for name, type_ in o.parameters)})"
                for o in function.overloads
            )
            found = f"{function.name}({', '.join(map(str, types))})"
            raise self.syntax.error(node.place, found, f"it is called as {ways}")
        for argument, part, (name, _) in zip(node.arguments, arguments, overload.parameters, strict=True):
            self._check_argument(name, part.constant, argument.place)
        result = of_vocabulary(overload.result)
        known = tuple(part.constant for part in arguments if part.constant is not None)
        if len(known) == len(arguments):
            return self._slot("call", function.name, result, self.syntax.text(node.place), known)
        self.dynamic.add(function.name)
        return _Part(f"{dynamic_name(function.name, overload)}({', '.join(part.text for part in arguments)})", result)

    def _check_argument(self, name: str, value: Argument | None, place: Place) -> None:
        if name == "direction" and isinstance(value, str) and value not in ("lower", "higher"):
            raise self.syntax.error(place, f"the direction {value!r}", '"lower" or "higher" is better')
        if name == "window" and isinstance(value, timedelta) and value <= timedelta(0):
            raise self.syntax.error(
                place, "a window that is not longer than nothing", 'write one such as duration("2h")'
            )
        if name == "steps" and isinstance(value, int) and value < 1:
            raise self.syntax.error(place, f"a window of {value} steps", "at least 1 is right")
        if name == "q" and isinstance(value, int | float) and not 0 <= value <= 1:
            raise self.syntax.error(place, f"the quantile {value}", "0 to 1 is right")


def dynamic_name(function: str, overload: Overload) -> str:
    """Name in the checked text of an overload that is called with computed arguments."""
    return "_".join([function, *(str(of_vocabulary(type_)) for _, type_ in overload.parameters), ""])


def _a(type_: CelType) -> str:
    return f"an {type_}" if type_ == INT else f"a {type_}"


def _decoded(error: Exception) -> str:
    reason = error.args[0] if error.args else "it is not valid"
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


def _literal(value: bool | int | float | str) -> _Part:
    if isinstance(value, bool):
        return _Part("true" if value else "false", BOOL, constant=value)
    if isinstance(value, int):
        return _Part(str(value) if value >= 0 else f"({value})", INT, constant=value)
    if isinstance(value, float):
        return _Part(f"({value!r})", DOUBLE, constant=value)
    return _Part(_quoted(value), STRING, constant=value)


def _quoted(text: str) -> str:
    """A string literal that both engines read alike: all but plain ASCII is escaped."""
    characters = []
    for character in text:
        code = ord(character)
        if character in '"\\':
            characters.append("\\" + character)
        elif 32 <= code < 127:
            characters.append(character)
        else:
            characters.append(f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
    return f'"{"".join(characters)}"'


def _duration_text(length: timedelta) -> str:
    micros = length // timedelta(microseconds=1)
    return f'duration("{micros // 1_000_000}s")' if micros % 1_000_000 == 0 else f'duration("{micros}us")'


def _as(part: _Part, kind: CelType) -> str:
    """The part, an int put into a double where one is called for."""
    if kind == DOUBLE and part.type == INT:
        value = part.constant
        return f"({float(value)!r})" if isinstance(value, int) else f"double({part.text})"
    return part.text


def _finite(part: _Part, kind: CelType) -> str:
    """The part; a double that was computed passes through a function that fails when it is not finite."""
    text = _as(part, kind)
    return f"finite_({text})" if part.computed else text
