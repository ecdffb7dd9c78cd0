"""A condition, as Kubernetes writes them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from trainwarden.policies.models import SpecModel

__all__ = ["Condition", "ObjectStatus"]


class Condition(SpecModel):
    """One aspect of an object's state, as Kubernetes writes conditions."""

    type: Annotated[str, Field(min_length=1, max_length=316)]
    """What the condition is about."""
    status: Literal["True", "False", "Unknown"]
    """Whether the condition holds."""
    observed_generation: Annotated[int, Field(ge=0)] = 0
    """Generation of the object that the condition is about."""
    last_transition_time: datetime
    """When `status` last changed."""
    reason: Annotated[str, Field(min_length=1, max_length=1024)]
    """Why, in one CamelCase word for machines."""
    message: Annotated[str, Field(max_length=32768)]
    """Why, in a sentence for people."""


class ObjectStatus(SpecModel):
    """What became of an object that a person wrote."""

    observed_generation: Annotated[int, Field(ge=0)] = 0
    """Generation that was last read."""
    conditions: tuple[Condition, ...] = ()
    """Its state, aspect by aspect."""
