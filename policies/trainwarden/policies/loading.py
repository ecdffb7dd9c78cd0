"""YAML text to policies, with the place of everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainwarden.policies.documents import (
    MOST_BYTES,
    Document,
    Place,
    close,
    field_text,
    read_documents,
    validated,
    yaml_type,
)
from trainwarden.policies.models import (
    GROUP,
    VERSION,
    ClusterTrainingPolicy,
    Policy,
    TrainingPolicy,
)
from trainwarden.policies.problems import PolicyInvalidError, Problem

__all__ = ["MOST_BYTES", "Loaded", "Place", "load_policies", "policy_from_body"]

_KINDS: Mapping[str, type[TrainingPolicy] | type[ClusterTrainingPolicy]] = {
    "TrainingPolicy": TrainingPolicy,
    "ClusterTrainingPolicy": ClusterTrainingPolicy,
}
_PAGE = "docs/policies.md"


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a text held."""

    policies: tuple[Policy, ...]
    problems: tuple[Problem, ...]
    places: tuple[Mapping[str, Place], ...]  # of each policy: field such as spec.rules[0].when to its value's place


def load_policies(text: str, *, source: str) -> Loaded:
    """Read all policies of a YAML text. Never raises: what is wrong is among the problems.

    Args:
        text: One or more YAML documents; empty ones are passed over.
        source: Name of the file, for the problems.
    """
    policies: list[Policy] = []
    places: list[Mapping[str, Place]] = []
    documents, problems = read_documents(text, source=source, wanted="policy")
    for document in documents:
        policy, wrong = _validated(document)
        problems += wrong
        if policy is not None and not document.repeated:
            policies.append(policy)
            places.append({field_text(path): place for path, place in document.places.items()})
    if not documents and not problems:
        remedy = f"write apiVersion: {GROUP}/{VERSION}, kind, metadata, spec"
        problems.append(Problem(source, 1, 1, "", "no policy", remedy))
    return Loaded(tuple(policies), tuple(problems), tuple(places))


def policy_from_body(body: Mapping[str, Any], *, source: str = "") -> Policy:
    """Read a policy from an object, as the API server or the stream gives it.

    Raises:
        PolicyInvalidError: It is not a valid policy.
    """
    policy, problems = _validated(Document(source, body, {}, {}))
    if policy is None:
        raise PolicyInvalidError(problems)
    return policy


def _validated(document: Document) -> tuple[Policy | None, list[Problem]]:
    body = document.body
    if not isinstance(body, Mapping):
        remedy = "a policy has apiVersion, kind, metadata and spec"
        return None, [document.problem((), f"a {yaml_type(body)}", remedy)]
    kind = body.get("kind")
    model = _KINDS.get(kind) if isinstance(kind, str) else None
    if model is None:
        known = " or ".join(_KINDS)
        found = f"the kind {kind!r}" if "kind" in body else "no kind"
        return None, [document.problem(("kind",), found, close(str(kind), _KINDS) or f"{known} is right")]
    return validated(model, document, page=_PAGE)
