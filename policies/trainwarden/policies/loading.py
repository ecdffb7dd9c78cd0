"""YAML text to policies, with the place of everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from trainwarden.policies.models import (
    GROUP,
    VERSION,
    ClusterTrainingPolicy,
    Policy,
    TrainingPolicy,
)
from trainwarden.policies.problems import PolicyInvalidError, Problem

__all__ = ["MOST_BYTES", "Loaded", "Place", "load_policies", "policy_from_body"]

MOST_BYTES = 1024 * 1024
"""Largest text that is read."""

_MOST_NODES = 50_000  # aliases expanded: a small text can hold a huge tree
_DEEPEST = 64
_UNKNOWN_KEY = "an unknown key"
_KINDS: Mapping[str, type[TrainingPolicy] | type[ClusterTrainingPolicy]] = {
    "TrainingPolicy": TrainingPolicy,
    "ClusterTrainingPolicy": ClusterTrainingPolicy,
}

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands in a file, from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a text held."""

    policies: tuple[Policy, ...]
    problems: tuple[Problem, ...]
    places: tuple[Mapping[str, Place], ...]  # of each policy: field such as spec.rules[0].when to its value's place


class _TextError(Exception):
    def __init__(self, place: Place, found: str, remedy: str) -> None:
        self.place, self.found, self.remedy = place, found, remedy
        super().__init__(found)


def load_policies(text: str, *, source: str) -> Loaded:
    """Read all policies of a YAML text. Never raises: what is wrong is among the problems.

    Args:
        text: One or more YAML documents; empty ones are passed over.
        source: Name of the file, for the problems.
    """
    policies: list[Policy] = []
    problems: list[Problem] = []
    places: list[Mapping[str, Place]] = []
    if len(text.encode(errors="replace")) > MOST_BYTES:
        found = f"{len(text)} characters"
        return Loaded((), (Problem(source, 0, 0, "", found, f"at most {MOST_BYTES} bytes are read"),), ())
    empty = True
    try:
        for node in yaml.compose_all(text, Loader=yaml.SafeLoader):
            if isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null"):
                continue
            empty = False
            reader = _Reader()
            body = reader.value(node, (), 0)
            policy, wrong = _validated(body, reader.places, source, reader.keys)
            problems += [*reader.problems(source), *wrong]
            if policy is not None and not reader.repeated:
                policies.append(policy)
                places.append({field_text(path): place for path, place in reader.places.items()})
    except yaml.MarkedYAMLError as error:
        problems.append(_yaml_problem(error, source))
    except yaml.YAMLError as error:
        problems.append(Problem(source, 1, 1, "", f"a character that YAML does not allow ({error})", "remove it"))
    except _TextError as error:
        problems.append(Problem(source, error.place.line, error.place.column, "", error.found, error.remedy))
    except RecursionError:
        problems.append(Problem(source, 1, 1, "", "YAML that is nested too deeply", "write a plain policy"))
    if empty and not problems:
        remedy = f"write apiVersion: {GROUP}/{VERSION}, kind, metadata, spec"
        problems.append(Problem(source, 1, 1, "", "no policy", remedy))
    return Loaded(tuple(policies), tuple(problems), tuple(places))


def policy_from_body(body: Mapping[str, Any], *, source: str = "") -> Policy:
    """Read a policy from an object, as the API server or the stream gives it.

    Raises:
        PolicyInvalidError: It is not a valid policy.
    """
    policy, problems = _validated(body, {}, source)
    if policy is None:
        raise PolicyInvalidError(problems)
    return policy


def field_text(path: Path) -> str:
    """`spec.rules[2].when` for the path of a field."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f"{'.' if text else ''}{part}"
    return text


class _Reader:
    """Turns YAML nodes into plain values and keeps where each stands."""

    def __init__(self) -> None:
        self.places: dict[Path, Place] = {}
        self.keys: dict[Path, Place] = {}
        self.repeated: list[tuple[Path, Place]] = []
        self._left = _MOST_NODES
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
            key = key_node.value
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


def _validated(
    body: Any, places: Mapping[Path, Place], source: str, keys: Mapping[Path, Place] | None = None
) -> tuple[Policy | None, list[Problem]]:
    def problem(path: Path, found: str, remedy: str) -> Problem:
        if found == _UNKNOWN_KEY and keys is not None and path in keys:
            place = keys[path]
            return Problem(source, place.line, place.column, field_text(path), found, remedy)
        at = path
        while at not in places and at:
            at = at[:-1]
        place = places.get(at, Place(0, 0))
        return Problem(source, place.line, place.column, field_text(path), found, remedy)

    if not isinstance(body, Mapping):
        return None, [problem((), f"a {_yaml_type(body)}", "a policy has apiVersion, kind, metadata and spec")]
    kind = body.get("kind")
    model = _KINDS.get(kind) if isinstance(kind, str) else None
    if model is None:
        known = " or ".join(_KINDS)
        found = f"the kind {kind!r}" if "kind" in body else "no kind"
        return None, [problem(("kind",), found, _close(str(kind), _KINDS) or f"{known} is right")]
    try:
        return model.model_validate(body), []
    except ValidationError as error:
        details = error.errors(include_url=False)
        paths = [detail["loc"] for detail in details]
        # Items with problems of their own are gone when pydantic counts a list.
        empty = [
            d for d in details if d["type"] == "too_short" and sum(p[: len(d["loc"])] == d["loc"] for p in paths) > 1
        ]
        return None, [problem(*_told(detail, model)) for detail in details if detail not in empty]


def _told(detail: Any, model: type[BaseModel]) -> tuple[Path, str, str]:
    """Path, what was found, and what would be right."""
    path: Path = tuple(detail["loc"])
    kind, given, context = detail["type"], detail.get("input"), detail.get("ctx", {})
    if kind == "extra_forbidden":
        known = _fields(model, path[:-1])
        return path, _UNKNOWN_KEY, _close(str(path[-1]), known) or f"known are {', '.join(sorted(known))}"
    if kind == "missing":
        return path, "it is missing", "add it"
    if kind == "value_error":
        found, _, remedy = str(context.get("error", detail["msg"])).partition("; ")
        return path, found, remedy or "docs/policies.md says what is right"
    if kind == "too_short":
        return path, "an empty list", f"write at least {context['min_length']}"
    if kind == "too_long":
        return path, f"{context['actual_length']} items", f"at most {context['max_length']} are right"
    shown = repr(given) if isinstance(given, str | int | float) else _yaml_type(given)
    if kind == "enum" or kind == "literal_error":
        expected = str(context.get("expected", "")).replace("'", "")
        choices = expected.replace(" or ", ", ").split(", ")
        if isinstance(given, bool) and "True" in choices:
            return path, f"the bool {shown}", f'write "{given}" in quotes'
        return path, shown[:80], _close(str(given), choices) or f"{expected} is right"
    if kind == "string_type":
        hint = "put it in quotes" if isinstance(given, int | float | bool) else "a text is right"
        return path, f"{shown} of type {_yaml_type(given)}", hint
    if kind in ("dict_type", "model_type", "tuple_type"):
        return path, shown[:80], "a list is right" if kind == "tuple_type" else "a mapping of names to values is right"
    if kind == "string_pattern_mismatch":
        return path, shown[:80], f"letters, digits, '-', '_' and '.' are right ({context['pattern']})"
    return path, shown[:80], detail["msg"][:1].lower() + detail["msg"][1:]


def _yaml_type(value: Any) -> str:
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


def _close(name: str, known: Mapping[str, Any] | set[str] | list[str]) -> str:
    lowered = {each.lower(): each for each in known}
    close = get_close_matches(name.lower(), list(lowered), n=1, cutoff=0.6)
    return f"did you mean {lowered[close[0]]}?" if close else ""


def _yaml_problem(error: yaml.MarkedYAMLError, source: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    found = f"{error.context}: {error.problem}" if error.context else str(error.problem)
    remedy = "put the text in quotes" if "mapping values" in found else "check indentation, quotes and brackets"
    if "\\t" in found:
        remedy = "indent with spaces, not with tabs"
    return Problem(source, line, column, "", f"not YAML ({found})", remedy)
