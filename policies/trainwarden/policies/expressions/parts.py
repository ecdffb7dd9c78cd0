"""The parts of a checked expression: their plain CEL, type, and what is known of them before evaluation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

from trainwarden.policies.expressions.slots import Argument
from trainwarden.policies.expressions.types import BOOL, DOUBLE, INT, STRING, CelType

__all__ = ["Part", "Size", "a", "as_type", "depth_of", "duration_text", "finite", "length_of", "literal", "size_of"]

Size = tuple[int, tuple[str, ...]]
"""Most items of a list or map, or most characters: a number, plus the lengths of what is bound to some slots."""


@dataclass(frozen=True, slots=True)
class Part:
    """A checked part of an expression."""

    text: str
    type: CelType
    computed: bool = False  # a double from arithmetic, so it may be NaN or infinite
    constant: Argument | None = None  # its value, when it is known before evaluation
    size: Size = (0, ())  # of a list or map
    length: Size = (0, ())  # characters of a text, or of the longest text in a list or map


def size_of(*parts: Part) -> Size:
    """Most items of the parts together."""
    return sum(part.size[0] for part in parts), tuple(slot for part in parts for slot in part.size[1])


def length_of(*parts: Part) -> Size:
    """Most characters of the parts together."""
    return sum(part.length[0] for part in parts), tuple(slot for part in parts for slot in part.length[1])


def a(type_: CelType) -> str:
    """The type with its article."""
    return f"an {type_}" if type_ == INT else f"a {type_}"


def literal(value: bool | int | float | str) -> Part:
    """A constant."""
    if isinstance(value, bool):
        return Part("true" if value else "false", BOOL, constant=value)
    if isinstance(value, int):
        return Part(str(value) if value >= 0 else f"({value})", INT, constant=value)
    if isinstance(value, float):
        return Part(f"({value!r})", DOUBLE, constant=value)
    return Part(quoted(value), STRING, constant=value, length=(len(value), ()))


def quoted(text: str) -> str:
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


def duration_text(length: timedelta) -> str:
    """A duration's literal that both engines read alike."""
    micros = length // timedelta(microseconds=1)
    return f'duration("{micros // 1_000_000}s")' if micros % 1_000_000 == 0 else f'duration("{micros}us")'


def as_type(part: Part, kind: CelType) -> str:
    """The part, an int put into a double where one is called for."""
    if kind == DOUBLE and part.type == INT:
        value = part.constant
        return f"({float(value)!r})" if isinstance(value, int) else f"double({part.text})"
    return part.text


def finite(part: Part, kind: CelType) -> str:
    """The part; a double that was computed passes through a function that fails when it is not finite."""
    text = as_type(part, kind)
    return f"finite_({text})" if part.computed else text


_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|[A-Za-z_]\w*|[\d.]+(?:e[+-]?\d+)?|[()\[\]?.]|[^\s\w]')
_MACROS = ("all", "exists", "exists_one", "filter", "map")
_OF_MACRO = 3  # what a comprehension turns into inside the engine


def depth_of(text: str) -> int:
    """How deep an engine must go into a checked text: brackets, calls, and what stands before a dot or an index."""
    deepest, starts, before, last, word = [0], [0], [0], 0, ""
    for token in _TOKEN.findall(text):
        if token in ("(", "["):
            starts.append(1 + (_OF_MACRO if word in _MACROS else 0))
            before.append(last)
            deepest.append(0)
            last = 0
        elif token in (")", "]"):
            last = starts.pop() + max(deepest.pop(), before.pop())
            deepest[-1] = max(deepest[-1], last)
        elif token == "?":  # noqa: S105 - no password
            starts[-1] += 1
        elif token != "." and not (word == "." and token[0].isalpha()):  # noqa: S105
            last = 0
        word = token
    return deepest[0]
