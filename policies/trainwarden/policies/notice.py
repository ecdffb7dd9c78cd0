"""What a person is to be told about one incident: what a message needs, before words and pictures."""

from __future__ import annotations

from datetime import datetime

import msgspec

from trainwarden.policies.decision import Decision, Proof

__all__ = ["Curve", "Notice", "Outcome"]


class Curve(msgspec.Struct, frozen=True, rename="camel"):
    """A metric's history for a picture, downsampled to at most some hundred points."""

    metric: str
    steps: tuple[int, ...]
    values: tuple[float, ...]  # finite; same length as steps
    lows: tuple[float, ...] = ()  # envelope of downsampled points; empty or same length
    highs: tuple[float, ...] = ()
    window_from: int | None = None  # steps of the rule's window, to be marked
    window_to: int | None = None
    fired_at: int | None = None
    best_step: int | None = None


class Outcome(msgspec.Struct, frozen=True, rename="camel"):
    """One action of the incident and what has become of it, or is planned."""

    action: str  # "Suspend"
    state: str  # an ActionState, or "Planned"
    message: str = ""
    at: datetime | None = None  # when it was done, or is due


class Notice(msgspec.Struct, frozen=True, rename="camel"):
    """One message to people. All notices of an incident share `incident`, so that a channel can keep them together."""

    id: str  # unique; a repeated id is not sent again
    incident: str  # one firing of one rule for one job
    time: datetime
    decision: Decision
    channels: tuple[str, ...]  # names of channels; empty: the default ones
    condition: str = ""  # the rule's `when`, as written
    because: str = ""  # why it fired, such as `its loss went flat`; empty when no single known clause was true
    curve: Curve | None = None
    outcomes: tuple[Outcome, ...] = ()
    checkpoint: Proof | None = None
    checkpoint_age_seconds: float | None = None
    progress_percent: float | None = None
    eta_seconds: float | None = None
    running_seconds: float | None = None
    cost: float | None = None  # so far
    saved_cost: float | None = None  # what the rest of the plan would have cost
    saved_seconds: float | None = None
    resume_command: str = ""
    contest: str = ""  # how people can object, from whoever sends it; empty when that is not known
    action_id: str = ""  # the Notify action that asked for it; empty for an outcome
