"""The CustomResourceDefinitions, made from the models: structural schemas as the API server takes them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, Field
from pydantic.json_schema import GenerateJsonSchema

from trainwarden.policies.durations import duration_text
from trainwarden.policies.models import GROUP, VERSION, ClusterTrainingPolicySpec, SpecModel, TrainingPolicySpec

__all__ = ["Condition", "PolicyStatus", "crd_documents"]

_HEADER = "# Made from trainwarden.policies.models by `make generate`; edit the models instead.\n"
_KEPT = (
    "description", "type", "format", "enum", "default", "pattern", "minLength", "maxLength", "minItems", "maxItems",
    "minimum", "maximum", "required", "properties", "items", "additionalProperties",
)  # fmt: skip
_ENDS = "['Suspend', 'Stop', 'Delete']"


class Condition(SpecModel):
    """One aspect of the policy's state, as Kubernetes writes conditions."""

    type: Annotated[str, Field(min_length=1, max_length=316)]
    """Ready: the policy can be used and is."""
    status: Literal["True", "False", "Unknown"]
    """Whether the condition holds."""
    observed_generation: Annotated[int, Field(ge=0)] = 0
    """Generation of the policy that the condition is about."""
    last_transition_time: datetime
    """When `status` last changed."""
    reason: Annotated[str, Field(min_length=1, max_length=1024)]
    """Why, in one CamelCase word for machines."""
    message: Annotated[str, Field(max_length=32768)]
    """Why, in a sentence for people; problems of expressions with their places."""


class PolicyStatus(SpecModel):
    """What became of the policy."""

    observed_generation: Annotated[int, Field(ge=0)] = 0
    """Generation that was last read."""
    rules: Annotated[int, Field(ge=0)] = 0
    """How many rules it has."""
    conditions: tuple[Condition, ...] = ()
    """Its state, aspect by aspect."""


def crd_documents() -> dict[str, str]:
    """YAML of each CustomResourceDefinition by its file name."""
    return {
        f"{GROUP}_{plural}.yaml": _HEADER
        + yaml.safe_dump(_crd(kind, plural, scope, short, spec), sort_keys=False, width=110)
        for kind, plural, scope, short, spec in (
            ("TrainingPolicy", "trainingpolicies", "Namespaced", "tp", TrainingPolicySpec),
            ("ClusterTrainingPolicy", "clustertrainingpolicies", "Cluster", "ctp", ClusterTrainingPolicySpec),
        )
    }


def _crd(kind: str, plural: str, scope: str, short: str, spec: type[BaseModel]) -> dict[str, Any]:
    where = "the TrainJobs of its namespace" if scope == "Namespaced" else "the TrainJobs of all namespaces, or of some"
    schema = {
        "description": f"{kind} watches {where}, and says what to do when a training goes wrong.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"{GROUP}/{VERSION}"},
            "kind": {"type": "string", "description": kind},
            "metadata": {"type": "object"},
            "spec": _with_list_keys(_structural(spec)),
            "status": _with_list_keys(_structural(PolicyStatus)),
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}", "labels": {"app.kubernetes.io/part-of": "trainwarden"}},
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
                "categories": ["trainwarden"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {"name": "Mode", "type": "string", "jsonPath": ".spec.mode"},
                        {"name": "Rules", "type": "integer", "jsonPath": ".status.rules"},
                        {
                            "name": "Ready",
                            "type": "string",
                            "jsonPath": '.status.conditions[?(@.type=="Ready")].status',
                        },
                        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                    ],
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


class _Schema(GenerateJsonSchema):
    """Writes default durations as users do."""

    def encode_default(self, dft: Any) -> Any:
        return duration_text(dft) if isinstance(dft, timedelta) else super().encode_default(dft)


def _structural(model: type[BaseModel]) -> dict[str, Any]:
    """The model's JSON Schema without references, unions with null and whatever else the API server refuses."""
    document = model.model_json_schema(by_alias=True, mode="validation", schema_generator=_Schema)
    return _inlined(document, document.get("$defs", {}))


def _inlined(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    node = dict(node)
    if "$ref" in node:
        target = copy.deepcopy(definitions[node.pop("$ref").removeprefix("#/$defs/")])
        return _inlined({**target, **node}, definitions)
    if "anyOf" in node:
        (only,) = (each for each in node.pop("anyOf") if each != {"type": "null"})
        return _inlined({**only, **node}, definitions)
    kept = {key: node[key] for key in _KEPT if key in node}
    if kept.get("additionalProperties") is False:
        del kept["additionalProperties"]
    elif "additionalProperties" in kept:
        kept["additionalProperties"] = _inlined(kept["additionalProperties"], definitions)
    if "items" in kept:
        kept["items"] = _inlined(kept["items"], definitions)
    if "properties" in kept:
        kept["properties"] = {name: _inlined(value, definitions) for name, value in kept["properties"].items()}
    if kept.get("type") == "integer":
        kept["format"] = "int64"
    default = kept.get("default")
    if (not default and default not in (0, False)) or (isinstance(default, dict) and not any(default.values())):
        kept.pop("default", None)  # what is empty is as good as absent
    return kept


def _with_list_keys(schema: dict[str, Any]) -> dict[str, Any]:
    """Say how lists are merged, and check what only two fields together can say."""
    properties = schema["properties"]
    for name, key in (("rules", "name"), ("variables", "name"), ("conditions", "type")):
        if properties.get(name, {}).get("type") == "array":
            properties[name] |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}
    for name in ("selector", "namespaceSelector"):
        if name in properties:
            properties[name]["x-kubernetes-map-type"] = "atomic"
            properties[name]["properties"]["matchExpressions"]["items"]["x-kubernetes-validations"] = [
                {
                    "rule": "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",
                    "message": "In and NotIn need values; Exists and DoesNotExist take none",
                }
            ]
    if properties.get("rules", {}).get("type") == "array":
        actions = properties["rules"]["items"]["properties"]["actions"]
        actions["x-kubernetes-list-type"] = "atomic"
        step = actions["items"]
        # The API server writes defaults into every step, and a Notify has no checkpoint.
        step["properties"]["checkpoint"].pop("default", None)
        step["x-kubernetes-validations"] = [
            {"rule": "!has(self.channels) || self.type == 'Notify'", "message": "channels belong to Notify"},
            {
                "rule": f"!(has(self.checkpoint) || has(self.maxCheckpointAge)) || self.type in {_ENDS}",
                "message": "checkpoint and maxCheckpointAge belong to Suspend, Stop and Delete",
            },
            {
                "rule": "!has(self.approval) || self.type in ['Stop', 'Delete']",
                "message": "approval belongs to Stop and Delete",
            },
        ]
    return schema
