"""The candidates of a tuning: every combination of some values for a policy's parameters, each as its own text."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence

import yaml

__all__ = [
    "MOST_CANDIDATES",
    "GridError",
    "combinations",
    "parse_variation",
    "tuned_name",
    "with_head",
    "with_name",
    "with_parameters",
]

MOST_CANDIDATES = 200
_HEAD = "# tuned: "  # before each line that a tuning puts at the head of a policy
_MOST_IN_A_NAME = 240
_TUNED = re.compile(r"(?P<name>.+)-tuned(?:-(?P<number>[1-9]\d{0,8}))?")
_OPENING, _CLOSING, _QUOTES = "([{", ")]}", "\"'"


class GridError(ValueError):
    """A grid that can't be tried. Says what would be right."""


def parse_variation(text: str) -> tuple[str, tuple[str, ...]]:
    """`tolerance=0.002,0.005` as a name and the CEL of each value; commas in brackets and quotes part nothing.

    Raises:
        GridError: It is written otherwise.
    """
    name, equals, rest = text.partition("=")
    values = tuple(value.strip() for value in _parted(rest))
    if not equals or not name.strip() or not all(values):
        raise GridError(f"{text!r}; write PARAMETER=VALUE,VALUE, such as tolerance=0.002,0.005")
    if "\n" in rest:
        raise GridError(f"the values of {name.strip()} have several lines; one line of CEL each is right")
    return name.strip(), tuple(dict.fromkeys(values))


def _parted(text: str) -> list[str]:
    parts, depth, quote, start, escaped = [], 0, "", 0, False
    for at, sign in enumerate(text):
        if quote:
            if sign == quote and not escaped:
                quote = ""
            escaped = sign == "\\" and not escaped
        elif sign in _QUOTES:
            quote = sign
        elif sign in _OPENING:
            depth += 1
        elif sign in _CLOSING:
            depth -= 1
        elif sign == "," and depth <= 0:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


def combinations(variations: Sequence[tuple[str, tuple[str, ...]]], known: Sequence[str]) -> list[dict[str, str]]:
    """Every combination, the last parameter changing fastest.

    Args:
        variations: Parameters, each with its values.
        known: Parameters of the policy.

    Raises:
        GridError: A parameter is unknown or given twice, or there are too many combinations.
    """
    names = [name for name, _ in variations]
    for name in names:
        if name not in known:
            has = f"it has {', '.join(known)}" if known else "give it `variables`, which are its parameters"
            raise GridError(f"the policy has no parameter {name!r}; {has}")
        if names.count(name) > 1:
            raise GridError(f"{name} is varied twice; give all its values at once")
    size = math.prod(len(values) for _, values in variations)
    if size > MOST_CANDIDATES:
        raise GridError(f"{size:,} combinations; at most {MOST_CANDIDATES} are right")
    return [dict(zip(names, each, strict=True)) for each in itertools.product(*(values for _, values in variations))]


def with_parameters(text: str, values: Mapping[str, str]) -> str:
    """The YAML of a policy with the expressions of some of its variables put in place; all else stays as it is.

    Args:
        text: Exactly one policy, known to be right.
        values: Names of variables of it, each with CEL of one line.

    Raises:
        GridError: A parameter is not written in a place of its own, as with a YAML alias.
    """
    spots: list[tuple[int, int, str]] = []
    for document in yaml.compose_all(text, Loader=yaml.SafeLoader):
        variables = _item(_item(document, "spec"), "variables")
        for each in variables.value if isinstance(variables, yaml.SequenceNode) else ():
            name, expression = _item(each, "name"), _item(each, "expression")
            if name is None or expression is None or name.value not in values:
                continue
            quoted = "'" + values[name.value].replace("'", "''") + "'"
            end = "\n" if getattr(expression, "style", None) in ("|", ">") else ""
            spots.append((expression.start_mark.index, expression.end_mark.index, quoted + end))
    if len({start for start, _, _ in spots}) != len(values) or len(spots) != len(values):
        raise GridError("a parameter is written with a YAML alias; write its expression in its own place")
    for start, end_at, put in sorted(spots, reverse=True):
        text = text[:start] + put + text[end_at:]
    return text


def tuned_name(name: str) -> str:
    """What a policy is called once it is tuned: `ours-tuned`, and `ours-tuned-2` when that is tuned again."""
    found = _TUNED.fullmatch(name)
    if found is not None:
        return f"{found['name']}-tuned-{int(found['number'] or 1) + 1}"
    return f"{name[:_MOST_IN_A_NAME].rstrip('-.')}-tuned"


def with_name(text: str, name: str) -> str:
    """The YAML of exactly one policy with another name.

    Raises:
        GridError: The name is not written in a place of its own.
    """
    for document in yaml.compose_all(text, Loader=yaml.SafeLoader):
        spot = _item(_item(document, "metadata"), "name")
        if spot is not None:
            start, end = spot.start_mark.index, spot.end_mark.index
            after = "\n" if getattr(spot, "style", None) in ("|", ">") else ""
            return text[:start] + name + after + text[end:]
    raise GridError("the policy's name has no place of its own; write metadata.name in it")


def with_head(text: str, lines: Sequence[str], *, others: bool) -> str:
    """The YAML with comments at its head, in place of those of an earlier tuning.

    Args:
        text: Of a policy.
        lines: What to say.
        others: Keep the other comments there; else only those that name parameters are kept.
    """
    head, rest = [], text.splitlines(keepends=True)
    while rest and rest[0].startswith("#"):
        head.append(rest.pop(0))
    kept = [each for each in head if not each.startswith(_HEAD) and (others or each.startswith("# Parameters:"))]
    return "".join([*(f"{_HEAD}{' '.join(line.split())}\n" for line in lines), *kept, *rest])


def _item(node: yaml.Node | None, key: str) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if name.value == key:
                found: yaml.Node = value
                return found
    return None
