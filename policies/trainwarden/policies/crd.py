"""The CustomResourceDefinitions, made from the models: structural schemas as the API server takes them."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, Field
from pydantic.json_schema import GenerateJsonSchema

from trainwarden.policies.channel_models import ChannelSpec, ClusterChannelSpec
from trainwarden.policies.condition import ObjectStatus
from trainwarden.policies.durations import duration_text
from trainwarden.policies.models import GROUP, VERSION, ClusterTrainingPolicySpec, TrainingPolicySpec
from trainwarden.policies.training_run import TrainingRunSpec, TrainingRunStatus

__all__ = ["PolicyStatus", "crd_documents"]

_HEADER = "# Made from trainwarden.policies.models by `make generate`; edit the models instead.\n"
_KEPT = (
    "description", "type", "format", "enum", "default", "pattern", "minLength", "maxLength", "minItems", "maxItems",
    "minimum", "maximum", "required", "properties", "items", "additionalProperties",
)  # fmt: skip
_ENDS = "['Suspend', 'Stop', 'Delete']"


class PolicyStatus(ObjectStatus):
    """What became of the policy."""

    rules: Annotated[int, Field(ge=0)] = 0
    """How many rules it has."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """What one CustomResourceDefinition is made from."""

    name: str
    plural: str
    short: str
    namespaced: bool
    description: str
    spec: type[BaseModel]
    status: type[BaseModel]
    columns: tuple[tuple[str, str, str], ...]


_READY = ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status')
_POLICY_COLUMNS = (("Mode", "string", ".spec.mode"), ("Rules", "integer", ".status.rules"), _READY)
_CHANNEL_COLUMNS = (("Severity", "string", ".spec.minimumSeverity"), _READY)
_KINDS = (
    _Kind(
        "TrainingPolicy", "trainingpolicies", "tp", True,
        "TrainingPolicy watches the TrainJobs of its namespace, and says what to do when a training goes wrong.",
        TrainingPolicySpec, PolicyStatus, _POLICY_COLUMNS,
    ),
    _Kind(
        "ClusterTrainingPolicy", "clustertrainingpolicies", "ctp", False,
        "ClusterTrainingPolicy watches the TrainJobs of all namespaces, or of some, and says what to do when a"
        " training goes wrong.",
        ClusterTrainingPolicySpec, PolicyStatus, _POLICY_COLUMNS,
    ),
    _Kind(
        "NotificationChannel", "notificationchannels", "nc", True,
        "NotificationChannel says where messages about the TrainJobs of its namespace go.",
        ChannelSpec, ObjectStatus, _CHANNEL_COLUMNS,
    ),
    _Kind(
        "ClusterNotificationChannel", "clusternotificationchannels", "cnc", False,
        "ClusterNotificationChannel says where messages about the TrainJobs of all namespaces, or of some, go.",
        ClusterChannelSpec, ObjectStatus, _CHANNEL_COLUMNS,
    ),
    _Kind(
        "TrainingRun", "trainingruns", "tr", True,
        "TrainingRun is what trainwarden knows of one TrainJob: progress, rules, decisions and actions. It is made and"
        " kept by trainwarden; people answer questions in its annotations.",
        TrainingRunSpec, TrainingRunStatus,
        (
            ("Progress", "string", ".status.progress"), ("ETA", "string", ".status.eta"),
            ("Loss", "string", ".status.loss"), ("State", "string", ".status.state"),
            ("GPUs", "integer", ".status.gpus"),
        ),
    ),
)  # fmt: skip


def crd_documents() -> dict[str, str]:
    """YAML of each CustomResourceDefinition by its file name."""
    return {
        f"{GROUP}_{kind.plural}.yaml": _HEADER + yaml.safe_dump(_crd(kind), sort_keys=False, width=110)
        for kind in _KINDS
    }


def _crd(kind: _Kind) -> dict[str, Any]:
    columns = [{"name": name, "type": type_, "jsonPath": path} for name, type_, path in kind.columns]
    schema = {
        "description": kind.description,
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"{GROUP}/{VERSION}"},
            "kind": {"type": "string", "description": kind.name},
            "metadata": {"type": "object"},
            "spec": _with_list_keys(_structural(kind.spec)),
            "status": _with_list_keys(_structural(kind.status)),
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}", "labels": {"app.kubernetes.io/part-of": "trainwarden"}},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.name.lower(),
                "shortNames": [kind.short],
                "categories": ["trainwarden"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        *columns,
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
        listed = properties.get(name, {})
        if listed.get("type") == "array" and key in listed["items"]["properties"]:
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
    if properties.get("rules", {}).get("type") == "array" and "when" in properties["rules"]["items"]["properties"]:
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
