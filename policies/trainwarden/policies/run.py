"""All that is known of one run: facts from outside, reports from inside, and what follows from both at a moment."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from trainwarden.policies.attempts import Attempts, Reception
from trainwarden.policies.clock import RunningClock
from trainwarden.policies.curves import curve_of
from trainwarden.policies.decision import Proof, RunRef, Window
from trainwarden.policies.detectors.restarts import RestartWatch
from trainwarden.policies.eta import Eta, Pace
from trainwarden.policies.expressions.protocol import CelValue
from trainwarden.policies.facts import JobPhase, RunFacts
from trainwarden.policies.hearing import Hearing, Outage
from trainwarden.policies.metrics import Metrics
from trainwarden.policies.notice import Curve
from trainwarden.policies.report import ReportLike
from trainwarden.policies.stall import StallClock

if TYPE_CHECKING:
    from trainwarden.policies.question import Memo
    from trainwarden.policies.scope import RunScope

__all__ = ["Reception", "RunState"]

_LEAST_EPOCH = 0.01  # epochs that must be done before they tell how many steps one has
_LARGEST_TOTAL = 1 << 53  # beyond it a total is a placeholder for "unknown"


class RunState:
    """One job's run, over its attempts. Not thread-safe. Every `now` and `at` is an aware datetime.

    Args:
        facts: The first that are known.
        hearing: When it could be heard, shared by the runs of an engine; None: always.
        tells_checkpoints: Whether it would be heard of checkpoints; not so in most recordings.
    """

    __slots__ = (
        "_attempts",
        "_awaits_step",
        "_back",
        "_began",
        "_checkpoint",
        "_checkpoint_passed",
        "_epoch",
        "_epochs",
        "_first_step_passed",
        "_phase",
        "_ran",
        "_ready_until",
        "_step",
        "_stepped_at",
        "_total",
        "clock",
        "facts",
        "hearing",
        "known_since",
        "memos",
        "metrics",
        "pace",
        "rescaled",
        "restarts",
        "stall",
        "tells_checkpoints",
        "used",
    )

    facts: RunFacts

    def __init__(self, facts: RunFacts, hearing: Hearing | None = None, *, tells_checkpoints: bool = True) -> None:
        self.facts = facts
        self.tells_checkpoints = tells_checkpoints
        self.hearing = hearing or Hearing()
        self.known_since: datetime | None = None  # from when the windows are: the first report that was counted
        self.clock = RunningClock()
        self.metrics = Metrics()
        self.pace = Pace()
        self.stall = StallClock(self.hearing)
        self.restarts = RestartWatch(facts.restarts)
        self.used: dict[tuple[str, str], Mapping[str, CelValue | str]] = {}  # what looks have read, by policy and rule
        self.rescaled: dict[str, tuple[int, float]] = {}  # resume that changed a metric's scale, first level then
        self.memos: dict[tuple[str, tuple[CelValue, ...]], Memo] = {}  # answers over windows, while they hold
        self._attempts = Attempts(facts)
        self._awaits_step = True  # nothing in this attempt has said where it starts
        self._back: list[int] = []  # steps of the newest reports in a row that lie before the newest step
        self._checkpoint: Proof | None = None
        self._checkpoint_passed = 0.0
        self._began: int | None = None  # step at which this attempt began
        self._epoch: float | None = None
        self._epochs: float | None = None  # planned
        self._first_step_passed: float | None = None
        self._phase = "init"
        self._ran = False  # pods were ready by the facts before
        self._ready_until: float | None = None  # Unix seconds until which pods of this attempt were ready for sure
        self._step = 0
        self._stepped_at = 0.0  # Unix seconds of the newest step
        self._total: int | None = None
        self._learn_readiness(facts)

    def learn(self, facts: RunFacts) -> None:
        """Take newer facts. Those of another attempt fence off what the older one still says."""
        if facts.time < self.facts.time:
            return
        if facts.gpus != self.facts.gpus:
            self.pace.forget_earlier()
        self.restarts.learn(facts.restarts)
        self.facts = facts
        if self._attempts.learn(facts):
            self._restart()
            self._ran, self._ready_until = False, None
        self._learn_readiness(facts)

    def observe(self, report: ReportLike, at: datetime) -> Reception:
        """Take a report that was received `at`. Never raises, whatever the report says."""
        reception = self._attempts.admit(report, at)
        if reception is Reception.STARTED:
            self.restarts.start(after_done=self._phase == "done")
            self._restart()
        elif reception is Reception.REORDERED:
            self.metrics.take(report, self.clock.now(at.timestamp()))
            return reception
        elif reception is not Reception.ACCEPTED:
            return reception
        if self.known_since is None:
            self.known_since = at
        moment = at.timestamp()
        passed = self.clock.hear(moment)
        moment = self.clock.heard or moment
        self._phase = report.phase
        if report.total is not None and 0 < report.total < _LARGEST_TOTAL:
            self._total = report.total
        if report.epoch is not None:
            self._epoch = report.epoch
        if report.epochs is not None:
            self._epochs = report.epochs
        moved = self._take_step(report, moment, passed)
        self.restarts.reach(self._step)
        self.stall.observe(report.phase, moment, moved=moved)
        self.pace.observe(self._step, report.phase, moment, passed, silence=self.clock.silence)
        if report.metrics or report.nonfinite:
            self.metrics.take(report, passed)
        if report.checkpoint is not None:
            self._take_checkpoint(report, passed)
        return reception

    def ref(self) -> RunRef:
        """Identity of the run now."""
        facts = self.facts
        return RunRef(
            namespace=facts.namespace, job=facts.job, uid=facts.uid, attempt=facts.attempt, run=self._attempts.run
        )

    def scope(self, now: datetime) -> RunScope:
        """The run at a moment, as expressions see it."""
        from trainwarden.policies.scope import RunScope

        return RunScope(self, now)

    def reporting(self) -> bool:
        """Whether a reporter of this attempt has been heard."""
        return bool(self._attempts.run) and not self._attempts.history

    def located(self) -> bool:
        """Whether a report of this attempt has said at which step it is."""
        return self.reporting() and not self._awaits_step

    def phase(self) -> str:
        """Phase of the newest report; `init` before the first of the attempt."""
        return self._phase

    def step(self) -> int | None:
        """Optimizer steps done, however long ago that was heard; None before the attempt has said."""
        return self._step if self.located() else None

    def began(self) -> int | None:
        """Step at which this attempt began; None before it has said."""
        return self._began if self.located() else None

    def began_passed(self) -> float | None:
        """Running time at which this attempt first said a step."""
        return self._first_step_passed

    def total(self) -> int | None:
        """Optimizer steps planned, or else what the planned epochs come to at the steps per epoch so far.

        None while unknown.
        """
        if self._total is not None or self._epochs is None or self._epoch is None or not self.located():
            return self._total
        if not _LEAST_EPOCH <= self._epoch <= self._epochs or not self._step:
            return None
        return round(min(self._step / self._epoch * self._epochs, _LARGEST_TOTAL))

    def epoch(self) -> float | None:
        """Epochs done, as reported."""
        return self._epoch

    def percent(self) -> float | None:
        """0 to 100 of the plan; None without a total or a step. 100 is not completion."""
        total = self.total()
        if total is None or not self.located():
            return None
        return min(100.0 * self._step / total, 100.0)

    def eta(self, now: datetime) -> Eta | None:
        """Time left to the last step; None without a total, during the warm-up, or while the job does not run."""
        total = self.total()
        if total is None or not self.located() or not self.running() or self._step > total:
            return None
        return self.pace.eta(self._step, total, since_step=max(now.timestamp() - self._stepped_at, 0.0))

    def eta_seconds(self, now: datetime) -> float | None:
        """Seconds left to the last step; None when unknown."""
        eta = self.eta(now)
        return eta.expected.total_seconds() if eta is not None else None

    def running(self) -> bool:
        """Whether the job runs with its trainer pods ready."""
        return self.facts.phase is JobPhase.RUNNING and self.facts.ready

    def silent(self, now: datetime) -> bool:
        """Whether nothing was heard for so long that what was heard no longer holds."""
        return self.clock.silent_for(now.timestamp()) > self.clock.silence

    def since_report(self, now: datetime) -> float | None:
        """Seconds without a report of this attempt in which one could have been heard; None before its pods are ready.

        Before the first report they count from the start of the attempt.
        """
        since = self._heard_or_started()
        return None if since is None else self.hearing.seconds(since, now.timestamp(), heard=since)

    def outage(self, now: datetime) -> Outage | None:
        """What of ours keeps it from being heard at a moment; None when nothing does."""
        since = self._heard_or_started()
        return None if since is None else self.hearing.outage(now.timestamp(), heard=since)

    def passed(self, now: datetime) -> float:
        """Running time at a moment; it stands still while the run can't be heard."""
        heard, moment = self.clock.heard, now.timestamp()
        if heard is None or moment <= heard or self.silent(now):
            return self.clock.now(moment)
        return self.clock.now(heard + self.hearing.seconds(heard, moment, heard=heard))

    def running_seconds(self, now: datetime) -> float:
        """Seconds its pods have been ready, over all attempts."""
        facts = self.facts
        if facts.attempt_started_at is None:
            return facts.running_seconds
        start = facts.attempt_started_at.timestamp()
        heard = self.clock.heard if self.reporting() else None
        end = now.timestamp() if self.running() else self._ready_until or heard or start
        return facts.running_seconds + max(end - start, 0.0)

    def cost(self, now: datetime) -> float | None:
        """Money spent so far; None without a price."""
        price = self.facts.price_per_hour
        return None if price is None else price * self.running_seconds(now) / 3600

    def checkpoint(self) -> Proof | None:
        """The newest complete checkpoint."""
        return self._checkpoint

    def checkpoint_age(self, now: datetime) -> timedelta | None:
        """Running time since the newest complete checkpoint; before the first, since the attempt's first step.

        None while there is neither.
        """
        since = self._checkpoint_passed if self._checkpoint is not None else self._first_step_passed
        if since is None:
            return None
        return timedelta(seconds=max(self.passed(now) - since, 0.0))

    def metric_values(self) -> Mapping[str, float]:
        """Newest value of every metric, NaN and infinities included."""
        return self.metrics.newest_values()

    def curve(
        self, metric: str, *, window: Window | None = None, fired_at: int | None = None, points: int = 200
    ) -> Curve | None:
        """A metric's history for a picture; None when it has no finite value."""
        return curve_of(self.metrics, metric, window=window, fired_at=fired_at, points=points)

    def moment(self, passed: float) -> datetime:
        """Wall time at a running time of the clock."""
        return datetime.fromtimestamp(self.clock.wall(passed), UTC)

    def _heard_or_started(self) -> float | None:
        heard = self.clock.heard if self.reporting() else None
        started = self.facts.attempt_started_at
        return started.timestamp() if heard is None and started is not None else heard

    def _learn_readiness(self, facts: RunFacts) -> None:
        runs, since = self.running(), facts.time
        if runs and self._ready_until is None and facts.attempt_started_at is not None:
            since = facts.attempt_started_at
        self.stall.ready(runs, since.timestamp())
        if runs or self._ran:
            self._ready_until = facts.time.timestamp()
        self._ran = runs

    def _restart(self) -> None:
        """Another attempt or training begins; where, its first report with a step will say."""
        self._awaits_step = True
        self._back.clear()
        self._phase = "init"
        self._total = None
        self._epoch = self._epochs = None
        self._first_step_passed = None
        self.pace.restart()
        self.stall.restart()

    def _take_step(self, report: ReportLike, moment: float, passed: float) -> bool:
        """Take the step of a report; True when the training has moved on since the report before."""
        step = report.step
        if self._awaits_step:
            says = bool(step or report.metrics or report.nonfinite) or report.phase != "init"
            if not says:
                return False
            self._awaits_step = False
            logged = bool(report.metrics or report.nonfinite)
            self.metrics.rewind(step - 1 if logged else step)
            if self._checkpoint is not None and self._checkpoint.step > step:
                self._checkpoint = None
            self._step, self._stepped_at, self._first_step_passed = step, moment, passed
            self._began = step
            return logged
        if step > self._step:
            self._back.clear()
            self._step, self._stepped_at = step, moment
            return True
        if step < self._step and self._goes_back(step):
            self._step, self._stepped_at = step, moment
            return True
        return False

    def _goes_back(self, step: int) -> bool:
        """Whether the training itself has gone back: three reports in a row from before the newest step, moving on.

        One or two are late values of an evaluation, and are put in their place.
        """
        if self._back and step < self._back[-1]:
            self._back.clear()
        self._back.append(step)
        if len(self._back) < 3 or self._back[0] == self._back[-1]:
            del self._back[3:]
            return False
        self.metrics.rewind(self._back[0])
        self._back.clear()
        return True

    def _take_checkpoint(self, report: ReportLike, passed: float) -> None:
        told, mine = report.checkpoint, self._checkpoint
        if told is None or (mine is not None and (mine.step, mine.path) == (told.step, told.path)):
            if told is not None and mine is not None and mine.digest is None and told.digest is not None:
                self._checkpoint = Proof(step=told.step, path=told.path, bytes=told.bytes, digest=told.digest)
            return
        if mine is None or told.step >= mine.step:
            self._checkpoint = Proof(step=told.step, path=told.path, bytes=told.bytes, digest=told.digest)
            self._checkpoint_passed = passed
