"""Measure `overfitting` on recorded pairs of evaluations: how often it stops, when, and what was still to come.

    python -m benchmarks.overfitting_quality [--every N] [--curves FOLDER]

Pairs are `train/NAME` and `validation/NAME` of AlgoPerf runs, asked at every evaluation, over windows as shares of the
run. A stop is wrong when the best value so far is short of the best of the whole run by more than 1 % of its gain.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections import defaultdict
from datetime import timedelta
from pathlib import Path

from benchmarks.eta_and_divergence import CURVES, T0, runs, started

from trainwarden.policies.directions import higher_is_better
from trainwarden.policies.expressions.protocol import UnknownValueError
from trainwarden.policies.run import RunState
from trainwarden.reporters.wire import Report

SHARES = (0.1, 0.2, 0.4)
"""Windows, as shares of a run's steps."""

Row = tuple[int, float, float]  # step, training value, evaluation


def pairs(run: dict[str, object]) -> dict[str, list[Row]]:
    """Rows by name, for names that have 30 evaluations of both kinds."""
    series: dict[str, list[tuple[int, object]]] = run["series"]  # type: ignore[assignment]
    found = {}
    for name in (each.removeprefix("validation/") for each in series if each.startswith("validation/")):
        train = {step: float(str(value)) for step, value in series.get(f"train/{name}", [])}
        evaluation = {step: float(str(value)) for step, value in series[f"validation/{name}"]}
        rows = [(step, train[step], evaluation[step]) for step in sorted(train.keys() & evaluation.keys())]
        rows = [row for row in rows if math.isfinite(row[1]) and math.isfinite(row[2])]
        if len(rows) >= 30:
            found[name] = rows
    return found


def stop(name: str, rows: list[Row], share: float) -> int | None:
    """Place at which `overfitting` first fires; None: never."""
    state, window = RunState(started("a", T0)), max(int((rows[-1][0] - rows[0][0]) * share), 1)
    arguments = (f"validation/{name}", f"train/{name}", window)
    for place, (step, train, evaluation) in enumerate(rows):
        at = T0 + timedelta(seconds=60 * place)
        metrics = {f"train/{name}": train, f"validation/{name}": evaluation}
        state.observe(Report("r", place, 0.0, "p", "eval", step, metrics=metrics), at)
        try:
            if state.scope(at).call("overfitting", arguments):
                return place
        except UnknownValueError:
            continue
    return None


def main() -> None:
    """Read, replay, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curves", type=Path, default=CURVES)
    parser.add_argument("--every", type=int, default=1, help="replay only every n-th run")
    options = parser.parse_args()
    asked: dict[float, int] = defaultdict(int)
    stops: dict[float, list[tuple[float, float]]] = defaultdict(list)  # shares of the run done, and to come
    for _, run in runs(options.curves, "algoperf", options.every):
        for name, rows in pairs(run).items():
            sign = -1.0 if higher_is_better(name) else 1.0
            levels = [sign * row[2] for row in rows]
            gain = max(levels[0] - min(levels), 1e-12)
            for share in SHARES:
                asked[share] += 1
                place = stop(name, rows, share)
                if place is not None:
                    to_come = (min(levels[: place + 1]) - min(levels)) / gain
                    stops[share].append(((place + 1) / len(rows), to_come))
    print("| window | pairs | stopped | median place | wrong (> 1 % to come) | most to come |")
    print("| --- | --- | --- | --- | --- | --- |")
    for share in SHARES:
        found = stops[share]
        wrong = sum(to_come > 0.01 for _, to_come in found)
        middle = f"{statistics.median(place for place, _ in found):.0%}" if found else "–"
        most = max((to_come for _, to_come in found), default=0.0)
        print(
            f"| {share:.0%} of the run | {asked[share]} | {len(found)} | {middle} | "
            f"{wrong} ({wrong / max(asked[share], 1):.1%} of runs) | {most:.1%} |"
        )


if __name__ == "__main__":
    main()
