"""Rows of a compact notation: items apart by spaces, `x5` for five times, `x*` to the end, `( … )x5` for groups."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["MOST_TICKS", "NotationError", "Row", "read_row"]

MOST_TICKS = 500_000
"""Places of time that a row may have."""

_DEEPEST = 8
_TOKEN = re.compile(r"\s+|(?P<open>\()|(?P<close>\))(?P<group>x[^\s()]*)?|(?P<item>[^\s()]+)")
_COUNTED = re.compile(r"(?P<body>.+?)(?:x(?P<count>[0-9]+|\*))?\Z")
_SIGNED = re.compile(r"[+-][0-9.]\S*")  # an item that begins with a sign, as the rest of a ramp does
_LONE = re.compile(r"=|\+?[0-9.]+(?:[eE][+-]?[0-9]+)?")  # an item that is a number alone, and not below 0
_CUT = re.compile(r"\S*(?:\.\.|[-+>~@/]|(?<!x)\*)")  # an item whose rest is missing
_REST = re.compile(r"(?:\.\.|[*>~@/])\S+|x(?:[0-9]+|\*)")  # what can only stand behind a number
_MOST_DIGITS = 9  # of a count
_TO_THE_END = -1

Body = TypeVar("Body")


class NotationError(ValueError):
    """A row can't be read. Its author must act; the text is `found; remedy`."""

    def __init__(self, found: str, remedy: str) -> None:
        super().__init__(f"{found}; {remedy}")


@dataclass(frozen=True, slots=True)
class _Item(Generic[Body]):
    body: Body
    count: int
    timed: bool  # else it takes no place of time


@dataclass(frozen=True, slots=True)
class _Group(Generic[Body]):
    nodes: tuple[_Item[Body] | _Group[Body], ...]
    count: int


@dataclass(frozen=True, slots=True)
class Row(Generic[Body]):
    """A row, read."""

    text: str
    nodes: tuple[_Item[Body] | _Group[Body], ...]
    length: int  # places of time; those of what stands before an `x*`
    open: bool  # it ends in an `x*`

    def until(self, end: int) -> Iterator[tuple[Body, int]]:
        """The items in order, each with how many places it takes of the first `end`; 0 for one that takes no time."""
        left = end
        for body, count in _walk(self.nodes):
            if left <= 0 and count != 0:
                return
            taken = left if count == _TO_THE_END else min(count, left)
            yield body, taken
            left -= taken


def read_row(text: str, read: Callable[[str], tuple[Body, bool]]) -> Row[Body]:
    """Read a row.

    Args:
        text: The row as written.
        read: Makes something of one item without its `x5`, and says whether it takes time; raises NotationError.

    Raises:
        NotationError: What was found, and what would be right.
    """
    stack: list[list[_Item[Body] | _Group[Body]]] = [[]]
    before = ""  # the item, or the end of the group, that stands right before
    for token in _TOKEN.finditer(text):
        if token["open"]:
            stack.append([])
            if len(stack) > _DEEPEST:
                raise NotationError("groups that are nested too deeply", f"at most {_DEEPEST - 1} levels are right")
        elif token["close"]:
            if len(stack) == 1:
                raise NotationError("a ) without its (", "write (1 2 3)x5")
            nodes = tuple(stack.pop())
            if not nodes:
                raise NotationError("an empty group ()", "write (1 2 3)x5")
            count = _count((token["group"] or "x1")[1:], token[0])
            if not _length(nodes):
                raise NotationError("a group in which no time passes", "put something in it that takes time")
            stack[-1].append(_Group(nodes, count))
        elif token["item"]:
            _check_apart(before, token["item"])
            stack[-1].append(_item(token["item"], read))
        if not token[0].isspace():
            before = token["item"] or token["close"] or ""
    if len(stack) > 1:
        raise NotationError("a ( without its )", "write (1 2 3)x5")
    nodes = tuple(stack[0])
    if not nodes:
        raise NotationError("an empty row", "write values such as 3-0.1x20 1x40")
    _check_ends(nodes, last=True)
    length = _length(nodes)
    if length > MOST_TICKS:
        raise NotationError(
            f"{length} values", f"at most {MOST_TICKS} are right; report less often with a larger every"
        )
    return Row(text, nodes, length, nodes[-1].count == _TO_THE_END)


def _check_apart(before: str, text: str) -> None:
    """See that an item is none that a space has parted from the number before it.

    Raises:
        NotationError: It may well be, as in `3 -0.5x20`; what is written otherwise for either meaning.
    """
    lone = _LONE.fullmatch(before) is not None
    if _CUT.fullmatch(text):
        raise NotationError(f"{text!r} and a space", "write all of an item without spaces, such as 3-0.1x20")
    if before and _REST.fullmatch(text):
        whole = f"(…){text}" if before == ")" else f"{before}{text}"
        raise NotationError(f"{text!r} behind a space", f"write {whole} without the space")
    if not before or not _SIGNED.fullmatch(text):
        return
    if text[0] == "+":
        on = f"={text} goes on from the newest number" if before != "=" else ""
        ramp = f"{before}{text} is a ramp" if lone else ""
        either = ", ".join(each for each in (ramp, on, f"{text[1:]} a number by itself") if each)
        raise NotationError(f"{text!r} behind a space", either)
    if lone and "x" in text:
        alone = f"{before}x1 {text}" if before != "=" else f"=x1 {text}"
        raise NotationError(f"{text!r} behind a space", f"{before}{text} is a ramp, {alone} are two parts")


def _item(text: str, read: Callable[[str], tuple[Body, bool]]) -> _Item[Body]:
    found = _COUNTED.match(text)
    assert found is not None  # noqa: S101 - any text without spaces matches
    body, timed = read(found["body"])
    if not timed and found["count"] is not None:
        raise NotationError(f"{text!r}", f"{found['body']} takes no time: write it without x{found['count']}")
    return _Item(body, _count(found["count"] or "1", text), timed)


def _count(text: str, item: str) -> int:
    if text == "*":
        return _TO_THE_END
    if not re.fullmatch(r"[0-9]+", text) or not text.strip("0"):
        raise NotationError(f"{item!r}", "x5 is five times, and x* is to the end of the test")
    if len(text) > _MOST_DIGITS:
        raise NotationError(f"{item!r}", f"a test has {MOST_TICKS:,} reports at most; x* is to its end")
    return int(text)


def _check_ends(nodes: tuple[_Item[Body] | _Group[Body], ...], *, last: bool) -> None:
    for index, node in enumerate(nodes):
        at_end = last and index == len(nodes) - 1
        if node.count == _TO_THE_END and not at_end:
            raise NotationError("an x* that is not the last of its row", "only the last may go on to the end")
        if isinstance(node, _Group):
            _check_ends(node.nodes, last=False)


def _length(nodes: tuple[_Item[Body] | _Group[Body], ...]) -> int:
    """Places of time; what is to the end counts as one."""
    return sum(
        max(node.count, 1) * (_length(node.nodes) if isinstance(node, _Group) else int(node.timed)) for node in nodes
    )


def _walk(nodes: tuple[_Item[Body] | _Group[Body], ...]) -> Iterator[tuple[Body, int]]:
    for node in nodes:
        if isinstance(node, _Item):
            yield node.body, node.count if node.timed else 0
            continue
        times = 0
        while times != node.count:
            yield from _walk(node.nodes)
            times += 1
