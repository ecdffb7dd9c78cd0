"""Replay one recorded run through the judge that also serves the engine, in one pass and bounded memory.

All policies are judged in Audit mode: each step of a ladder is noted when it is due, protections counted in, and the
run goes on as it was recorded. So each policy is measured by itself, and past its stop.

A live reporter also tells now and then that the training lives, and at which step. Where two rows lie so far apart that
the run would look silent, such heartbeats are put in, unless the step goes back after the gap: then the training was
gone, and resumed. Their steps are spread evenly over the gap, unless far fewer came in it than usual: then it stood
still.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from trainwarden.policies.backtest.judged import aim_of, judged_metric, main_metric
from trainwarden.policies.backtest.outcome import Curve, Firing, PolicyOutcome, Replay, Stop
from trainwarden.policies.backtest.recording import Row, Setting
from trainwarden.policies.backtest.track import Track
from trainwarden.policies.backtest.watching import Watch, part
from trainwarden.policies.compiling import CompiledPolicy
from trainwarden.policies.decision import ActionState, ActionType, Decision, Verdict
from trainwarden.policies.facts import JobPhase, RunFacts
from trainwarden.policies.judge import Judgement
from trainwarden.policies.ladder import is_disruptive
from trainwarden.policies.report import CheckpointLike
from trainwarden.policies.run import RunState

__all__ = ["TOLERATED", "replay"]

TOLERATED = 0.01
"""Share of a run's improvement that may still be to come when it is stopped."""

_MOST_TRACKS = 64  # metrics of one run that are followed for gains and pictures
_LONGEST = 3.2e9  # seconds, 100 years: what a damaged clock may say at most
_UNTIL_FOUND = 0.02  # two looks by rules about time lie apart by this part of the time since the row before
_USUAL = 2.0  # times the usual time between two rows that is no gap yet
_SLOW = 5.0  # times the usual time of a step, by which a gap between rows is a standstill
_WHILE_ENGAGED = 0.25  # and by this part while one is pending or firing


@dataclass(slots=True)
class _Report:
    """A row as the run state takes it."""

    seq: int
    step: int
    total: int | None = None
    epoch: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    nonfinite: Mapping[str, str] = field(default_factory=dict)
    run: str = "recorded"
    pod: str = "recorded-0"
    rank: int = 0
    world: int = 1
    phase: str = "train"
    epochs: float | None = None
    checkpoint: CheckpointLike | None = None
    dropped: int = 0


@dataclass(slots=True)
class _Event:
    """A firing before what came after it is known."""

    decision: Decision
    seconds: float
    step: int
    metric: str | None
    action: ActionType | None


@dataclass(slots=True)
class _Walk:
    """A replay that goes on. Rules that time alone can change stand apart, so that looks between rows cost little."""

    policies: Sequence[CompiledPolicy]
    run: RunState
    setting: Setting
    start: datetime
    events: list[_Event] = field(default_factory=list)
    fires: dict[str, int] = field(default_factory=dict)
    heard: float = 0.0  # seconds of the newest report
    step: int = 0  # of the newest row
    row_at: float = 0.0  # seconds of it
    first: tuple[int, float] = (0, 0.0)  # step and seconds from which the usual pace is taken
    reports: int = 0
    rows: int = 0
    looked: float = -math.inf  # seconds of the newest row that was looked at
    asked: float = 0.0  # seconds at which rules about time were last asked whether they had changed
    by_data: Watch = field(init=False)
    by_time: Watch = field(init=False)

    def __post_init__(self) -> None:
        self.by_data = Watch([policy for each in self.policies if (policy := part(each, by_time=False)) is not None])
        self.by_time = Watch([policy for each in self.policies if (policy := part(each, by_time=True)) is not None])

    def take(self, row: Row, seconds: float, total: int | None) -> None:
        """Pass to a row's time, looking and telling that the training lives on the way, and observe it."""
        if self.rows:
            while row.step > self.step and seconds - self.heard > (silence := self.run.clock.silence):
                beat = self.heard + silence / 2
                self.look_between(beat)
                self._observe(_Report(self.reports, self._step_at(beat, row.step, seconds)), beat)
            self.look_between(seconds)
        self._observe(_Report(self.reports, row.step, total, row.epoch, row.metrics, row.nonfinite), seconds)
        if not self.rows or row.step < self.first[0]:
            self.first = row.step, seconds
        self.step, self.row_at = row.step, seconds
        self.rows += 1

    def _step_at(self, beat: float, step: int, seconds: float) -> int:
        """The step of a heartbeat between the newest row and one of a later step and time."""
        moved, gap = step - self.step, seconds - self.row_at
        first_step, first_at = self.first
        known = self.step - first_step
        if known > 0 and gap / moved > _SLOW * (self.row_at - first_at) / known:
            return self.step
        return self.step + int((moved - 1) * (beat - self.row_at) / gap)

    def _observe(self, report: _Report, seconds: float) -> None:
        self.run.observe(report, self.start + timedelta(seconds=seconds))
        self.heard = seconds
        self.reports += 1

    def look(self, seconds: float, *, last: bool = False) -> None:
        """Judge the run at a row; by rules about time at the last one only, since they are asked before each."""
        self.looked = seconds
        self._look(self.by_data, seconds)
        if last:
            self._look(self.by_time, seconds)

    def _look(self, watch: Watch, seconds: float) -> None:
        judgement = watch.look(self.run, self.start, seconds)
        if judgement is not None and judgement.decisions:
            self._note(judgement, seconds)

    def look_between(self, until: float) -> None:
        """Look when waits are over, up to a moment; and by rules about time, when one of them would have changed.

        Between rows that follow each other as usual they are asked no more often than the others.
        """
        timed, gap = self.by_time, until - self.row_at
        stirs = gap > self.run.clock.silence
        if not stirs and (gap > _USUAL * self.run.clock.usual or until - self.asked >= until / self.setting.fineness):
            self.asked = until
            stirs = not timed.is_steady(self.run, self.start, until)
        if stirs and timed.looked < self.row_at:
            self._look(timed, self.row_at)
        while True:
            data, tick = self.by_data.next_due(self.start), timed.next_due(self.start)
            if stirs and timed.wake is not None:
                share = _WHILE_ENGAGED if timed.engaged else _UNTIL_FOUND
                apart = max((timed.looked - self.row_at) * share, 1.0)
                at = max(timed.wake, timed.looked + apart)
                tick = at if tick is None else min(at, tick)
            at = min(_never(data), _never(tick))
            if at >= until:
                return
            if at == data:
                self._look(self.by_data, at)
            if at == tick:
                self._look(timed, at)

    def values_of(self, policy: CompiledPolicy) -> tuple[bool, dict[str, str]]:
        """Whether a policy was for this run, and its rules whose condition never had a value, with the reason."""
        watches = (self.by_data, self.by_time)
        matched = any(policy.uid in watch.memory.policies for watch in watches)
        lacking = {
            rule: why for watch in watches for (uid, rule), why in watch.without_value.items() if uid == policy.uid
        }
        return matched, lacking if matched else {}

    def _note(self, judgement: Judgement, seconds: float) -> None:
        """Make one event of what a rule did at this moment."""
        at_once: dict[tuple[str, str], _Event] = {}
        for decision in judgement.decisions:
            action = decision.action.type if decision.action is not None else None
            acts = decision.action_state in (ActionState.WOULD_ACT, ActionState.REQUESTED)
            began = decision.action_state is None and decision.verdict is Verdict.FIRING
            if not (acts or began):
                continue
            name = str(decision.policy)
            key = (name, decision.rule)
            if began:
                self.fires[name] = self.fires.get(name, 0) + 1
            event = at_once.get(key)
            if event is None:
                metric = judged_metric(decision.evidence, self.run.metrics.names())
                event = at_once[key] = _Event(decision, seconds, self.run.step() or 0, metric, None)
                self.events.append(event)
            if acts and action is not None and (event.action is None or action.rank > event.action.rank):
                event.action = action


def replay(
    id_: str,
    rows: Iterable[Row],
    policies: Sequence[CompiledPolicy],
    setting: Setting,
    *,
    started_at: datetime | None = None,
    total: int | None = None,
    curves: bool = False,
) -> Replay:
    """Replay a run from its first row to its last.

    Args:
        id_: Name of the run.
        rows: In the order in which they were written. Time never runs backwards: a row from before counts as of then.
        policies: Compiled in Audit mode.
        setting: What the recording does not say.
        started_at: When the run began, aware; None takes the setting's.
        total: Steps planned; None while no row says.
        curves: Keep the curves of the judged metrics and of the main one.

    Returns:
        What fired, and what each policy would have been worth. Without a row: a replay of no steps.
    """
    start = started_at or setting.started_at
    walk = _Walk(policies, RunState(_facts(id_, setting, start), tells_checkpoints=False), setting, start)
    tracks: dict[str, Track] = {}
    pace = _Pace(setting.seconds_per_step)
    seconds = 0.0
    last_step = 0
    for row in rows:
        seconds = max(seconds, min(pace.at(row), _LONGEST))
        if row.total is not None:
            total = row.total
        walk.take(row, seconds, total)
        last_step = max(last_step, row.step)
        for name, value in row.metrics.items():
            track = tracks.get(name)
            if track is None:
                if len(tracks) >= _MOST_TRACKS:
                    continue
                track = tracks[name] = Track(name)
            track.add(row.step, seconds, value)
        if row.nonfinite or seconds - walk.looked >= seconds / setting.fineness:
            walk.look(seconds)
    if walk.rows:
        walk.look(seconds, last=True)
    return _result(id_, walk, tracks, last_step, seconds, clock=pace.clock, curves=curves)


@dataclass(slots=True)
class _Pace:
    """The time of rows: as recorded, else so long for each step, also for steps that are done once more."""

    seconds_per_step: float
    clock: bool = False  # a row had one; one without is as late as the row before
    _seconds: float = 0.0
    _step: int = 0

    def at(self, row: Row) -> float:
        if row.seconds is not None:
            self.clock = True
            self._seconds = row.seconds
        elif not self.clock and row.step > self._step:
            self._seconds += (row.step - self._step) * self.seconds_per_step
        self._step = row.step
        return self._seconds


def _never(seconds: float | None) -> float:
    return math.inf if seconds is None else seconds


def _facts(id_: str, setting: Setting, start: datetime) -> RunFacts:
    return RunFacts(
        namespace=setting.namespace,
        job=id_,
        uid=id_,
        phase=JobPhase.RUNNING,
        time=start,
        created_at=start,
        attempt="recorded",
        attempt_started_at=start,
        ready=True,
        labels=dict(setting.labels),
        gpus=setting.gpus,
        price_per_hour=setting.price_per_hour,
        deadline=start + setting.deadline if setting.deadline is not None else None,
    )


def _result(
    id_: str,
    walk: _Walk,
    tracks: Mapping[str, Track],
    last_step: int,
    end: float,
    *,
    clock: bool,
    curves: bool,
) -> Replay:
    main = main_metric([name for name, track in tracks.items() if len(track.points) > 1])
    settled = tracks[main].settled_after(TOLERATED) if main is not None else None
    firings = []
    stops: dict[str, _Event] = {}
    for event in walk.events:
        name = str(event.decision.policy)
        if event.action is not None and is_disruptive(event.action):
            stops.setdefault(name, event)
        firings.append(
            Firing(
                policy=name,
                rule=event.decision.rule,
                metric=event.metric,
                step=event.step,
                elapsed_seconds=event.seconds,
                values=event.decision.evidence.values,
                action=event.action,
                message=event.decision.message,
                to_come=_to_come(event.metric, event.seconds, tracks),
            )
        )
    outcomes = []
    for policy in walk.policies:
        name = str(policy.ref)
        stop = _stop(stops[name], main, tracks, walk.setting, end) if name in stops else None
        matched, without_value = walk.values_of(policy)
        outcomes.append(PolicyOutcome(name, walk.fires.get(name, 0), stop, matched, without_value))
    shown = dict.fromkeys([main, *(firing.metric for firing in firings)]) if curves else {}
    return Replay(
        id=id_,
        last_step=last_step,
        elapsed_seconds=end,
        firings=tuple(firings),
        outcomes=tuple(outcomes),
        metric=main,
        idle_seconds=end - settled if settled is not None else None,
        reports=walk.rows,
        clock=clock,
        curves=tuple(_curve(tracks[name]) for name in shown if name is not None and name in tracks),
    )


def _to_come(metric: str | None, seconds: float, tracks: Mapping[str, Track]) -> float | None:
    track = tracks.get(metric) if metric is not None else None
    gain = track.gain(seconds) if track is not None else None
    return gain.to_come if gain is not None else None


def _stop(event: _Event, main: str | None, tracks: Mapping[str, Track], setting: Setting, end: float) -> Stop:
    assert event.action is not None  # noqa: S101 - a stop is an action
    metric = aim_of(event.metric, main)
    to_come = _to_come(metric, event.seconds, tracks)
    if to_come is None and main is not None and metric != main:
        metric, to_come = main, _to_come(main, event.seconds, tracks)
    wrong = to_come is not None and to_come > TOLERATED
    rest, spent = max(end - event.seconds, 0.0) / 3600, event.seconds / 3600
    price = setting.price_per_hour
    return Stop(
        rule=event.decision.rule,
        metric=metric,
        action=event.action,
        step=event.step,
        elapsed_seconds=event.seconds,
        to_come=to_come,
        wrong=wrong,
        gpu_hours_saved=0.0 if wrong else rest * setting.gpus,
        gpu_hours_lost=spent * setting.gpus if wrong else 0.0,
        money_saved=None if price is None else 0.0 if wrong else rest * price,
        money_lost=None if price is None else spent * price if wrong else 0.0,
    )


def _curve(track: Track) -> Curve:
    points = track.points
    return Curve(
        metric=track.metric,
        steps=tuple(point.step for point in points),
        values=tuple(point.mean for point in points),
        lows=tuple(point.low for point in points),
        highs=tuple(point.high for point in points),
    )
