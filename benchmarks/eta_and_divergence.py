"""Measure the time left and the alarms on recorded curves: errors, coverage of bands, recall, delay, false alarms.

    python -m benchmarks.eta_and_divergence [--judge eta|divergence|overfitting] [--every N] [--source NAME]

`eta` replays the recorded clocks of trainings, each row as a report, and compares what `progress.eta` said with what
came: as recorded; after a resume at half the steps that waited three hours in a queue; with evaluations in a phase of
their own and checkpoints; and with the same evaluations inside the train phase, where nothing tells of them.
`divergence` asks the detector at every value, of runs as recorded and of the same runs spoilt at three places.
`overfitting` asks on pairs of evaluations, and counts stops before more than 1 % of the improvement.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from trainwarden.policies.facts import JobPhase, RunFacts
from trainwarden.policies.run import RunState
from trainwarden.reporters.wire import Phase, Report

CURVES = Path(__file__).resolve().parents[2] / "shared" / "curves"
T0 = datetime(2026, 1, 1, tzinfo=UTC)
PLACES = (0.1, 0.25, 0.5, 0.75)
"""Shares of the plan at which the time left is compared."""

Kind = Literal["as recorded", "resumed", "evaluations", "unnamed pauses"]
KINDS: tuple[Kind, ...] = ("as recorded", "resumed", "evaluations", "unnamed pauses")


@dataclass(frozen=True, slots=True)
class Timeline:
    """Steps of a training and the seconds at which they were done."""

    source: str
    id: str
    steps: tuple[int, ...]
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Forecast:
    """What was said at a place, and what came, in seconds."""

    expected: float
    low: float
    high: float
    came: float

    @property
    def error(self) -> float:
        """Relative to what came."""
        return abs(self.expected - self.came) / self.came

    @property
    def covered(self) -> bool:
        """Whether the band holds what came."""
        return self.low <= self.came <= self.high


def runs(folder: Path, source: str, every: int) -> Iterator[tuple[str, dict[str, object]]]:
    """Name of the file and the run, of every n-th run."""
    for path in sorted(folder.glob("*.jsonl.gz")):
        if source not in path.name:
            continue
        with gzip.open(path, "rt") as lines:
            for number, line in enumerate(lines):
                if number % every == 0:
                    yield path.name.split(".")[0], json.loads(line)


def timeline(source: str, run: dict[str, object]) -> Timeline | None:
    """The recorded clock of a run, from where it was last set back; None with fewer than 40 rows.

    The last row of each step counts.
    """
    rows: dict[int, float] = {}
    latest = 0.0
    for step, told in run["elapsed"]:  # type: ignore[attr-defined]
        seconds = float(told)
        if not math.isfinite(seconds):
            continue
        if seconds < latest:
            rows.clear()
        latest = seconds
        rows[int(step)] = seconds
    if len(rows) < 40:
        return None
    return Timeline(source, str(run["id"]), tuple(rows), tuple(rows.values()))


def started(attempt: str, at: datetime) -> RunFacts:
    """Facts of a job whose attempt began then."""
    return RunFacts("n", "j", "u", JobPhase.RUNNING, at, T0, attempt, attempt_started_at=at, ready=True)


def forecasts(line: Timeline, kind: Kind) -> Iterator[tuple[float, Forecast]]:
    """Replay a clock, and compare at each place; after a resume, places are shares of what was left then."""
    total, first = line.steps[-1], 0
    state = RunState(started("a", T0))
    paused = 0.0  # seconds that were put in
    whole = line.seconds[-1] - line.seconds[0]
    every, each = max(total // 17, 1), whole / 17 * 0.3
    rows = list(zip(line.steps, line.seconds, strict=True))
    begin = rows[0][0]
    if kind == "resumed":
        first = next(index for index, (step, _) in enumerate(rows) if step >= total // 2)
        begin = rows[first][0]
    said: list[tuple[float, datetime, float, float, float]] = []
    due = [begin + place * (total - begin) for place in PLACES]
    seq, newest = 0, T0

    def tell(run: str, step: int, phase: Phase, at: float) -> None:
        nonlocal seq, newest
        newest = T0 + timedelta(seconds=at)
        state.observe(Report(run, seq, 0.0, "p", phase, step, total=total, metrics={"loss": 1.0}), newest)
        seq += 1

    run = "r"
    for index, (step, at) in enumerate(rows):
        if index == first and kind == "resumed":
            paused += 3 * 3600
            run = "r2"
            state.learn(started("b", T0 + timedelta(seconds=at + paused)))
        if kind == "evaluations" and index:  # reporters tell of steps more often than these rows
            (step_then, then), beats = rows[index - 1], math.ceil((at - rows[index - 1][1]) / 60)
            for beat in range(1, beats):
                passed = (at - then) * beat / beats
                tell(run, step_then + (step - step_then) * beat // beats, "train", then + passed + paused)
        tell(run, step, "train", at + paused)
        if index and step // every > rows[index - 1][0] // every and kind in ("evaluations", "unnamed pauses"):
            if kind == "evaluations":
                beats = max(math.ceil(each / 60), 1)
                for beat in range(beats):
                    tell(run, step, "eval", at + paused + each * beat / beats)
                tell(run, step, "checkpoint", at + paused + each)
                tell(run, step, "train", at + paused + each * 1.2)
                paused += each * 1.2
            else:
                paused += min(each, 250.0)
        while due and step >= due[0] and index >= first:
            place = PLACES[len(PLACES) - len(due)]
            due.pop(0)
            eta = state.eta(newest)
            if eta is not None:
                low, middle, high = (length.total_seconds() for length in (eta.low, eta.expected, eta.high))
                said.append((place, newest, middle, low, high))
    end = T0 + timedelta(seconds=line.seconds[-1] + paused)
    if kind == "evaluations" and total // every > rows[-2][0] // every:
        end -= timedelta(seconds=each * 1.2)  # what follows the last step is not awaited
    if kind == "unnamed pauses" and total // every > rows[-2][0] // every:
        end -= timedelta(seconds=min(each, 250.0))
    for place, moment, middle, low, high in said:
        came = (end - moment).total_seconds()
        if came > 0:
            yield place, Forecast(middle, low, high, came)


def judge_eta(lines: Sequence[Timeline]) -> list[str]:
    """Markdown rows, one per source, kind and place."""
    rows = [
        "| clocks | replayed | at | forecasts | median error | 90 % below | band covers | median width of the band |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for source in sorted({line.source for line in lines}):
        for kind in KINDS:
            found: dict[float, list[Forecast]] = defaultdict(list)
            for line in lines:
                if line.source == source:
                    for place, forecast in forecasts(line, kind):
                        found[place].append(forecast)
            found[math.inf] = [forecast for place in PLACES for forecast in found[place]]
            for place, group in found.items():
                if not group:
                    continue
                errors = sorted(forecast.error for forecast in group)
                width = statistics.median((each.high - each.low) / each.came for each in group)
                rows.append(
                    f"| {source} | {kind} | {'all' if place == math.inf else f'{place:.0%}'} | {len(group)} | "
                    f"{statistics.median(errors):.2%} | {errors[int(0.9 * len(errors))]:.2%} | "
                    f"{sum(each.covered for each in group) / len(group):.0%} | {width:.2%} |"
                )
    return rows


def main() -> None:
    """Read, replay, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curves", type=Path, default=CURVES)
    parser.add_argument("--every", type=int, default=1, help="replay only every n-th run")
    parser.add_argument("--judge", choices=("eta",), default="eta")
    parser.add_argument("--source", default="", help="only files with this in their name")
    options = parser.parse_args()
    every = runs(options.curves, options.source, options.every)
    lines = [line for source, run in every if (line := timeline(source, run)) is not None]
    print("\n".join(judge_eta(lines)))


if __name__ == "__main__":
    main()
