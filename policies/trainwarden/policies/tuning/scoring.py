"""What a candidate did to each run, summed, with how far the sums can be trusted.

Wrong stops: a Wilson interval (Wilson 1927) on the share of runs, with the number of runs divided by the design
effect (Kish 1965) of groups whose runs err together. Savings: a percentile bootstrap (Efron 1979) that draws groups.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from trainwarden.policies.backtest.outcome import PolicyOutcome, Replay

__all__ = ["Effect", "Score", "effect_of", "runs_needed", "score", "wilson"]

_DRAWS = 1000
_SEED = 1


@dataclass(frozen=True, slots=True)
class Effect:
    """One candidate on one run."""

    group: str
    stopped: bool = False
    wrong: bool = False
    unjudged: bool = False  # no metric tells whether the stop was right; counts as right
    idle: float = 0.0  # seconds that the run could have been spared
    saved: float = 0.0  # seconds of those that were, by a right stop
    lost: float = 0.0  # seconds spent up to a wrong stop


@dataclass(frozen=True, slots=True)
class Score:
    """A candidate over runs; shares are from 0 to 1."""

    runs: int
    groups: int
    stops: int
    wrong: int
    unjudged: int
    wrong_low: float
    wrong_high: float
    saved: float | None  # share of the time that could have been spared; None when there was none
    saved_low: float | None
    saved_high: float | None
    hours_saved: float
    hours_lost: float


def effect_of(replay: Replay, outcome: PolicyOutcome, group: str, useful: Mapping[str, int | None]) -> Effect:
    """What a candidate did to a run.

    Args:
        replay: The run.
        outcome: Of the candidate.
        group: Of the run.
        useful: Labels: the step up to which a run was worth its time, None for its end. A stop before is wrong. Its
            time is that share of the run's time. A run without a label is judged as the backtest does.
    """
    stop, elapsed = outcome.stop, replay.elapsed_seconds
    idle = replay.idle_seconds or 0.0
    wrong = stop is not None and stop.wrong
    unjudged = stop is not None and stop.to_come is None
    if replay.id in useful:
        until, unjudged = useful[replay.id], False
        share = 1.0 if until is None else min(until / replay.last_step, 1.0) if replay.last_step > 0 else 0.0
        idle = elapsed * (1.0 - share)
        wrong = stop is not None and (until is None or stop.step < until)
    if stop is None:
        return Effect(group, idle=idle)
    if wrong:
        return Effect(group, stopped=True, wrong=True, idle=idle, lost=stop.elapsed_seconds)
    saved = min(max(elapsed - stop.elapsed_seconds, 0.0), idle)
    return Effect(group, stopped=True, unjudged=unjudged, idle=idle, saved=saved)


def wilson(share: float, of: float, confidence: float) -> tuple[float, float]:
    """The two-sided Wilson interval of a share among `of` runs, which may be an effective number."""
    if of <= 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    half = z / (1 + z * z / of) * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return (0.0 if share == 0 else max(middle - half, 0.0)), (1.0 if share == 1 else min(middle + half, 1.0))


def runs_needed(most_wrong: float, confidence: float) -> int | None:
    """How many runs without a wrong stop bring the upper bound down to a share; None when no number of them does."""
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    return math.ceil(z * z * (1 - most_wrong) / most_wrong) if most_wrong > 0 else None


def score(effects: Sequence[Effect], *, gpus: int, confidence: float) -> Score:
    """Sum one candidate's effects."""
    groups: defaultdict[str, list[Effect]] = defaultdict(list)
    for effect in effects:
        groups[effect.group].append(effect)
    wrong, runs = sum(each.wrong for each in effects), len(effects)
    effective = runs / _design_effect(list(groups.values()), wrong, runs)
    low, high = wilson(wrong / runs if runs else 0.0, effective, confidence)
    idle, saved = sum(each.idle for each in effects), sum(each.saved for each in effects)
    saved_low, saved_high = _bootstrap(list(groups.values()), confidence) if idle > 0 else (None, None)
    return Score(
        runs=runs,
        groups=len(groups),
        stops=sum(each.stopped for each in effects),
        wrong=wrong,
        unjudged=sum(each.unjudged for each in effects),
        wrong_low=low,
        wrong_high=high,
        saved=saved / idle if idle > 0 else None,
        saved_low=saved_low,
        saved_high=saved_high,
        hours_saved=saved / 3600 * gpus,
        hours_lost=sum(each.lost for each in effects) / 3600 * gpus,
    )


def _design_effect(groups: Sequence[Sequence[Effect]], wrong: int, runs: int) -> float:
    """How many times the variance of the share is what it were if runs erred independently; at least 1."""
    if len(groups) < 2 or not 0 < wrong < runs:
        return 1.0
    share = wrong / runs
    spread = sum((sum(each.wrong for each in group) - share * len(group)) ** 2 for group in groups)
    clustered = spread * len(groups) / (len(groups) - 1) / runs**2
    return max(clustered / (share * (1 - share) / runs), 1.0)


def _bootstrap(groups: Sequence[Sequence[Effect]], confidence: float) -> tuple[float, float] | tuple[None, None]:
    """The interval of the share saved; none for a single group, which tells nothing of others."""
    if len(groups) < 2:
        return None, None
    sums = [(sum(each.saved for each in group), sum(each.idle for each in group)) for group in groups]
    chance, shares = random.Random(_SEED), []  # noqa: S311 - not for secrets
    for _ in range(_DRAWS):
        drawn = chance.choices(sums, k=len(sums))
        idle = sum(each for _, each in drawn)
        if idle > 0:
            shares.append(sum(each for each, _ in drawn) / idle)
    shares.sort()
    if not shares:
        return None, None
    tail = (1 - confidence) / 2
    return shares[int(tail * (len(shares) - 1))], shares[math.ceil((1 - tail) * (len(shares) - 1))]
