"""Replay the detectors over recorded curves, and print how often they are wrong.

    python -m benchmarks.detector_quality [--judge plateau|divergence|injected|spike] [--every N] [--processes N]

A stop by `plateau` is wrong when more than 1 % of the run's whole improvement was still to come, as in the table of
peers that `docs/detectors.md` compares with. Improvement is measured on the moving average of 2 % of the points.
`injected` spoils real curves halfway (not a number, three times the level, growth by 1 % a value, frozen at its level
with its own noise), and counts how many are found before the end.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import math
import random
import statistics
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from trainwarden.policies.directions import higher_is_better
from trainwarden.policies.expressions.protocol import UnknownValueError
from trainwarden.policies.facts import JobPhase, RunFacts
from trainwarden.policies.run import RunState
from trainwarden.reporters.wire import Report

CURVES = Path(__file__).resolve().parents[2] / "shared" / "curves"
T0 = datetime(2026, 1, 1, tzinfo=UTC)
SHARES = (0.02, 0.05, 0.1, 0.2)
"""Windows, as shares of a run's steps."""


@dataclass(frozen=True, slots=True)
class History:
    """One metric of one recorded run, finite values only."""

    source: str
    id: str
    metric: str
    steps: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """The first time that a detector fired."""

    history: History
    share: float
    at: float | None  # share of the run that was done; None when it never fired
    to_come: float  # share of the whole improvement that came after


def read(path: Path, every: int) -> Iterator[History]:
    """The metrics of every n-th run of a file that are worth judging."""
    with gzip.open(path, "rt") as lines:
        for number, line in enumerate(lines):
            if number % every:
                continue
            run = json.loads(line)
            for metric, points in run["series"].items():
                if metric in ("lr", "grad_norm") or metric.startswith("train/"):
                    continue
                clean = [(step, float(value)) for step, value in points if math.isfinite(float(value))]
                if len(clean) >= 30:
                    steps, values = zip(*sorted(dict(clean).items()), strict=True)
                    yield History(path.name.split(".")[0], run["id"], metric, steps, values)


def replay(history: History, function: str, share: float, *, checks: int = 32) -> int | None:
    """Place in the history at which a detector first fires over a window of `share` of the steps; None: never."""
    window = max(int((history.steps[-1] - history.steps[0]) * share), 1)
    state = RunState(RunFacts("n", "j", "u", JobPhase.RUNNING, T0, T0, "a", attempt_started_at=T0, ready=True))
    due = 0.0
    for seq, (step, value) in enumerate(zip(history.steps, history.values, strict=True)):
        at = T0 + timedelta(seconds=seq)
        finite = math.isfinite(value)
        metrics, odd = ({history.metric: value}, {}) if finite else ({}, {history.metric: "NaN"})
        state.observe(Report("r", seq, 0.0, "p", "train", step, metrics=metrics, nonfinite=odd), at)
        if step < due:
            continue
        due = step + window / checks
        try:
            if state.scope(at).call(function, (history.metric, window)):
                return seq
        except UnknownValueError:
            continue
    return None


def spoil(history: History, kind: str) -> History:
    """A history that goes wrong halfway."""
    half = len(history.values) // 2
    tail = history.values[half - max(half // 10, 8) : half]
    level = statistics.fmean(tail)
    chance = random.Random(history.id)
    jumps = [(b - a) / math.sqrt(2) for a, b in itertools.pairwise(tail)]

    def after(index: int, value: float) -> float:
        match kind:
            case "not a number":
                return math.nan
            case "level x 3":
                return 3 * value
            case "grows by 1 %":
                return value * 1.01 ** min(index, 2000)
        return level + chance.choice(jumps)

    values = [*history.values[:half], *(after(index, value) for index, value in enumerate(history.values[half:]))]
    return replace(history, values=tuple(values))


def find(job: tuple[History, str, str, float]) -> tuple[str, float, float | None, bool]:
    """Kind, window, windows passed from the injection to the finding (None: never), and whether it came too early."""
    history, function, kind, share = job
    place = replay(spoil(history, kind), function, share)
    if place is None:
        return kind, share, None, False
    span = history.steps[-1] - history.steps[0]
    half = history.steps[len(history.steps) // 2]
    return kind, share, (history.steps[place] - half) / (span * share), history.steps[place] < half


def injected(histories: Sequence[History]) -> list[str]:
    """Markdown rows of what was injected and found, over histories with 500 values and more."""
    kinds = {
        "not a number": "divergence",
        "level x 3": "divergence",
        "grows by 1 %": "divergence",
        "frozen at its level": "plateau",
    }
    long = [history for history in histories if len(history.values) >= 500]
    found: dict[tuple[str, float], list[tuple[float | None, bool]]] = {}
    for kind, function in kinds.items():
        for history in long:
            for share in SHARES:
                _, _, delay, early = find((history, function, kind, share))
                found.setdefault((kind, share), []).append((delay, early))
    rows = [
        "| injected halfway | found by | window | curves | found | too early | median delay in windows |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (kind, share), answers in found.items():
        delays = [delay for delay, early in answers if delay is not None and not early]
        rows.append(
            f"| {kind} | `{kinds[kind]}` | {share:.0%} of the run | {len(answers)} | {len(delays)} | "
            f"{sum(early for _, early in answers)} | {f'{statistics.median(delays):.1f}' if delays else '–'} |"
        )
    return rows


def spikes(histories: Sequence[History]) -> list[str]:
    """Markdown rows of how often `spike` fires on training losses with 1,000 values and more, asked at each value."""
    rows = [
        "| curves | window | runs | runs with a spike | spikes per 1,000 values |",
        "| --- | --- | --- | --- | --- |",
    ]
    for source in sorted({history.source for history in histories}):
        long = [each for each in histories if each.source == source and len(each.values) >= 1000]
        for share in SHARES if long else ():
            counts = [count_spikes(history, share) for history in long]
            values = sum(len(history.values) for history in long)
            rows.append(
                f"| {source}, training loss | {share:.0%} of the run | {len(long)} | "
                f"{sum(count > 0 for count in counts)} | {1000 * sum(counts) / values:.2f} |"
            )
    return rows


def count_spikes(history: History, share: float) -> int:
    """How many values of a history are spikes over a window of `share` of its steps."""
    window = int((history.steps[-1] - history.steps[0]) * share)
    state = RunState(RunFacts("n", "j", "u", JobPhase.RUNNING, T0, T0, "a", attempt_started_at=T0, ready=True))
    found = 0
    for seq, (step, value) in enumerate(zip(history.steps, history.values, strict=True)):
        at = T0 + timedelta(seconds=seq)
        state.observe(Report("r", seq, 0.0, "p", "train", step, metrics={history.metric: value}), at)
        try:
            found += bool(state.scope(at).call("spike", (history.metric, window)))
        except UnknownValueError:
            continue
    return found


def smooth(values: Sequence[float]) -> list[float]:
    """Moving average over 2 % of the points, at most as many as there are before."""
    width = max(len(values) // 50, 1)
    averages: list[float] = []
    total = 0.0
    for index, value in enumerate(values):
        total += value
        if index >= width:
            total -= values[index - width]
        averages.append(total / min(index + 1, width))
    return averages


def judge(job: tuple[History, str, float]) -> Stop:
    """Replay one history, and say what came after the stop."""
    history, function, share = job
    place = replay(history, function, share)
    if place is None:
        return Stop(history, share, None, 0.0)
    sign = -1.0 if higher_is_better(history.metric) else 1.0
    level = smooth([sign * value for value in history.values])
    whole = level[0] - min(level)
    later = min(level[: place + 1]) - min(level)
    span = history.steps[-1] - history.steps[0]
    return Stop(history, share, (history.steps[place] - history.steps[0]) / span, later / whole if whole > 0 else 0.0)


def table(stops: Sequence[Stop]) -> list[str]:
    """Markdown rows, one per kind of curve and window."""
    groups: dict[tuple[str, str, float], list[Stop]] = {}
    for stop in stops:
        kind = "training loss" if stop.history.metric in ("loss", "train_loss") else "evaluations"
        groups.setdefault((stop.history.source, kind, stop.share), []).append(stop)
    rows = [
        "| curves | window | runs | stopped | median place | wrong (> 1 % to come) | > 3 % to come | most to come |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (source, kind, share), group in sorted(groups.items()):
        stopped = [stop for stop in group if stop.at is not None]
        wrong = [stop for stop in stopped if stop.to_come > 0.01]
        bad = [stop for stop in stopped if stop.to_come > 0.03]
        places = [stop.at for stop in stopped if stop.at is not None]
        rows.append(
            f"| {source}, {kind} | {share:.0%} of the run | {len(group)} | {len(stopped)} | "
            f"{f'{statistics.median(places):.0%}' if places else '–'} | "
            f"{len(wrong)} ({len(wrong) / max(len(stopped), 1):.0%} of stops) | {len(bad)} | "
            f"{max((stop.to_come for stop in stopped), default=0.0):.1%} |"
        )
    return rows


def main() -> None:
    """Read, replay, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curves", type=Path, default=CURVES)
    parser.add_argument("--every", type=int, default=1, help="replay only every n-th run")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--judge", choices=("plateau", "divergence", "injected", "spike"), default="plateau")
    parser.add_argument("--worst", type=int, default=0, help="also list so many of the worst stops")
    parser.add_argument("--source", default="", help="only this file")
    options = parser.parse_args()
    histories = [
        history
        for path in sorted(options.curves.glob("*.jsonl.gz"))
        if options.source in path.name
        for history in read(path, options.every)
    ]
    if options.judge == "injected":
        print("\n".join(injected(histories)))
        return
    if options.judge == "spike":
        print("\n".join(spikes(histories)))
        return
    jobs = [(history, options.judge, share) for history in histories for share in SHARES]
    if options.processes > 1:
        with ProcessPoolExecutor(options.processes) as pool:
            stops = list(pool.map(judge, jobs, chunksize=8))
    else:
        stops = [judge(job) for job in jobs]
    print("\n".join(table(stops)))
    for stop in sorted(stops, key=lambda stop: -stop.to_come)[: options.worst]:
        print(f"{stop.to_come:.1%} at {stop.at} share {stop.share} {stop.history.metric} {stop.history.id}")


if __name__ == "__main__":
    main()
