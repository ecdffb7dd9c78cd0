"""Check an expression against the vocabulary, and put it into plain CEL that both engines evaluate alike.

The checker is shared, so both engines accept the same language with the same messages. In the checked text every
thing that is read of a run is a name of its own (a `Slot`); a name without a value is left unbound, which CEL's own
logic turns into unknown exactly where it matters. Ints beside doubles are converted, and a double that was computed is
compared only when it is finite: NaN and infinity become unknown, never false.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainwarden.policies.expressions.calls import check_call
from trainwarden.policies.expressions.errors import ExpressionError, nearest
from trainwarden.policies.expressions.parts import (
    Part,
    Size,
    a,
    as_type,
    depth_of,
    finite,
    length_of,
    literal,
    size_of,
)
from trainwarden.policies.expressions.protocol import Limits
from trainwarden.policies.expressions.remedies import FOREIGN_NAMES
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
from trainwarden.policies.vocabulary import VARIABLES, Type

__all__ = ["Checked", "Checker", "check"]

MOST_DEPTH = 28  # the C++ engine stops at 32, and the Python one takes some 20 frames of the stack for each
_COMPARISONS = ("<", "<=", ">", ">=")
_KNOWN_VARIABLES = {variable.name: variable for variable in VARIABLES}
_ROOTS = {name.split(".")[0] for name in _KNOWN_VARIABLES} | {"variables"}


@dataclass(frozen=True, slots=True)
class Checked:
    """An expression that can be evaluated."""

    source: str
    text: str  # plain CEL over slots
    type: CelType
    slots: tuple[Slot, ...]
    dynamic: frozenset[str]  # functions of the history that are called with arguments computed in the expression
    loops: tuple[tuple[Size, ...], ...]  # of each comprehension, the sizes whose product is its most steps
    texts: tuple[tuple[tuple[Size, ...], Size], ...]  # the same, and most characters that are made or read at each step


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
    if depth_of(part.text) > MOST_DEPTH:
        raise syntax.too_deep(tree.place)
    if result is not None and part.type != of_vocabulary(result):
        remedy = f"a {result} is right here"
        if result is Type.BOOL:
            remedy += ": compare it with something"
        elif result is Type.STRING:
            remedy += ": put it into string(...)" if part.type.scalar else ""
        raise syntax.error(tree.place, a(part.type), remedy)
    if not part.type.scalar:
        raise syntax.error(tree.place, a(part.type), "an expression gives a single value")
    return Checked(
        source,
        part.text,
        part.type,
        tuple(checker.slots.values()),
        frozenset(checker.dynamic),
        tuple(checker.loops),
        tuple(checker.texts.items()),
    )


class Checker:
    """Walks one syntax tree."""

    def __init__(self, syntax: Syntax, variables: Mapping[str, CelType]) -> None:
        self.syntax = syntax
        self.variables = variables
        self.slots: dict[tuple[object, ...], Slot] = {}
        self.dynamic: set[str] = set()
        self.loops: list[tuple[Size, ...]] = []
        self.around: list[Size] = []  # of the comprehensions around the node that is being checked
        self.texts: dict[tuple[Size, ...], Size] = {}  # by the comprehensions around them
        self.locals: dict[str, Part] = {}
        self.roots = frozenset(_ROOTS)

    def part(self, node: Node) -> Part:
        """Check a node, and all below it."""
        part = self._part(node)
        if part.type == STRING and (self.around or isinstance(node, Binary)):
            number, slots = self.texts.get(around := tuple(self.around), (0, ()))
            self.texts[around] = (number + part.length[0], slots + part.length[1])
        return part

    def _part(self, node: Node) -> Part:
        match node:
            case Literal():
                return literal(node.value)
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
                return check_call(self, node)

    def slot(self, kind: str, of: str, type_: CelType, text: str, arguments: tuple[Argument, ...] = ()) -> Part:
        """Something that is read of a run; the same slot for the same thing."""
        key = (kind, of, *arguments)
        if key not in self.slots:
            self.slots[key] = Slot(f"s{len(self.slots)}_", kind, of, type_, text, arguments)
        constant: Argument | None = (of,) if kind == "own" else None
        name = self.slots[key].name
        size = (0, () if type_.scalar else (name,))
        return Part(name, type_, constant=constant, size=size, length=(0, (name,)) if type_ == STRING else size)

    def dotted(self, node: Node) -> str | None:
        """`job.gpus` for a chain of plain names that no comprehension has bound; else None."""
        names: list[str] = []
        while isinstance(node, Select):
            names.append(node.field)
            node = node.operand
        if not isinstance(node, Name) or node.name in self.locals:
            return None
        return ".".join([node.name, *reversed(names)])

    def _name(self, node: Name) -> Part:
        if node.name in self.locals:
            return self.locals[node.name]
        if node.name == "now":
            return self.slot("variable", "now", TIMESTAMP, "now")
        if node.name == "metrics":
            raise self.syntax.error(
                node.place, "metrics as a value", 'read one, such as metrics.loss or metrics["eval/loss"]'
            )
        if node.name in _ROOTS:
            raise self.syntax.error(node.place, f"{node.name} as a value", self._fields_remedy(node.name))
        if node.name in self.variables:
            remedy = f"write variables.{node.name}"
        elif node.name in FOREIGN_NAMES:
            remedy = FOREIGN_NAMES[node.name]
        else:
            otherwise = f"a metric of that name is read as metrics.{node.name}"
            remedy = nearest(node.name, [*_ROOTS, *self.locals], otherwise)
        raise self.syntax.error(node.place, f"unknown name {node.name!r}", remedy)

    def _fields_remedy(self, root: str) -> str:
        if root == "variables":
            known = sorted(self.variables)
        else:
            known = [name.split(".", 1)[1] for name in _KNOWN_VARIABLES if name.startswith(f"{root}.")]
        return f"read one of {', '.join(f'{root}.{name}' for name in known)}" if known else "none is declared before it"

    def _select(self, node: Select) -> Part:
        dotted = self.dotted(node)
        if dotted is None or dotted.count(".") != 1:
            operand = self.part(node.operand)
            return self._entry(operand, literal(node.field), node.place, node.operand)
        root, name = dotted.split(".")
        if root == "metrics":
            return self.slot("metric", name, DOUBLE, self.syntax.text(node.place))
        if root == "variables":
            if name not in self.variables:
                remedy = nearest(name, self.variables, self._fields_remedy("variables"), before="variables.")
                raise self.syntax.error(node.place, f"unknown variable {dotted!r}", remedy)
            return self.slot("own", name, self.variables[name], dotted)
        if dotted in _KNOWN_VARIABLES:
            return self.slot("variable", dotted, of_vocabulary(_KNOWN_VARIABLES[dotted].type), dotted)
        if root in _ROOTS - {"now"}:
            known = [each.split(".", 1)[1] for each in _KNOWN_VARIABLES if each.startswith(f"{root}.")]
            remedy = nearest(name, known, self._fields_remedy(root), before=f"{root}.")
            raise self.syntax.error(node.place, f"unknown name {dotted!r}", remedy)
        if root == "now":
            raise self.syntax.error(node.place, f"a field of now, {a(TIMESTAMP)}", "only maps have fields")
        return self._name(Name(root, node.place))

    def _entry(self, operand: Part, key: Part, place: Place, of: Node) -> Part:
        """An entry of a map or list."""
        if operand.type.name == "map" and operand.type.item is not None:
            if key.type != STRING:
                raise self.syntax.error(place, f"a key of type {key.type}", "a string is right")
            return Part(f"{operand.text}[{key.text}]", operand.type.item, length=operand.length)
        if operand.type.name == "list" and operand.type.item is not None:
            if key.type != INT:
                raise self.syntax.error(place, f"an index of type {key.type}", "an int from 0 is right")
            return Part(f"{operand.text}[{key.text}]", operand.type.item, length=operand.length)
        written, remedy = self.syntax.text(of.place), "only maps have fields"
        if written.startswith("metrics.") and isinstance(key.constant, str):
            remedy = f'write metrics["{written.removeprefix("metrics.")}.{key.constant}"] for a metric of that name'
        raise self.syntax.error(place, f"a field of {written}, {a(operand.type)}", remedy)

    def _index(self, node: Index) -> Part:
        if self.dotted(node.operand) == "metrics":
            key = self.part(node.key)
            if isinstance(key.constant, str):
                return self.slot("metric", key.constant, DOUBLE, self.syntax.text(node.place))
            if key.type != STRING:
                raise self.syntax.error(node.key.place, f"a metric's name of type {key.type}", "a string is right")
            values = self.slot("finite", "", CelType("map", DOUBLE), "metrics")
            return Part(f"{values.text}[{key.text}]", DOUBLE)
        return self._entry(self.part(node.operand), self.part(node.key), node.place, node.operand)

    def names_or(self, node: Node) -> Part:
        """A node; `metrics` counts as the list of its names."""
        if self.dotted(node) == "metrics":
            return self.slot("names", "", list_of(STRING), "metrics")
        return self.part(node)

    def _listing(self, node: Listing) -> Part:
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
                    item.place, f"{a(part.type)} in a list of {kind}", "a list has values of one type"
                )
        items = ", ".join(finite(part, kind) for part in parts)
        return Part(f"[{items}]", list_of(kind), size=(len(parts), ()), length=length_of(*parts))

    def _unary(self, node: Unary) -> Part:
        part = self.part(node.operand)
        if node.operator == "!":
            if part.type != BOOL:
                raise self.syntax.error(node.operand.place, f"! before {a(part.type)}", "! turns a bool round")
            return Part(f"!({part.text})", BOOL)
        if not part.type.number:
            raise self.syntax.error(
                node.operand.place, f"- before {a(part.type)}", "only an int or a double has a negative"
            )
        value = part.constant
        negative = -value if isinstance(value, int | float) and not isinstance(value, bool) else None
        return Part(f"-({part.text})", part.type, part.computed, negative)

    def _logic(self, node: Logic) -> Part:
        parts = [self.part(item) for item in node.items]
        for item, part in zip(node.items, parts, strict=True):
            if part.type != BOOL:
                what = self.syntax.text(item.place)
                raise self.syntax.error(
                    item.place, f"{what} is {a(part.type)}", f"{node.operator} joins bools: compare it with something"
                )
        return Part(f"({f' {node.operator} '.join(part.text for part in parts)})", BOOL)

    def _ternary(self, node: Ternary) -> Part:
        condition, then, otherwise = self.part(node.condition), self.part(node.then), self.part(node.otherwise)
        if condition.type != BOOL:
            raise self.syntax.error(node.condition.place, f"{a(condition.type)} before ?", "a bool is right")
        kind = then.type
        if then.type != otherwise.type:
            if not (then.type.number and otherwise.type.number):
                raise self.syntax.error(
                    node.place, f"{a(then.type)} or {a(otherwise.type)}", "both sides of : must have one type"
                )
            kind = DOUBLE
        text = f"({condition.text} ? {as_type(then, kind)} : {as_type(otherwise, kind)})"
        computed = then.computed or otherwise.computed
        return Part(text, kind, computed, size=size_of(then, otherwise), length=length_of(then, otherwise))

    def _binary(self, node: Binary) -> Part:
        if node.operator == "in":
            return self._in(node)
        left, right = self.part(node.left), self.part(node.right)
        if node.operator in ("==", "!="):
            if left.type.number and right.type.number:
                return self._compared(node.operator, left, right)
            if left.type != right.type:
                raise self._clash(node, left, right)
            return Part(f"({left.text} {node.operator} {right.text})", BOOL)
        if node.operator in _COMPARISONS:
            if left.type.number and right.type.number:
                return self._compared(node.operator, left, right)
            if left.type != right.type or not left.type.scalar:
                raise self._clash(node, left, right)
            return Part(f"({left.text} {node.operator} {right.text})", BOOL)
        return self._arithmetic(node, left, right)

    def _compared(self, operator: str, left: Part, right: Part) -> Part:
        kind = DOUBLE if DOUBLE in (left.type, right.type) else INT
        return Part(f"({finite(left, kind)} {operator} {finite(right, kind)})", BOOL)

    def _arithmetic(self, node: Binary, left: Part, right: Part) -> Part:
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
        # An infinite divisor would give a finite number again, so it is looked at before.
        divisor = finite(right, right.type) if operator == "/" else right.text
        text = f"({left.text} {operator} {divisor})"
        size, length = size_of(left, right), length_of(left, right)
        return Part(text, result, computed=result == DOUBLE, size=size, length=length)

    def _in(self, node: Binary) -> Part:
        if self.dotted(node.right) == "metrics":
            left = self.part(node.left)
            if left.type != STRING:
                raise self.syntax.error(node.left.place, f"{a(left.type)} in metrics", "a metric's name is a string")
            if isinstance(left.constant, str):
                return self.slot("known", left.constant, BOOL, self.syntax.text(node.place))
            return Part(f"({left.text} in {self.names_or(node.right).text})", BOOL)
        left, right = self.part(node.left), self.part(node.right)
        item = STRING if right.type.name == "map" else right.type.item
        if item is None or not (left.type == item or (item == DOUBLE and left.type == INT)):
            raise self._clash(node, left, right)
        return Part(f"({finite(left, item)} in {right.text})", BOOL)

    def _clash(self, node: Binary, left: Part, right: Part) -> ExpressionError:
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
