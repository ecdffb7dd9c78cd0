"""Measure the time left and the alarms on recorded curves: errors, coverage of bands, recall, delay, false alarms.

    python -m benchmarks.eta_and_divergence [--judge eta|divergence|evaluations] [--every N] [--source NAME]

`eta` replays the recorded clocks of trainings, each row as a report, and compares what `progress.eta` said with what
came: as recorded; after a resume at half the steps that waited three hours in a queue; with evaluations in a phase of
their own and checkpoints; and with the same evaluations inside the train phase, where nothing tells of them.
`divergence` asks the detector at every value of training losses, as recorded and spoilt at three places; `evaluations`
asks the same of evaluations.
"""

from __future__ import annotations

import argparse
import copy
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

from trainwarden.policies.directions import higher_is_better
from trainwarden.policies.expressions.protocol import UnknownValueError
from trainwarden.policies.facts import JobPhase, RunFacts
from trainwarden.policies.run import RunState
from trainwarden.reporters.wire import Phase, Report

CURVES = Path(__file__).resolve().parents[2] / "shared" / "curves"
T0 = datetime(2026, 1, 1, tzinfo=UTC)
PLACES = (0.1, 0.25, 0.5, 0.75)
"""Shares of the plan at which the time left is compared."""

LOSSES = ("loss", "train_loss")
ONSETS = (0.3, 0.6, 0.85)
"""Shares of a run at which it is spoilt."""

DRIFTS = {"drift of 5 % per 1 %": 0.05, "drift of 20 % per 1 %": 0.2}
INJECTED = ("not a number", "level x 1.5", "level x 2", "level x 3", "level x 10", *DRIFTS)

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


@dataclass(frozen=True, slots=True)
class History:
    """One metric of one run, by step; not finite where it was recorded so."""

    source: str
    id: str
    metric: str
    total: int | None
    steps: tuple[int, ...]
    values: tuple[float, ...]


def histories(source: str, run: dict[str, object], *, dense: bool) -> Iterator[History]:
    """The training loss of a run, or else its evaluations, with 30 values and more."""
    for metric, points in run["series"].items():  # type: ignore[attr-defined]
        if metric in ("lr", "grad_norm") or metric.startswith("train/") or (metric in LOSSES) != dense:
            continue
        clean = sorted({int(step): float(value) for step, value in points}.items())
        if len(clean) >= 30:
            steps, values = zip(*clean, strict=True)
            total = run["total_steps"]
            yield History(source, str(run["id"]), metric, total if isinstance(total, int) else None, steps, values)


class Watch:
    """Asks `divergence` at every value of a metric, ten seconds from one to the next."""

    def __init__(self, history: History, window: int | None) -> None:
        self._state = RunState(started("a", T0))
        self._history = history
        self._seq = 0
        self._arguments = (history.metric,) if window is None else (history.metric, window)

    def fires(self, step: int, value: float) -> bool:
        """Report a value, and ask."""
        at = T0 + timedelta(seconds=10 * self._seq)
        name, finite = self._history.metric, math.isfinite(value)
        metrics, odd = ({name: value}, {}) if finite else ({}, {name: "NaN"})
        total = self._history.total
        report = Report("r", self._seq, 0.0, "p", "train", step, total=total, metrics=metrics, nonfinite=odd)
        self._state.observe(report, at)
        self._seq += 1
        try:
            return self._state.scope(at).call("divergence", self._arguments) is True
        except UnknownValueError:
            return False


def levels(history: History) -> list[float]:
    """Medians of 5 values, turned so that lower is better."""
    sign = -1.0 if higher_is_better(history.metric) else 1.0
    values = [sign * value for value in history.values if math.isfinite(value)]
    return [statistics.median(values[at : at + 5]) for at in range(len(values) - 4)]


def steady(history: History) -> bool:
    """Whether a run is healthy throughout.

    All is finite, its end lies within a tenth of its gain from its best, and no stretch of 1 % of the run and 10 values
    lies above the best level before by a quarter of the gain then, or by half of that level's size where that is less.
    """
    level = levels(history)
    if len(level) + 4 < len(history.values):
        return False
    best, stretch, longest = level[0], 0, 0
    for each in level:
        gained = max(level[0] - best, 0.05 * abs(best))
        stretch = stretch + 1 if each > best + min(0.25 * gained, 0.5 * abs(best)) else 0
        longest = max(longest, stretch)
        best = min(best, each)
    return longest < max(0.01 * len(level), 10) and level[-1] - best < 0.1 * max(level[0] - best, 1e-12)


def spoilt(values: Sequence[float], kind: str, whole: int) -> Iterator[float]:
    """What follows an onset: not a number, a scale, or a scale that grows by a share with each 1 % of the run."""
    for index, value in enumerate(values):
        if kind == "not a number":
            yield math.nan
        elif kind.startswith("level x "):
            yield value * float(kind.removeprefix("level x "))
        else:
            yield value * (1 + DRIFTS[kind] * 100 * index / whole)


def judge_divergence(all_histories: Sequence[History], window: float | None) -> list[str]:
    """Markdown rows: alarms on runs as recorded, then what was injected, and how soon it was found.

    A drift begins where it has made the level half as large again; before, it is within what healthy runs do.
    """
    rows = [
        "| runs as recorded | runs | with an alarm | share |",
        "| --- | --- | --- | --- |",
    ]
    alarms: dict[str, list[bool]] = {"steady": [], "others": []}
    found: dict[tuple[str, str, str], list[tuple[float, int] | None]] = defaultdict(list)
    for history in all_histories:
        span = history.steps[-1] - history.steps[0]
        watch = Watch(history, None if window is None else max(int(span * window), 1))
        size = len(history.values)
        places = {int(size * place) for place in ONSETS} if size >= 200 and steady(history) else set()
        fired = False
        for index, (step, value) in enumerate(zip(history.steps, history.values, strict=True)):
            for kind in INJECTED if index in places and not fired else ():
                again = copy.deepcopy(watch)
                answer = None
                hidden = int(size * 0.005 / DRIFTS[kind]) if kind in DRIFTS else 0
                tail = history.values[index : index + hidden + max(size // 20, 20)]
                for later, bad in enumerate(spoilt(tail, kind, size)):
                    if again.fires(history.steps[index + later], bad):
                        visible = history.steps[min(index + hidden, size - 1)]
                        answer = ((history.steps[index + later] - visible) / span, later + 1 - hidden)
                        break
                found[history.source, "500 values and more" if size >= 500 else "200 to 499", kind].append(answer)
            fired = fired or watch.fires(step, value)
        alarms["steady" if steady(history) else "others"].append(fired)
    for kind, answers in alarms.items():
        rows.append(f"| {kind} | {len(answers)} | {sum(answers)} | {sum(answers) / max(len(answers), 1):.2%} |")
    rows += [
        "",
        "| curves | values | injected | cases | found | within 1 % of the run | or 12 values | median delay | values |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (source, length, kind), cases in sorted(found.items()):
        known = [case for case in cases if case is not None]
        soon, few = sum(delay <= 0.01 for delay, _ in known), sum(delay <= 0.01 or n <= 12 for delay, n in known)
        middle = statistics.median(delay for delay, _ in known) if known else math.nan
        values = statistics.median(n for _, n in known) if known else math.nan
        rows.append(
            f"| {source} | {length} | {kind} | {len(cases)} | {len(known) / len(cases):.1%} | "
            f"{soon / len(cases):.1%} | "
            f"{few / len(cases):.1%} | {middle:.2%} | {values:g} |"
        )
    return rows


def main() -> None:
    """Read, replay, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curves", type=Path, default=CURVES)
    parser.add_argument("--every", type=int, default=1, help="replay only every n-th run")
    parser.add_argument("--judge", choices=("eta", "divergence", "evaluations"), default="eta")
    parser.add_argument(
        "--window", type=float, default=None, help="share of the run; without it divergence takes its own"
    )
    parser.add_argument("--source", default="", help="only files with this in their name")
    options = parser.parse_args()
    every = runs(options.curves, options.source, options.every)
    if options.judge == "eta":
        lines = [line for source, run in every if (line := timeline(source, run)) is not None]
        print("\n".join(judge_eta(lines)))
        return
    dense = options.judge == "divergence"
    found = [history for source, run in every for history in histories(source, run, dense=dense)]
    print("\n".join(judge_divergence(found, options.window)))


if __name__ == "__main__":
    main()
