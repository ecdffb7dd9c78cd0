"""Measure stop rules on recorded curves: wrong stops, training time saved, and both cross-validated by workload.

    python -m benchmarks.quality_plateau [--curves FOLDER|FILE …] [--table presets|crossvalidated|trade-off] [--every N]

A stop is wrong when more than 1 % of the run's whole improvement was still to come, as in backtests. Saved is the share
of the training time after the last 1 % of improvement that right stops save; each run counts alike. `presets` compares
the presets with the defaults of other tools. `crossvalidated` picks share and tolerance on all workloads but one, where
they may use up a half or a quarter of the wrong stops allowed, and reports on that one. `trade-off` shows what each
tolerance does.
"""

from __future__ import annotations

import argparse
import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from benchmarks.quality_curves import CURVES, KINDS, Curve, Kind, Score, read, score
from benchmarks.quality_peers import CRUDE, PEERS

from trainwarden.policies.detectors.gains import gain
from trainwarden.policies.detectors.outlook import (
    LEAST,
    LEAST_WITHOUT_PLAN,
    LEFT_WITHOUT_PLAN,
    still_to_gain,
)
from trainwarden.policies.functions import EARLY_PERCENT
from trainwarden.policies.presets import PRESETS, parameters
from trainwarden.policies.series import Series

Plan = Literal["last step", "unknown"]
PLANS: tuple[Plan, ...] = ("last step", "unknown")

GENERAL = ("conservative", "balanced", "eager")
SHARES = (0.4, 0.5, 0.6, 0.7, 0.8)
TOLERANCES = (0.002, 0.0025, 0.003, 0.0035, 0.004, 0.0045, 0.005, 0.0055, 0.006, 0.007, 0.008, 0.01, 0.015)
GOALS = {"conservative": 0.01, "balanced": 0.03}
MARGINS = (0.5, 0.25)
"""Parts of a goal that parameters may use up on the workloads that they are chosen on."""

_DENSE = 256  # from so many values on, looks lie apart by a 64th of the steps so far


@dataclass(frozen=True, slots=True)
class Look:
    """What a rule sees of a curve at one place."""

    place: int
    ratio: float  # the most that may still be gained over what was gained


def looks(curve: Curve, share: float, plan: Plan) -> list[Look]:
    """All places at which `plateau(metric, share, …)` has a value, with what it compares with its tolerance."""
    series, found, due = Series(), [], 0.0
    total = (curve.plan or curve.steps[-1]) if plan == "last step" else None
    for place, (step, value) in enumerate(zip(curve.steps, curve.values, strict=True)):
        series.add(step, float(place), value)
        if step <= 0 or step < due or (total is not None and 100 * step < EARLY_PERCENT * total):
            continue
        if total is None and series.count < LEAST_WITHOUT_PLAN:
            continue
        if len(curve.values) >= _DENSE:
            due = step * (1 + 1 / 64)
        view = series.since_step(int(step * share))
        best = series.best(higher=curve.higher)
        if (
            view.points < LEAST
            or len(view) < 2
            or series.first_step > step * share
            or view.low == view.high
            or not best
        ):
            continue
        sign = -1.0 if curve.higher else 1.0
        so_far = gain([sign * value for value in series.first], sign * best.value, values=series.count)
        left = LEFT_WITHOUT_PLAN if total is None else max(math.log(total / step), 0.0)
        if so_far > 0:
            found.append(Look(place, still_to_gain(view, share, left=left, higher=curve.higher) / so_far))
    return found


def first_below(seen: Sequence[Look], tolerance: float) -> int | None:
    """Place of the first look whose ratio is below a tolerance."""
    return next((look.place for look in seen if look.ratio < tolerance), None)


def peers(curves: Sequence[Curve]) -> Iterator[tuple[str, Score]]:
    """What the defaults of other tools do."""
    for name, rule in {**PEERS, "half of the run brought < 0.3 %, 30 % of the plan done": CRUDE}.items():
        stops = []
        for curve in curves:
            sign = -1.0 if curve.higher else 1.0
            stops.append(rule([sign * value for value in curve.values], curve.steps, curve.plan or curve.steps[-1]))
        yield name, score(curves, stops)


def presets(curves: Sequence[Curve], kind: Kind, names: Sequence[str] = GENERAL) -> list[str]:
    """Rows that compare presets with the defaults of other tools; names other than the general ones stand alone."""
    rows = []
    for name in names:
        share, tolerance = (_parameter(name, each, kind) for each in ("share", "tolerance"))
        for plan in PLANS:
            result = score(curves, [first_below(looks(curve, share, plan), tolerance) for curve in curves])
            rows.append(_row(f"**{name}**", kind, f"plan: {plan}", result))
    if tuple(names) == GENERAL:
        rows += [_row(name, kind, "", result) for name, result in peers(curves)]
    return rows


def _parameter(name: str, parameter: str, kind: Kind) -> float:
    """A number of a preset; one that depends on what is judged is written `training loss ? number : number`."""
    numbers = [float(each) for each in re.findall(r"[0-9]+\.[0-9]+", parameters(name)[parameter])]
    return numbers[0 if kind == "training loss" else -1]


def crossvalidated(curves: Sequence[Curve], kind: Kind) -> list[str]:
    """Rows of what parameters do to a workload that they were not chosen on."""
    rows = []
    workloads = sorted({curve.workload for curve in curves})
    for plan in PLANS:
        seen = {(curve.id, share): looks(curve, share, plan) for curve in curves for share in SHARES}
        judged = {
            (curve.id, share, tolerance): score([curve], [first_below(seen[curve.id, share], tolerance)])
            for curve in curves
            for share in SHARES
            for tolerance in TOLERANCES
        }
        for (goal, most), margin in itertools.product(GOALS.items(), MARGINS):
            picked: set[tuple[float, float]] = set()
            parts: list[Score] = []
            for held_out in workloads:
                others = [curve.id for curve in curves if curve.workload != held_out]
                fits = {
                    (share, tolerance): _sum([judged[each, share, tolerance] for each in others])
                    for share in SHARES
                    for tolerance in TOLERANCES
                }
                right = {key: fit for key, fit in fits.items() if fit.wrong_share <= margin * most}
                best = max(right or fits, key=lambda key: fits[key].idle_saved if right else -fits[key].wrong)
                picked.add(best)
                parts += [judged[(curve.id, *best)] for curve in curves if curve.workload == held_out]
            chosen = ", ".join(f"{share:g}/{tolerance:g}" for share, tolerance in sorted(picked))
            rows.append(
                _row(f"{goal}: {margin * most:.2%} wrong allowed", kind, f"plan: {plan}; chosen: {chosen}", _sum(parts))
            )
    return rows


def trade_off(curves: Sequence[Curve], kind: Kind) -> list[str]:
    """Rows of what each tolerance does."""
    rows = []
    for plan in PLANS:
        for share in (0.7, 0.5):
            seen = [looks(curve, share, plan) for curve in curves]
            for tolerance in TOLERANCES:
                result = score(curves, [first_below(each, tolerance) for each in seen])
                rows.append(_row(f"share {share:g}, tolerance {tolerance:g}", kind, f"plan: {plan}", result))
    return rows


def _sum(scores: Sequence[Score]) -> Score:
    return Score(
        sum(each.runs for each in scores),
        sum(each.stops for each in scores),
        sum(each.wrong for each in scores),
        math.fsum(each.saved for each in scores),
        math.fsum(each.idle for each in scores),
        max((each.most_lost for each in scores), default=0.0),
    )


def _row(rule: str, kind: str, note: str, result: Score) -> str:
    return (
        f"| {kind} | {rule} | {note} | {result.runs} | {result.stops} | {result.wrong} ({result.wrong_share:.1%}) | "
        f"{result.idle_saved:.0%} | {result.most_lost:.1%} |"
    )


def main() -> None:
    """Read, replay, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curves", type=Path, nargs="+", default=[CURVES], help="files or folders of *.jsonl[.gz]")
    parser.add_argument("--every", type=int, default=1, help="only every n-th run of a file")
    parser.add_argument("--table", choices=("presets", "crossvalidated", "trade-off"), default="presets")
    parser.add_argument("--presets", nargs="+", choices=PRESETS, default=list(GENERAL))
    parser.add_argument("--kind", choices=KINDS, help="only this metric of each run")
    options = parser.parse_args()
    paths = [
        path
        for each in options.curves
        for path in (sorted([*each.glob("*.jsonl.gz"), *each.glob("*.jsonl")]) if each.is_dir() else [each])
    ]
    made: dict[str, Callable[[Sequence[Curve], Kind], list[str]]] = {
        "presets": partial(presets, names=options.presets),
        "crossvalidated": crossvalidated,
        "trade-off": trade_off,
    }
    print("| judged | rule | | runs | stops | wrong (of all runs) | idle time saved | most lost |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for kind in [options.kind] if options.kind else KINDS:
        curves = list(read(paths, kind, every=options.every))
        if curves:
            print("\n".join(made[options.table](curves, kind)), flush=True)


if __name__ == "__main__":
    main()
