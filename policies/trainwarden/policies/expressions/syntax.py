"""From the text of an expression to a small syntax tree with places. The grammar is cel-python's, for both engines."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from trainwarden.policies.expressions.errors import ExpressionError
from trainwarden.policies.expressions.protocol import Limits
from trainwarden.policies.expressions.remedies import misplaced

if TYPE_CHECKING:
    from lark import Token, Tree

__all__ = [
    "Binary",
    "Call",
    "Index",
    "Listing",
    "Literal",
    "Logic",
    "Name",
    "Node",
    "Place",
    "Select",
    "Syntax",
    "Ternary",
    "Unary",
]


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands in an expression: line and column from 1, offsets from 0."""

    line: int
    column: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Literal:
    """A bool, number or text as written."""

    value: bool | int | float | str
    place: Place


@dataclass(frozen=True, slots=True)
class Name:
    """A plain name."""

    name: str
    place: Place


@dataclass(frozen=True, slots=True)
class Select:
    """A field, after a dot."""

    operand: Node
    field: str
    place: Place


@dataclass(frozen=True, slots=True)
class Index:
    """An entry, in brackets."""

    operand: Node
    key: Node
    place: Place


@dataclass(frozen=True, slots=True)
class Call:
    """A function, method (with a target) or macro."""

    function: str
    arguments: tuple[Node, ...]
    target: Node | None
    place: Place


@dataclass(frozen=True, slots=True)
class Listing:
    """A list in brackets."""

    items: tuple[Node, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Unary:
    """`!` or `-` before something."""

    operator: str  # "!" or "-"
    operand: Node
    place: Place


@dataclass(frozen=True, slots=True)
class Binary:
    """An operator between two things."""

    operator: str
    left: Node
    right: Node
    place: Place


@dataclass(frozen=True, slots=True)
class Ternary:
    """`condition ? then : otherwise`."""

    condition: Node
    then: Node
    otherwise: Node
    place: Place


@dataclass(frozen=True, slots=True)
class Logic:
    """A chain of && or of ||, flat."""

    operator: str
    items: tuple[Node, ...]
    place: Place


Node = Literal | Name | Select | Index | Call | Listing | Unary | Binary | Logic | Ternary

_OPERATORS = {
    "relation_lt": "<", "relation_le": "<=", "relation_gt": ">", "relation_ge": ">=", "relation_eq": "==",
    "relation_ne": "!=", "relation_in": "in", "addition_add": "+", "addition_sub": "-", "multiplication_mul": "*",
    "multiplication_div": "/", "multiplication_mod": "%",
}  # fmt: skip
_LOGIC = {"conditionalor": "||", "conditionaland": "&&"}
_LEVELS = ("relation", "addition", "multiplication")
_WRAPPERS = ("expr", *_LOGIC, *_LEVELS, "unary")
_LEAVES = re.compile(
    r"""[rRbB]?(?:"{3}.*?"{3}|'{3}.*?'{3}|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|//[^\n]*|[()\[\]{}]""", re.DOTALL
)


class Syntax:
    """Reads one expression.

    Raises:
        ExpressionError: It is empty, too long, too deeply nested, not CEL, or uses a part of CEL that is left out here.
    """

    def __init__(self, source: str, *, field: str, limits: Limits) -> None:
        self.source = source
        self.field = field
        self.limits = limits

    def read(self) -> Node:
        """The tree of the whole expression."""
        whole = Place(1, 1, 0, len(self.source))
        if len(self.source) > self.limits.length:
            raise self.error(whole, f"{len(self.source)} characters", f"at most {self.limits.length} may be used")
        if not self.source.strip():
            raise self.error(whole, "an empty expression", "write one, such as metrics.loss > 2")
        self._check_brackets()
        return self._node(_parse(self), 0)

    def error(self, place: Place, found: str, remedy: str) -> ExpressionError:
        """An error at a place of this expression."""
        return ExpressionError(self.field, place.line, place.column, found, remedy)

    def text(self, place: Place) -> str:
        """What is written at a place."""
        return self.source[place.start : place.end]

    def _check_brackets(self) -> None:
        """Deep brackets are refused before the parser recurses into them."""
        depth = 0
        for found in _LEAVES.finditer(self.source):
            if found[0] in "([{":
                depth += 1
                if depth > self.limits.nesting:
                    line = self.source.count("\n", 0, found.start()) + 1
                    column = found.start() - self.source.rfind("\n", 0, found.start())
                    place = Place(line, column, found.start(), found.end())
                    raise self.too_deep(place)
            elif found[0] in ")]}":
                depth -= 1

    def too_deep(self, place: Place) -> ExpressionError:
        """What is said of an expression that nests too deeply."""
        return self.error(place, "brackets and calls nested too deeply", "split the expression with spec.variables")

    def _place(self, tree: Tree[Token] | Token) -> Place:
        at: Any = tree if not hasattr(tree, "meta") else tree.meta
        if getattr(at, "line", None) is None:  # the parser leaves some rules without a place
            at = next((each for each in _tokens(tree) if each.line is not None), None)
            return Place(at.line, at.column, at.start_pos, at.end_pos) if at else Place(1, 1, 0, len(self.source))
        return Place(at.line, at.column, at.start_pos, at.end_pos)

    def _node(self, tree: Tree[Token], depth: int) -> Node:
        """The node of a rule, at a depth of the syntax tree."""
        tree = _strip(tree)
        rule, parts, place = str(tree.data), tree.children, self._place(tree)
        if depth > self.limits.nesting:
            raise self.too_deep(place)
        if rule == "expr":
            condition, then, otherwise = (self._node(part, depth + 1) for part in parts)
            return Ternary(condition, then, otherwise, place)
        if rule in _LOGIC:
            return Logic(_LOGIC[rule], tuple(self._node(part, depth + 1) for part in _spine(tree, rule)), place)
        if rule in _LEVELS:
            operation, right = parts
            left = operation.children[0]
            return Binary(
                _OPERATORS[str(operation.data)],
                self._node(left, depth + 1),
                self._node(right, depth + 1),
                place,
            )
        if rule == "unary":
            sign = "!" if parts[0].data == "unary_not" else "-"
            return Unary(sign, self._node(parts[1], depth + 1), place)
        return self._member(tree, depth, place)

    def _member(self, tree: Tree[Token], depth: int, place: Place) -> Node:
        """A member or primary; a chain of dots and brackets is followed down its left side."""
        suffixes: list[Tree[Token]] = []
        while True:
            if tree.data in ("member_dot", "member_dot_arg", "member_index"):
                suffixes.append(tree)
                tree = tree.children[0]
            elif tree.data in ("member", "primary"):
                tree = tree.children[0]
            else:
                break
        if len(suffixes) > self.limits.nesting:
            raise self.too_deep(place)
        node = self._primary(tree, depth)
        for suffix in reversed(suffixes):
            at = self._place(suffix)
            rest = suffix.children[1:]
            if suffix.data == "member_dot":
                node = Select(node, str(rest[0]), at)
            elif suffix.data == "member_index":
                node = Index(node, self._node(rest[0], depth + 1), at)
            else:
                arguments = self._list(rest[1], depth) if len(rest) > 1 else ()
                node = Call(str(rest[0]), arguments, node, at)
        return node

    def _primary(self, tree: Tree[Token], depth: int) -> Node:
        rule, parts, place = str(tree.data), tree.children, self._place(tree)
        if rule == "literal":
            return self._literal(parts[0], place)
        if rule == "ident":
            return Name(str(parts[0]), place)
        if rule == "ident_arg":
            return Call(str(parts[0]), self._list(parts[1], depth) if len(parts) > 1 else (), None, place)
        if rule == "paren_expr":
            return self._node(parts[0], depth + 1)
        if rule == "list_lit":
            return Listing(self._list(parts[0], depth) if parts else (), place)
        found = {"map_lit": "a map in braces", "member_object": "a message in braces"}.get(rule, "a leading dot")
        raise self.error(place, found, "it is not part of the language of policies")

    def _list(self, tree: Any, depth: int) -> tuple[Node, ...]:
        return tuple(self._node(part, depth + 1) for part in tree.children)

    def _literal(self, token: Token, place: Place) -> Literal:
        kind, text = token.type, str(token)
        if kind == "BOOL_LIT":
            return Literal(text == "true", place)
        if kind == "INT_LIT":
            number = int(text, 16 if "x" in text.lower() else 10)
            if not -(2**63) <= number < 2**63:
                raise self.error(place, f"the number {text}", "an int has 64 bits; write a double such as 1e20")
            return Literal(number, place)
        if kind == "FLOAT_LIT":
            value = float(text)
            if value in (float("inf"), float("-inf")):
                raise self.error(place, f"the number {text}", "at most 1.797e308 can be written")
            return Literal(value, place)
        if kind in ("STRING_LIT", "MLSTRING_LIT"):
            return Literal(self._unquote(text, place), place)
        what = {"NULL_LIT": "null", "UINT_LIT": f"the unsigned number {text}", "BYTES_LIT": "bytes"}.get(kind, text)
        raise self.error(place, what, "bool, int, double, string, duration and timestamp are the types of policies")

    def _unquote(self, text: str, place: Place) -> str:
        try:
            value = ast.literal_eval(text.replace("\\`", "`").replace("\\?", "?"))
        except (ValueError, SyntaxError) as error:
            raise self.error(place, f"the text {text}", "its escapes are not valid") from error
        if not isinstance(value, str) or "\x00" in value:
            raise self.error(place, f"the text {text}", "bytes and NUL are not part of the language of policies")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise self.error(place, f"the text {text}", "half a surrogate pair is not a character") from error
        return value


def _tokens(tree: Any) -> Iterator[Any]:
    """The tokens below a rule, in order."""
    left = [tree]
    while left:
        one = left.pop()
        if hasattr(one, "children"):
            left += reversed(one.children)
        else:
            yield one


def _strip(tree: Any) -> Any:
    """Past the rules that add nothing."""
    while len(tree.children) == 1 and tree.data in _WRAPPERS:
        tree = tree.children[0]
    return tree


def _spine(tree: Any, rule: str) -> list[Any]:
    """The items of a chain of one operator, in order; down its left side without recursion."""
    items = []
    while tree.data == rule and len(tree.children) == 2:
        tree, right = tree.children
        items.append(right)
    return [tree, *reversed(items)]


def _parse(syntax: Syntax) -> Tree[Token]:
    from celpy.celparser import CELParseError
    from lark.exceptions import LarkError

    try:
        return _parser().parse(syntax.source)
    except CELParseError as error:
        line, column = error.line or 1, error.column or 1
        if line < 1 or column < 1:  # the end of the text
            line = syntax.source.count("\n") + 1
            column = len(syntax.source) - (syntax.source.rfind("\n") + 1) + 1
        lines = syntax.source.split("\n")
        ended = any("$END" in str(argument) for argument in error.args)
        if line == len(lines) and _UNFINISHED.match(lines[-1], column - 1):
            ended, column = True, len(lines[-1].rstrip()) + 1
        rest = lines[line - 1][column - 1 :][:20] if line <= len(lines) and not ended else ""
        found = f"{rest!r} where it can't stand" if rest else "an end where more is needed"
        hint = "brackets, quotes and operators must be complete"
        if line <= len(lines):
            hint = misplaced(lines[line - 1], column) or hint
        raise syntax.error(Place(line, column, 0, 0), found, hint) from error
    except (LarkError, RecursionError) as error:
        raise syntax.error(Place(1, 1, 0, 0), "text that is not CEL", str(error)[:80]) from error


@cache
def _parser() -> Any:
    from celpy.celparser import CELParser

    return CELParser()


_UNFINISHED = re.compile(r"(?:&&|\|\||[<>=!]=?|[-+*/%?:,(\[.]|in)\s*\Z")
_UNITS = {"h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000, "us": 1, "ns": 0.001}
_DURATION = re.compile(r"([+-]?)((?:\d+(?:\.\d*)?|\.\d+)(?:ms|us|ns|h|m|s))+\Z")
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ms|us|ns|h|m|s)")


def read_duration(text: str) -> timedelta | None:
    """A duration as CEL writes it, such as `1h30m`; None when it is not one. Finer than a microsecond is rounded."""
    if not _DURATION.match(text):
        return None
    micros = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    if micros >= 2**63 // 1000:  # int64 nanoseconds, some 292 years, as in Kubernetes
        return None
    try:
        return timedelta(microseconds=-micros if text.startswith("-") else micros)
    except OverflowError:
        return None
