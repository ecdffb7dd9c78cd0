"""What an expression reads of a run, found when it is checked: each is bound to a name of its own before evaluation."""

from __future__ import annotations

from dataclasses import dataclass

from trainwarden.policies.expressions.protocol import CelValue
from trainwarden.policies.expressions.types import CelType

__all__ = ["Argument", "Slot"]

Argument = CelValue | tuple[str]
"""A constant of a call, or the name of a policy's variable in a tuple."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One thing that an expression reads.

    Kinds: `variable` (a dotted name), `own` (a variable of the policy), `metric` (its newest value), `known` (whether a
    metric was ever reported), `names` (all metrics ever reported), `finite` (newest values by name), `call` (a function
    of the history with arguments known beforehand).
    """

    name: str  # in the checked text
    kind: str
    of: str  # dotted name, variable, metric or function
    type: CelType
    text: str  # as written
    arguments: tuple[Argument, ...] = ()
