"""YAML text to values and models, with the place of everything in it and of all that is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from trainwarden.policies.problems import Problem

__all__ = ["MOST_BYTES", "Document", "Path", "Place", "close", "field_text", "read_documents", "validated", "yaml_type"]

MOST_BYTES = 1024 * 1024
"""Largest text that is read."""

_MOST_NODES = 50_000  # aliases expanded: a small text can hold a huge tree
_DEEPEST = 64
_UNKNOWN_KEY = "an unknown key"

Path = tuple[str | int, ...]
Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands in a file, from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML document: its value, and where each value and each key of it stands."""

    source: str
    body: Any
    places: Mapping[Path, Place]
    keys: Mapping[Path, Place]
    repeated: bool = False  # a key is there twice

    def problem(self, path: Path, found: str, remedy: str) -> Problem:
        """A problem at a path, or at what it would stand in."""
        place = self.keys.get(path) if found == _UNKNOWN_KEY else None
        at = path
        while place is None and at not in self.places and at:
            at = at[:-1]
        place = place or self.places.get(at, Place(0, 0))
        return Problem(self.source, place.line, place.column, field_text(path), found, remedy)


class _TextError(Exception):
    def __init__(self, place: Place, found: str, remedy: str) -> None:
        self.place, self.found, self.remedy = place, found, remedy
        super().__init__(found)


def read_documents(
    text: str, *, source: str, wanted: str, verbatim: Callable[[Path], bool] = lambda path: False
) -> tuple[list[Document], list[Problem]]:
    """Read all documents of a YAML text; empty ones are passed over. Never raises.

    Args:
        text: One or more YAML documents.
        source: Name of the file, for the problems.
        wanted: What the text should hold, for the problems: `policy`.
        verbatim: Which plain values are taken as the text they are: `0x10` rather than the number 16.
    """
    documents: list[Document] = []
    problems: list[Problem] = []
    if len(text.encode(errors="replace")) > MOST_BYTES:
        found = f"{len(text)} characters"
        return [], [Problem(source, 0, 0, "", found, f"at most {MOST_BYTES} bytes are read")]
    try:
        for node in yaml.compose_all(text, Loader=yaml.SafeLoader):
            if isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null"):
                continue
            reader = _Reader(verbatim)
            body = reader.value(node, (), 0)
            documents.append(Document(source, body, reader.places, reader.keys, bool(reader.repeated)))
            problems += reader.problems(source)
    except yaml.MarkedYAMLError as error:
        problems.append(_yaml_problem(error, source, text))
    except yaml.YAMLError as error:
        problems.append(Problem(source, 1, 1, "", f"a character that YAML does not allow ({error})", "remove it"))
    except _TextError as error:
        remedy = _quoting(text, error.place.line) or error.remedy
        problems.append(Problem(source, error.place.line, error.place.column, "", error.found, remedy))
    except RecursionError:
        problems.append(Problem(source, 1, 1, "", "YAML that is nested too deeply", f"write a plain {wanted}"))
    return documents, problems


def validated(model: type[Model], document: Document, *, page: str) -> tuple[Model | None, list[Problem]]:
    """Make a model of a document, or say all that keeps it from being one.

    Args:
        model: What it should be.
        document: A mapping.
        page: The page that says what is right.
    """
    try:
        return model.model_validate(document.body), []
    except ValidationError as error:
        details = [d for d in error.errors(include_url=False) if d["type"] != "default_factory_not_called"]
        paths = [detail["loc"] for detail in details]
        # Items with problems of their own are gone when pydantic counts a list.
        empty = [
            d for d in details if d["type"] == "too_short" and sum(p[: len(d["loc"])] == d["loc"] for p in paths) > 1
        ]
        return None, [document.problem(*_told(detail, model, page)) for detail in details if detail not in empty]


def field_text(path: Path) -> str:
    """`spec.rules[2].when` for the path of a field."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f"{'.' if text else ''}{part}"
    return text


class _Reader:
    """Turns YAML nodes into plain values and keeps where each stands."""

    def __init__(self, verbatim: Callable[[Path], bool]) -> None:
        self.places: dict[Path, Place] = {}
        self.keys: dict[Path, Place] = {}
        self.repeated: list[tuple[Path, Place]] = []
        self._left = _MOST_NODES
        self._verbatim = verbatim
        self._scalars = yaml.constructor.SafeConstructor()

    def value(self, node: yaml.Node, path: Path, depth: int) -> Any:
        place = Place(node.start_mark.line + 1, node.start_mark.column + 1)
        self._left -= 1
        if self._left < 0 or depth > _DEEPEST:
            raise _TextError(place, "YAML that unfolds into too much", "write it without so many aliases or levels")
        self.places[path] = place
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, index), depth + 1) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, depth)
        node.value = _joined(node.value, place)
        if self._verbatim(path) and node.tag != "tag:yaml.org,2002:null":
            return node.value
        if node.tag in ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value"):
            return node.value
        try:
            return self._scalars.construct_object(node)
        except (yaml.YAMLError, ValueError) as error:
            raise _TextError(place, f"a value of kind {node.tag}", "write plain text or numbers") from error

    def _mapping(self, node: yaml.MappingNode, path: Path, depth: int) -> dict[Hashable, Any]:
        result: dict[Hashable, Any] = {}
        for key_node, value_node in node.value:
            place = Place(key_node.start_mark.line + 1, key_node.start_mark.column + 1)
            if not isinstance(key_node, yaml.ScalarNode):
                raise _TextError(place, "a key that is not plain text", "write a name")
            key = _joined(key_node.value, place)
            if key == "<<":
                raise _TextError(place, "a merge key <<", "Kubernetes does not know it: write the fields out")
            if key in result:
                self.repeated.append(((*path, key), place))
            self.keys[(*path, key)] = place
            result[key] = self.value(value_node, (*path, key), depth + 1)
        return result

    def problems(self, source: str) -> Iterator[Problem]:
        for path, place in self.repeated:
            yield Problem(source, place.line, place.column, field_text(path), "the key is there twice", "keep one")


def _told(detail: Any, model: type[BaseModel], page: str) -> tuple[Path, str, str]:
    """Path, what was found, and what would be right."""
    path: Path = tuple(detail["loc"])
    kind, given, context = detail["type"], detail.get("input"), detail.get("ctx", {})
    if kind == "extra_forbidden":
        known = _fields(model, path[:-1])
        return path, _UNKNOWN_KEY, close(str(path[-1]), known) or f"known are {', '.join(sorted(known))}"
    if kind == "missing":
        return path, "it is missing", "add it"
    if kind == "value_error":
        found, _, remedy = str(context.get("error", detail["msg"])).partition("; ")
        return path, found, remedy or f"{page} says what is right"
    if kind == "too_short":
        return path, "an empty list", f"write at least {context['min_length']}"
    if kind == "too_long":
        return path, f"{context['actual_length']} items", f"at most {context['max_length']} are right"
    shown = repr(given) if isinstance(given, str | int | float) else yaml_type(given)
    if kind == "enum" or kind == "literal_error":
        expected = str(context.get("expected", "")).replace("'", "")
        choices = expected.replace(" or ", ", ").split(", ")
        if isinstance(given, bool) and "True" in choices:
            return path, f"the bool {shown}", f'write "{given}" in quotes'
        return path, shown[:80], close(str(given), choices) or f"{expected} is right"
    if kind in ("float_parsing", "float_type", "int_parsing", "int_type", "int_from_float"):
        number = str(given).strip().removesuffix("%").strip()
        plain = re.fullmatch(r"[+-]?\d+(\.\d+)?", number) is not None
        right = f"write the number alone: {number}" if plain else "a number is right, such as 97"
        return path, shown[:80], right
    if kind in ("greater_than_equal", "less_than_equal"):
        bound = context.get("ge", context.get("le"))
        return path, shown[:80], f"{'at least' if 'ge' in context else 'at most'} {bound:g} is right"
    if kind in ("bool_type", "bool_parsing"):
        return path, shown[:80], "true or false is right"
    if kind == "string_too_short":
        return path, "an empty text", "write one, or leave the field out"
    if kind == "string_too_long":
        return path, f"{len(str(given))} characters", f"at most {context['max_length']} are right"
    if kind == "string_type":
        hint = "put it in quotes" if isinstance(given, int | float | bool) else "a text is right"
        return path, f"{shown} of type {yaml_type(given)}", hint
    if kind in ("dict_type", "model_type", "tuple_type"):
        return path, shown[:80], "a list is right" if kind == "tuple_type" else "a mapping of names to values is right"
    if kind == "string_pattern_mismatch":
        return path, shown[:80], f"letters, digits, '-', '_' and '.' are right ({context['pattern']})"
    return path, shown[:80], detail["msg"][:1].lower() + detail["msg"][1:]


def _joined(text: str, place: Place) -> str:
    """The text with its surrogate pairs as characters: JSON may write one as two escapes, which YAML keeps apart."""
    if not any("\ud800" <= character <= "\udfff" for character in text):
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        raise _TextError(place, "half a surrogate pair, which is no character", "write the character itself") from error


def yaml_type(value: Any) -> str:
    """What YAML calls a value: `mapping`, `text`, `null`."""
    names = {dict: "mapping", list: "list", str: "text", bool: "bool", int: "number", float: "number"}
    return "null" if value is None else names.get(type(value), type(value).__name__)


def _fields(model: type[BaseModel], path: Path) -> set[str]:
    """Names of the fields that are known at a path."""
    current: Any = model
    for part in path:
        if isinstance(part, int) or current is None:
            continue
        fields = {field.alias or name: field.annotation for name, field in current.model_fields.items()}
        current = _model_in(fields.get(part))
    return {field.alias or name for name, field in current.model_fields.items()} if current is not None else set()


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _model_in(argument)
        if found is not None:
            return found
    return None


def close(name: str, known: Mapping[str, Any] | set[str] | list[str]) -> str:
    """`did you mean loss?`, or nothing when no known name is near."""
    lowered = {each.lower(): each for each in known}
    near = get_close_matches(name.lower(), list(lowered), n=1, cutoff=0.6)
    return f"did you mean {lowered[near[0]]}?" if near else ""


_EXPRESSION = re.compile(r"\b(when|match|message|expression):[ \t]+(\S.*?)\s*\Z")

_WHOLE = re.compile(r"""'(?:[^']|'')*'|"(?:[^"\\]|\\.)*"|[|>].*""")


def _quoting(text: str, line: int) -> str:
    """How the expression on a line, or the one before it, is written so that YAML takes it as text."""
    lines = text.split("\n")
    for number in (line, line - 1):
        found = _EXPRESSION.search(lines[number - 1]) if 0 < number <= len(lines) else None
        if found is not None and not _WHOLE.fullmatch(found[2]):
            inside = "{" in lines[number - 1].partition(found[0])[0]
            written = found[2].rstrip("]}, ") if inside else found[2]
            single = "'" not in written or '"' in written
            quoted = "'" + written.replace("'", "''") + "'" if single else f'"{written}"'
            return f"put the whole expression in quotes: {found[1]}: {quoted}"
    return ""


def _yaml_problem(error: yaml.MarkedYAMLError, source: str, text: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    found = f"{error.context}: {error.problem}" if error.context else str(error.problem)
    remedy = "put the text in quotes" if "mapping values" in found else "check indentation, quotes and brackets"
    remedy = "indent with spaces, not with tabs" if "\\t" in found else _quoting(text, line) or remedy
    return Problem(source, line, column, "", f"not YAML ({found})", remedy)
