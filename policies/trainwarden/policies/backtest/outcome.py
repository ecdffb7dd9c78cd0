"""What a replay found: what fired when, and what each policy would have made of the run. Plain data, JSON names."""

from __future__ import annotations

import msgspec

from trainwarden.policies.decision import ActionType, Value

__all__ = ["Curve", "Firing", "PolicyOutcome", "Replay", "Stop"]


class Firing(msgspec.Struct, frozen=True, rename="camel"):
    """A rule that began to fire, or a later step of its ladder."""

    policy: str
    rule: str
    metric: str | None  # the one that was judged; None for a rule about pace, time or money
    step: int
    elapsed_seconds: float
    values: dict[str, Value]  # what the condition read
    action: ActionType | None  # the most disruptive one that was due at this moment; None: the rule has none yet
    message: str = ""
    to_come: float | None = None  # share of the metric's improvement that came after; None when it is not known


class Stop(msgspec.Struct, frozen=True, rename="camel"):
    """The first Suspend, Stop or Delete of a policy."""

    rule: str
    metric: str | None  # by which the stop is judged: the rule's when it is an aim, else the run's main one
    action: ActionType
    step: int
    elapsed_seconds: float
    to_come: float | None  # share of the metric's improvement that came after
    wrong: bool  # more than the tolerated share was still to come
    gpu_hours_saved: float  # from the stop to the end of the recording, of a right stop
    gpu_hours_lost: float  # spent up to the stop, of a wrong one
    money_saved: float | None  # None without a price
    money_lost: float | None


class PolicyOutcome(msgspec.Struct, frozen=True, rename="camel"):
    """One policy about one run."""

    policy: str
    fires: int  # episodes of all its rules
    stop: Stop | None
    matched: bool = True  # whether it was for this run
    without_value: dict[str, str] = {}  # rules whose condition never had a value in it, and why at the last look


class Curve(msgspec.Struct, frozen=True, rename="camel"):
    """A metric of the run, made small; of equal length each."""

    metric: str
    steps: tuple[int, ...]
    values: tuple[float, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]


class Replay(msgspec.Struct, frozen=True, rename="camel"):
    """One run replayed."""

    id: str
    last_step: int
    elapsed_seconds: float
    firings: tuple[Firing, ...]
    outcomes: tuple[PolicyOutcome, ...]
    metric: str | None  # main one
    idle_seconds: float | None  # after the last 1 % of the main metric's improvement
    reports: int
    clock: bool  # a clock was recorded; else steps were counted as time
    curves: tuple[Curve, ...] = ()
