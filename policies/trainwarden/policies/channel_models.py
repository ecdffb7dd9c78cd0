"""NotificationChannel and ClusterNotificationChannel, trainwarden.dev/v1alpha1: where messages of policies go."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from trainwarden.policies.decision import Severity
from trainwarden.policies.models import LabelSelector, Metadata, SpecModel

__all__ = [
    "ChannelSpec",
    "ClusterChannelSpec",
    "ClusterNotificationChannel",
    "ClusterSecretRef",
    "NotificationChannel",
    "SecretRef",
]


class SecretRef(SpecModel):
    """A key of a Secret in the channel's namespace."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    """Name of the Secret."""
    key: Annotated[str, Field(min_length=1, max_length=253)] = "urls"
    """Key whose value holds Apprise URLs, one per line."""


class ClusterSecretRef(SecretRef):
    """A key of a Secret in any namespace."""

    namespace: Annotated[str, Field(min_length=1, max_length=63)]
    """Namespace of the Secret."""


class ChannelSpec(SpecModel):
    """Where messages go, and which."""

    secret_ref: SecretRef
    """Secret that holds the addresses; they are never logged."""
    minimum_severity: Annotated[
        Severity, Field(strict=False, json_schema_extra={"enum": [each.value for each in Severity]})
    ] = Severity.INFO
    """Messages of rules below this are left out: info, warning or critical."""
    selector: LabelSelector = LabelSelector()
    """TrainJobs whose messages are taken; `{}` is all of them."""
    default: bool = False
    """Whether messages come here of rules that name no channel."""


class ClusterChannelSpec(ChannelSpec):
    """Where messages of the whole cluster, or of some namespaces, go."""

    secret_ref: ClusterSecretRef
    """Secret that holds the addresses; they are never logged."""
    namespace_selector: LabelSelector = LabelSelector()
    """Namespaces whose messages are taken; `{}` is all."""


class _Resource(SpecModel):
    api_version: Literal["trainwarden.dev/v1alpha1"]
    metadata: Metadata
    status: dict[str, Any] | None = Field(default=None, exclude=True)


class NotificationChannel(_Resource):
    """Takes messages about the TrainJobs of one namespace."""

    kind: Literal["NotificationChannel"]
    spec: ChannelSpec


class ClusterNotificationChannel(_Resource):
    """Takes messages about the TrainJobs of all namespaces, or of some."""

    kind: Literal["ClusterNotificationChannel"]
    spec: ClusterChannelSpec
