"""Recorded curves for benchmarks of stop rules: which metric of a run is judged, and what a stop would have saved."""

from __future__ import annotations

import gzip
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trainwarden.policies.backtest.track import Track
from trainwarden.policies.directions import higher_is_better

__all__ = ["CURVES", "KINDS", "Curve", "Kind", "Score", "read", "score"]

CURVES = Path(__file__).resolve().parents[2] / "shared" / "curves"

Kind = Literal["held-out loss", "quality", "training loss"]
KINDS: tuple[Kind, ...] = ("held-out loss", "quality", "training loss")
"""Which metric of a run is judged: one for each run that has it."""

TOLERATED = 0.01
"""Share of a run's improvement that may still be to come when it is stopped."""

_HELD_OUT = ("val", "valid", "validation", "eval", "test")
_LEAST = 8  # values of a curve
_WORKLOAD = re.compile(r"/([a-z]+[0-9]*[a-z]*)[a-z0-9_]*_(?:jax|pytorch)/")


@dataclass(frozen=True, slots=True)
class Curve:
    """One metric of one run, finite values only, in order of step."""

    id: str
    workload: str
    metric: str
    higher: bool
    steps: tuple[int, ...]
    seconds: tuple[float, ...]
    values: tuple[float, ...]
    plan: int | None  # steps planned, as recorded

    def judged(self) -> Track:
        """The curve as backtests judge it."""
        track = Track(self.metric)
        for step, second, value in zip(self.steps, self.seconds, self.values, strict=True):
            track.add(step, second, value)
        return track


@dataclass(frozen=True, slots=True)
class Score:
    """What a rule did to some curves. Each run counts alike, however long it took."""

    runs: int
    stops: int
    wrong: int  # more than 1 % of the improvement was still to come
    saved: float  # sum of the shares of runs that right stops saved
    idle: float  # sum of the shares of runs that came after the last 1 % of improvement
    most_lost: float  # greatest share of a run's improvement that a stop lost

    @property
    def wrong_share(self) -> float:
        return self.wrong / max(self.runs, 1)

    @property
    def idle_saved(self) -> float:
        return self.saved / self.idle if self.idle else 0.0


def read(paths: Iterable[Path], kind: Kind, *, every: int = 1) -> Iterator[Curve]:
    """One curve of a kind from every n-th run that has it."""
    for path in paths:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
            for number, line in enumerate(lines):
                if number % every == 0:
                    curve = _curve(json.loads(line), kind)
                    if curve is not None:
                        yield curve


def score(curves: Sequence[Curve], stops: Sequence[int | None]) -> Score:
    """What stops, each a place in its curve or None, would have been worth."""
    wrong, saved, idle, most = 0, 0.0, 0.0, 0.0
    for curve, place in zip(curves, stops, strict=True):
        track, took = curve.judged(), curve.seconds[-1] - curve.seconds[0]
        settled = track.settled_after(TOLERATED)
        idle += (curve.seconds[-1] - (curve.seconds[-1] if settled is None else settled)) / took
        if place is None:
            continue
        gain = track.gain(curve.seconds[place])
        lost = 1.0 if gain is None else gain.to_come
        most = max(most, lost)
        if lost > TOLERATED:
            wrong += 1
        else:
            saved += (curve.seconds[-1] - curve.seconds[place]) / took
    return Score(len(curves), sum(place is not None for place in stops), wrong, saved, idle, most)


def _curve(run: dict[str, object], kind: Kind) -> Curve | None:
    series = run["series"]
    assert isinstance(series, dict)
    metric = _metric(series, kind)
    if metric is None:
        return None
    points = {int(step): float(value) for step, value in series[metric] if math.isfinite(float(value))}
    steps = sorted(points)
    if len(steps) < _LEAST:
        return None
    seconds = _seconds(run, steps)
    if seconds[-1] <= seconds[0]:
        return None
    name, plan = str(run["id"]), run.get("total_steps")
    return Curve(
        name,
        _workload(name),
        metric,
        higher_is_better(metric),
        tuple(steps),
        seconds,
        tuple(points[step] for step in steps),
        plan if isinstance(plan, int) else None,
    )


def _metric(names: Iterable[str], kind: Kind) -> str | None:
    for name in sorted(names, key=lambda each: (len(each), each)):
        words = re.split(r"[/_]", name)
        held_out, loss = words[0] in _HELD_OUT, words[-1] == "loss"
        if kind == "training loss" and name in ("loss", "train_loss"):
            return name
        if kind == "held-out loss" and held_out and loss:
            return name
        if kind == "quality" and held_out and not loss:
            return name
    return None


def _seconds(run: dict[str, object], steps: Sequence[int]) -> tuple[float, ...]:
    """Seconds of each step, between the recorded ones on a straight line; the steps themselves without a clock."""
    rows = run.get("elapsed")
    assert isinstance(rows, list)
    known = sorted((int(step), float(second)) for step, second in rows if math.isfinite(float(second)))
    if len(known) < 2:
        return tuple(float(step) for step in steps)
    found, at = [], 0
    for step in steps:
        while at < len(known) - 2 and known[at + 1][0] < step:
            at += 1
        (low, early), (high, late) = known[at], known[at + 1]
        share = min(max((step - low) / (high - low), 0.0), 1.0) if high > low else 1.0
        found.append(early + (late - early) * share)
    return tuple(found)


def _workload(name: str) -> str:
    """The task that was trained; folds of a cross-validation are made of whole ones."""
    found = _WORKLOAD.search(name)
    return found[1] if found is not None else name.split("/")[0]
