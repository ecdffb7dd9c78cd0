"""The words of a policy's expressions: variables and functions, with types and meaning. One table serves both engines,
the checks at write time, the docs and the editor's completion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["FUNCTIONS", "RANGES", "VARIABLES", "Function", "Overload", "Range", "Type", "Variable"]


class Type(StrEnum):
    """CEL type of a variable, argument or result."""

    BOOL = "bool"
    INT = "int"
    DOUBLE = "double"
    STRING = "string"
    DURATION = "duration"
    TIMESTAMP = "timestamp"
    STRING_MAP = "map(string, string)"
    METRICS = "map(string, double)"


@dataclass(frozen=True, slots=True)
class Variable:
    """A name that an expression can read."""

    name: str  # dotted
    type: Type
    doc: str


@dataclass(frozen=True, slots=True)
class Range:
    """What a number that is given to a function may be."""

    low: float
    high: float
    inside: bool = False  # the low end itself is none
    below: bool = False  # nor is the high end

    def __contains__(self, value: float) -> bool:
        above = value > self.low if self.inside else value >= self.low
        return above and (value < self.high if self.below else value <= self.high)

    def __str__(self) -> str:
        if not self.inside and not self.below:
            return f"{self.low:g} to {self.high:g} is right"
        return f"more than {self.low} and {'less than' if self.below else 'at most'} {self.high} is right"


@dataclass(frozen=True, slots=True)
class Overload:
    """One way to call a function."""

    parameters: tuple[tuple[str, Type], ...]
    result: Type


@dataclass(frozen=True, slots=True)
class Function:
    """A function over the history of a run."""

    name: str
    overloads: tuple[Overload, ...]
    doc: str


_B, _I, _D, _S = Type.BOOL, Type.INT, Type.DOUBLE, Type.STRING
_DUR, _TS = Type.DURATION, Type.TIMESTAMP

VARIABLES: tuple[Variable, ...] = (
    Variable("job.name", _S, "Name of the TrainJob."),
    Variable("job.namespace", _S, "Its namespace."),
    Variable("job.labels", Type.STRING_MAP, "Labels of the TrainJob."),
    Variable("job.annotations", Type.STRING_MAP, "Annotations of the TrainJob."),
    Variable("job.phase", _S, "Pending, Queued, Running, Suspended, Complete, Failed or Deleting."),
    Variable("job.gpus", _I, "GPUs of the whole job."),
    Variable("job.gpuType", _S, 'Product name of its GPUs; "" while unknown.'),
    Variable("job.nodes", _I, "Nodes of the job."),
    Variable("job.queue", _S, 'Queue that admitted it; "" without one.'),
    Variable("job.owner", _S, 'Who owns it; "" while unknown.'),
    Variable("job.age", _DUR, "Time since it was created."),
    Variable(
        "job.runningFor", _DUR, "Time its pods have been ready, over all attempts; queued and suspended time is out."
    ),
    Variable("job.restarts", _I, "Restarts so far."),
    Variable(
        "job.restartsWithoutProgress",
        _I,
        "Restarts in a row after which the training never got further than it had been before.",
    ),
    Variable("job.gpuHours", _D, "GPU-hours used so far, over all attempts."),
    Variable("job.cost", _D, "Money spent so far; unknown without a price."),
    Variable("job.projectedCost", _D, "Money at the end of the plan; unknown without a price or an ETA."),
    Variable("job.deadline", _TS, "When it must be done; unknown without one."),
    Variable("progress.step", _I, "Optimizer steps done."),
    Variable("progress.totalSteps", _I, "Optimizer steps planned; unknown for streaming data."),
    Variable("progress.epoch", _D, "Epochs done."),
    Variable("progress.percent", _D, "0 to 100 of the plan; unknown without a total."),
    Variable("progress.stepsPerSecond", _D, "Pace of this attempt, over its newest steps in the train phase."),
    Variable("progress.phase", _S, "init, train, eval, checkpoint, done or failed."),
    Variable("progress.sinceReport", _DUR, "Time since anything was heard of the training."),
    Variable(
        "progress.sinceStep",
        _DUR,
        "Time the step has stood still with pods ready; eval and checkpoint phases have their own budgets.",
    ),
    Variable(
        "progress.stallBudget",
        _DUR,
        "Time a step may stand still by this run's own steps: compare sinceStep with it.",
    ),
    Variable(
        "progress.sinceBest",
        _DUR,
        "Time since the main loss was last at its best: eval/loss (or eval_loss) when reported, else loss.",
    ),
    Variable("progress.eta", _DUR, "Time left to the last step at this attempt's pace."),
    Variable("progress.etaLow", _DUR, "Optimistic end of the time left."),
    Variable("progress.etaHigh", _DUR, "Pessimistic end of the time left."),
    Variable("progress.finish", _TS, "When the last step is expected: now + eta."),
    Variable("checkpoint.step", _I, "Step of the newest complete checkpoint; unknown before the first."),
    Variable(
        "checkpoint.age",
        _DUR,
        "Time since the newest complete checkpoint; before the first, since the attempt's first step.",
    ),
    Variable("budget.limit", _D, "Limit of the budget the job draws on; unknown without one."),
    Variable("budget.used", _D, "Used of it."),
    Variable("budget.remaining", _D, "Left of it; negative when overdrawn."),
    Variable("budget.percent", _D, "Used of it, in percent."),
    Variable(
        "metrics",
        Type.METRICS,
        "Newest value of each metric. One that is NaN or infinite makes the expression unknown, never false.",
    ),
    Variable("now", _TS, "Time of the evaluation."),
)

_METRIC = ("metric", _S)
_DIRECTION = ("direction", _S)  # "lower" or "higher" is better


def _windowed(result: Type, *more: tuple[str, Type], direction: bool = False) -> tuple[Overload, ...]:
    """Overloads for a window in time and in steps, each with and without a direction."""
    heads = [(_METRIC, ("window", _DUR), *more), (_METRIC, ("steps", _I), *more)]
    tails: Sequence[tuple[tuple[str, Type], ...]] = [(), (_DIRECTION,)] if direction else [()]
    return tuple(Overload((*head, *tail), result) for head in heads for tail in tails)


def _whole(result: Type, *, direction: bool = False) -> tuple[Overload, ...]:
    """Overloads over the whole run."""
    tails: Sequence[tuple[tuple[str, Type], ...]] = [(), (_DIRECTION,)] if direction else [()]
    return tuple(Overload((_METRIC, *tail), result) for tail in tails)


RANGES: Mapping[str, Range] = {
    "share": Range(0.0, 1.0, inside=True, below=True),
    "tolerance": Range(0.0, 0.5, inside=True),
    "ratio": Range(0.0, 1.0, inside=True, below=True),
    "q": Range(0.0, 1.0),
}
"""Of parameters, by name. A literal is checked when a policy is written; what is computed makes the call unknown."""

_SHARES = (_METRIC, ("share", _D), ("tolerance", _D))
_OUTLOOK = (Overload(_SHARES, _B), Overload((*_SHARES, _DIRECTION), _B))

FUNCTIONS: tuple[Function, ...] = (
    Function(
        "plateau",
        (*_windowed(_B, direction=True), *_OUTLOOK),
        "The metric has stopped improving over the window, against its own noise and its improvement before. With a "
        "share: since that share of the run's steps it has improved so little that, read optimistically and kept up to "
        "the end of the plan, it gains less than tolerance times the improvement so far.",
    ),
    Function(
        "divergence",
        (*_whole(_B, direction=True), *_windowed(_B, direction=True)),
        "The metric is not finite, runs away, or sits at a worse level over the window than its best before. "
        "Without a window one of 0.8 % of the plan is taken.",
    ),
    Function("nonFinite", _whole(_B), "The newest value is NaN or infinite."),
    Function(
        "spike",
        _windowed(_B, direction=True),
        "The newest value is far outside the window before it, on the bad side (robust z-score).",
    ),
    Function(
        "overfitting",
        (
            Overload((("evalMetric", _S), ("trainMetric", _S), ("window", _DUR)), _B),
            Overload((("evalMetric", _S), ("trainMetric", _S), ("steps", _I)), _B),
        ),
        "The evaluation metric gets worse over the window while the training metric still gets better.",
    ),
    Function(
        "throughputDrop",
        (Overload((("window", _DUR), ("ratio", _D)), _B),),
        "Pace over the window is below ratio times the run's own typical pace before.",
    ),
    Function("slope", _windowed(_D), "Least-squares slope in units of the metric per step."),
    Function("mean", _windowed(_D), "Mean of the values reported in the window."),
    Function("min", _windowed(_D), "Smallest value in the window."),
    Function("max", _windowed(_D), "Largest value in the window."),
    Function("stddev", _windowed(_D), "Sample standard deviation in the window."),
    Function("quantile", _windowed(_D, ("q", _D)), "Quantile q (0 to 1) of the window."),
    Function(
        "change",
        _windowed(_D),
        "Relative change over the window: fitted end minus fitted start, over the size of the start.",
    ),
    Function("best", _whole(_D, direction=True), "Best value of the run so far."),
    Function("sinceBest", _whole(_DUR, direction=True), "Time since the best value."),
    Function("stepsSinceBest", _whole(_I, direction=True), "Steps since the best value."),
    Function("bestStep", _whole(_I, direction=True), "Step of the best value: the checkpoint to keep."),
    Function("frozen", _windowed(_B), "Every value of the window is the same to the last digit."),
    Function(
        "maskedLoss",
        _whole(_B),
        "The loss has dropped to exactly 0.0, or stands still while gradients are NaN: a filter hides what is lost.",
    ),
    Function("missing", _windowed(_B), "The training reports, but not this metric, for longer than the window."),
    Function(
        "scaleChange", _whole(_B), "At the newest resume the metric's level jumped by a factor, and has stayed there."
    ),
    Function(
        "explosion",
        _windowed(_B),
        "The metric's size over the window is 4 times what is usual, beyond any size before, and grows: KL, norms.",
    ),
    Function(
        "collapse",
        _windowed(_B),
        "The metric's size over the window is below 5 % of what is usual: the spread of rewards, entropy.",
    ),
    Function("age", _whole(_DUR), "Time since the metric was last reported."),
)
