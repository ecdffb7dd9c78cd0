"""The CRDs that are made from the models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from tests.policies.test_loading import FLAT_LOSS, SHORT

from trainwarden.policies.crd import crd_documents
from trainwarden.policies.loading import policy_from_body

CRDS = Path(__file__).parents[2] / "deploy" / "crds"
SCHEMAS = {
    document["spec"]["names"]["kind"]: document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for document in map(yaml.safe_load, crd_documents().values())
}


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from nodes(schema["additionalProperties"], f"{path}{{}}")


ALL = [(f"{kind}{path}", node) for kind, schema in SCHEMAS.items() for path, node in nodes(schema)]


@pytest.mark.parametrize(("name", "text"), crd_documents().items(), ids=list(crd_documents()))
def test_the_committed_crds_are_what_the_models_make(name: str, text: str) -> None:
    assert (CRDS / name).read_text(encoding="utf-8") == text


def test_every_field_is_described() -> None:
    bare = [path for path, node in ALL if not node.get("description") and not path.endswith((".metadata", "[]", "{}"))]

    assert bare == []


def test_the_schema_is_structural() -> None:
    """Kubernetes wants a type at each node, and takes neither references nor unions nor closed objects."""
    for path, node in ALL:
        assert node.get("type") in ("object", "array", "string", "integer", "number", "boolean"), path
        assert not {"$ref", "$defs", "anyOf", "allOf", "oneOf", "title", "const"} & set(node), path
        assert node.get("additionalProperties") is not False, path


def test_a_default_fits_its_own_field() -> None:
    for _, node in ALL:
        if "default" in node:
            jsonschema.validate(node["default"], node)


def test_lists_that_are_merged_by_a_key_require_it() -> None:
    merged = [node for _, node in ALL if node.get("x-kubernetes-list-type") == "map"]

    assert len(merged) == 9
    for node in merged:
        assert set(node["x-kubernetes-list-map-keys"]) <= set(node["items"]["required"])


@pytest.mark.parametrize("text", [FLAT_LOSS, SHORT], ids=["long", "short"])
def test_what_the_api_server_takes_and_completes_can_be_read(text: str) -> None:
    body = yaml.safe_load(text)
    schema = SCHEMAS["TrainingPolicy"]

    jsonschema.validate(body, schema)
    _complete(body, schema)

    assert policy_from_body(body).spec == policy_from_body(yaml.safe_load(text)).spec


def _complete(value: Any, schema: dict[str, Any]) -> None:
    """Write defaults into an object, as the API server does."""
    if isinstance(value, list):
        for item in value:
            _complete(item, schema["items"])
    elif isinstance(value, dict):
        for name, child in schema.get("properties", {}).items():
            if name not in value and "default" in child:
                value[name] = child["default"]
            if name in value:
                _complete(value[name], child)


def test_the_namespaced_kind_has_no_namespace_selector() -> None:
    assert "namespaceSelector" not in SCHEMAS["TrainingPolicy"]["properties"]["spec"]["properties"]
    assert "namespaceSelector" in SCHEMAS["ClusterTrainingPolicy"]["properties"]["spec"]["properties"]


def test_names_and_columns_are_those_of_kubectl() -> None:
    documents = {d["spec"]["names"]["kind"]: d["spec"] for d in map(yaml.safe_load, crd_documents().values())}

    assert {kind: spec["names"]["shortNames"] for kind, spec in documents.items()} == {
        "TrainingPolicy": ["tp"],
        "ClusterTrainingPolicy": ["ctp"],
        "NotificationChannel": ["nc"],
        "ClusterNotificationChannel": ["cnc"],
        "TrainingRun": ["tr"],
    }
    assert [column["name"] for column in documents["TrainingPolicy"]["versions"][0]["additionalPrinterColumns"]] == [
        "Mode", "Rules", "Ready", "Age",
    ]  # fmt: skip
