"""TrainingPolicy and ClusterTrainingPolicy, trainwarden.dev/v1alpha1. The CRDs are generated from these models."""

from __future__ import annotations

import re
from datetime import timedelta
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic.alias_generators import to_camel

from trainwarden.policies.decision import ActionType, CheckpointMode, Mode, Severity
from trainwarden.policies.durations import Duration

__all__ = [
    "GROUP",
    "VERSION",
    "ActionSpec",
    "Approval",
    "ClusterTrainingPolicy",
    "ClusterTrainingPolicySpec",
    "LabelSelector",
    "Metadata",
    "OnExpiry",
    "OnUnknown",
    "Operator",
    "Policy",
    "Protections",
    "Requirement",
    "Rule",
    "SpecModel",
    "TrainingPolicy",
    "TrainingPolicySpec",
    "VariableSpec",
]

GROUP = "trainwarden.dev"
VERSION = "v1alpha1"
_NAME = r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"
_WORD = r"^[A-Za-z_][A-Za-z0-9_]*$"
_LABEL_KEY = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"

Expression = Annotated[str, Field(min_length=1, max_length=2048)]


class SpecModel(BaseModel):
    """Base of what a user writes: camelCase names, unknown ones refused, frozen."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        strict=True,
    )


class OnUnknown(StrEnum):
    """What a rule makes of an expression without a value."""

    HOLD = "Hold"
    FALSE = "False"
    TRUE = "True"


class OnExpiry(StrEnum):
    """What happens when nobody answered in time."""

    DENY = "Deny"
    ALLOW = "Allow"


class Operator(StrEnum):
    """How a label is compared."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


def _enum(kind: type[StrEnum]) -> Any:
    """A field that takes the enum's text, as YAML has it."""
    return Field(strict=False, json_schema_extra={"enum": [member.value for member in kind]})


class Requirement(SpecModel):
    """One condition on a label."""

    key: Annotated[str, Field(pattern=_LABEL_KEY, max_length=317)]
    """Name of the label."""
    operator: Annotated[Operator, _enum(Operator)]
    """In and NotIn compare with `values`; Exists and DoesNotExist ask for the label alone."""
    values: tuple[Annotated[str, Field(max_length=63)], ...] = Field(default=(), strict=False, max_length=64)
    """What In and NotIn compare with."""

    @model_validator(mode="after")
    def _values_fit(self) -> Requirement:
        wants = self.operator in (Operator.IN, Operator.NOT_IN)
        if wants != bool(self.values):
            raise ValueError(
                f"{self.operator} with {len(self.values)} values; it {'needs some' if wants else 'takes none'}"
            )
        return self


class LabelSelector(SpecModel):
    """Picks objects by their labels; all conditions must hold, and an empty selector picks all."""

    match_labels: dict[str, str] = Field(default_factory=dict)
    """Labels that must have exactly these values."""
    match_expressions: tuple[Requirement, ...] = Field(default=(), strict=False, max_length=32)
    """Further conditions on labels."""


class VariableSpec(SpecModel):
    """A named expression that `match`, `when` and `message` read as `variables.<name>`."""

    name: Annotated[str, Field(pattern=_WORD, max_length=63)]
    """Name of the variable."""
    expression: Expression
    """CEL over the run; may read the variables before it."""


class Approval(SpecModel):
    """A person must agree before the action."""

    required: bool = True
    """Whether somebody must agree."""
    expires_after: Duration = timedelta(hours=4)
    """How long the question stands."""
    on_expiry: Annotated[OnExpiry, _enum(OnExpiry)] = OnExpiry.DENY
    """What happens when nobody has answered by then."""


class ActionSpec(SpecModel):
    """One step of a rule's ladder."""

    type: Annotated[ActionType, _enum(ActionType)]
    """Notify, Checkpoint, Suspend (can be resumed), Stop or Delete."""
    after: Duration = timedelta(0)
    """Wait since the rule fired; when the rule resolves first, the step is not done."""
    channels: tuple[Annotated[str, Field(min_length=1, max_length=253)], ...] = Field(
        default=(), strict=False, max_length=16
    )
    """Notify: names of NotificationChannels; none means the default ones."""
    checkpoint: Annotated[CheckpointMode, _enum(CheckpointMode)] = CheckpointMode.REQUIRED
    """Suspend, Stop, Delete: Required acts only on a proven checkpoint, BestEffort asks for one, Skip does not ask."""
    timeout: Duration = timedelta(minutes=10)
    """How long the training may take to save."""
    max_checkpoint_age: Duration | None = None
    """When no answer comes: the newest known checkpoint will do if it is at most this old."""
    approval: Approval | None = None
    """Stop, Delete: ask a person first."""
    include_owned: bool = False
    """Delete: also a job that another controller owns, such as a Katib Trial, which may make it again."""

    @model_validator(mode="after")
    def _fields_fit(self) -> ActionSpec:
        given = self.model_fields_set
        ends = self.type in (ActionType.SUSPEND, ActionType.STOP, ActionType.DELETE)
        if "channels" in given and self.type is not ActionType.NOTIFY:
            raise ValueError(f"channels at a {self.type}; they belong to Notify")
        if given & {"checkpoint", "max_checkpoint_age"} and not ends:
            raise ValueError(
                f"checkpoint or maxCheckpointAge at a {self.type}; they belong to Suspend, Stop and Delete"
            )
        if self.approval is not None and self.type not in (ActionType.STOP, ActionType.DELETE):
            raise ValueError(f"approval at a {self.type}; it belongs to Stop and Delete")
        if self.include_owned and self.type is not ActionType.DELETE:  # the API server gives all the default
            raise ValueError(f"includeOwned at a {self.type}; it belongs to Delete")
        return self


class Rule(SpecModel):
    """One condition, and what to do once it has held long enough."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$", max_length=63)]
    """Name of the rule, unique in the policy."""
    when: Expression
    """CEL over the run; must give a bool."""
    for_: Annotated[Duration, Field(alias="for")] = timedelta(0)
    """How long `when` must stay true before the rule fires, such as `10m`."""
    keep_firing_for: Duration = Field(default_factory=lambda given: given.get("for_", timedelta(0)))
    """How long the rule goes on firing after `when` was last true; without it as long as `for`."""
    on_unknown: Annotated[OnUnknown, _enum(OnUnknown)] = OnUnknown.HOLD
    """What an unknown `when` does: Hold neither fires nor resolves nor resets; False and True count as that."""
    severity: Annotated[Severity, _enum(Severity)] = Severity.WARNING
    """info, warning or critical."""
    message: Annotated[str, Field(max_length=2048)] = ""
    """CEL that gives the sentence people read; without it one is made from the values."""
    actions: tuple[ActionSpec, ...] = Field(default=(), strict=False, max_length=16)
    """What to do, step by step, each after its wait."""

    @field_validator("actions")
    @classmethod
    def _climbs(cls, actions: tuple[ActionSpec, ...]) -> tuple[ActionSpec, ...]:
        for before, step in pairwise(actions):
            if step.after < before.after:
                raise ValueError(f"{step.type} stands behind {before.type} but waits less; order them by `after`")
        return actions


class Protections(SpecModel):
    """Runs that the policy must not suspend, stop or delete, whatever its rules say."""

    above_percent: Annotated[float, Field(strict=False, ge=0, le=100)] = 97.0
    """Almost finished runs: from this percentage of the plan on. 100 switches it off."""
    min_running_for: Duration = timedelta(0)
    """Young runs: until their pods have been ready for this long."""


class TrainingPolicySpec(SpecModel):
    """What the policy watches, and what it does."""

    mode: Annotated[Mode, _enum(Mode)] = Mode.AUDIT
    """Audit only says what would have been done; Enforce does it."""
    selector: LabelSelector
    """TrainJobs that the policy is for; `{}` is all of them."""
    match: Annotated[str, Field(max_length=2048)] = ""
    """CEL that must be true as well; must give a bool."""
    variables: tuple[VariableSpec, ...] = Field(default=(), strict=False, max_length=32)
    """Named expressions for the rules."""
    rules: tuple[Rule, ...] = Field(strict=False, min_length=1, max_length=32)
    """Conditions and their actions."""
    protections: Protections = Protections()
    """Runs that are left alone."""

    @field_validator("rules", "variables")
    @classmethod
    def _names_differ(cls, items: tuple[Any, ...]) -> tuple[Any, ...]:
        seen: set[str] = set()
        for item in items:
            if item.name in seen:
                raise ValueError(f"the name {item.name!r} is there twice; give each its own")
            seen.add(item.name)
        return items


class ClusterTrainingPolicySpec(TrainingPolicySpec):
    """What the policy watches in the whole cluster, and what it does."""

    namespace_selector: LabelSelector = LabelSelector()
    """Namespaces that the policy is for; `{}` is all."""
    overrules_owners: bool = False
    """Whether the policy passes over what owners wish in annotations of their TrainJobs: opt-outs and silences."""


class Metadata(BaseModel):
    """What of an object's metadata matters here; the rest of it is Kubernetes' own."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    name: Annotated[str, Field(max_length=253)]
    namespace: str = ""
    uid: str = ""
    generation: int = 1
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)

    @field_validator("name")
    @classmethod
    def _fits(cls, name: str) -> str:
        if not re.match(_NAME, name):
            raise ValueError(f"the name {name!r}; use lower-case letters, digits, '-' and '.', such as flat-loss")
        return name


class _Resource(SpecModel):
    api_version: Literal["trainwarden.dev/v1alpha1"]
    metadata: Metadata
    status: dict[str, Any] | None = Field(default=None, exclude=True)


class TrainingPolicy(_Resource):
    """Judges the TrainJobs of one namespace."""

    kind: Literal["TrainingPolicy"]
    spec: TrainingPolicySpec


class ClusterTrainingPolicy(_Resource):
    """Judges the TrainJobs of all namespaces, or of some."""

    kind: Literal["ClusterTrainingPolicy"]
    spec: ClusterTrainingPolicySpec


Policy = TrainingPolicy | ClusterTrainingPolicy
