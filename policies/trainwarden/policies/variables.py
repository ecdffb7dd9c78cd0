"""The names of the vocabulary: where each gets its value from, and why it may have none."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from trainwarden.policies.expressions.protocol import CelValue, UnknownValueError
from trainwarden.policies.hearing import GRACE
from trainwarden.policies.lengths import ago

if TYPE_CHECKING:
    from trainwarden.policies.eta import Eta
    from trainwarden.policies.scope import RunScope

__all__ = ["MAIN_LOSSES", "VARIABLES_BY_NAME"]

MAIN_LOSSES = ("eval/loss", "eval_loss", "loss")
"""The main loss of a run is the first of these that is reported."""

_WARMING_UP = "too few steps of this attempt were timed yet to know the pace"


def _seconds(seconds: float) -> timedelta:
    return timedelta(seconds=max(seconds, 0.0))


def _price(scope: RunScope) -> float:
    return scope.known(scope.run.facts.price_per_hour, "no price is set for the job's GPUs")


def _cost(scope: RunScope) -> float:
    _price(scope)
    return scope.known(scope.run.cost(scope.now), "no price is set for the job's GPUs")


def _projected(scope: RunScope) -> float:
    return _cost(scope) + _eta(scope).expected.total_seconds() / 3600 * _price(scope)


def _step(scope: RunScope) -> int:
    scope.check_heard()
    return scope.known(scope.run.step(), "no step was reported yet")


def _total(scope: RunScope) -> int:
    return scope.known(scope.run.total(), "the training has not said how many steps it plans")


def _percent(scope: RunScope) -> float:
    scope.check_heard()
    _total(scope)
    return scope.known(scope.run.percent(), "no step was reported yet")


def _epoch(scope: RunScope) -> float:
    scope.check_heard()
    return scope.known(scope.run.epoch(), "the training does not report epochs")


def _pace(scope: RunScope) -> float:
    scope.check_heard()
    return scope.known(scope.run.pace.steps_per_second(), _WARMING_UP)


def _phase(scope: RunScope) -> str:
    if not scope.run.reporting():
        raise UnknownValueError("nothing was reported in this attempt yet")
    return scope.run.phase()


def _check_hearing(scope: RunScope) -> None:
    """See that a silence of the training would be its own.

    Raises:
        UnknownValueError: We could not have heard it, or it has not had the time to come back.
    """
    outage = scope.run.outage(scope.now)
    if outage is None:
        return
    start = f"{datetime.fromtimestamp(outage.start, UTC):%H:%M:%S}"
    if outage.end is None:
        raise UnknownValueError(f"no report could be heard since {start} UTC: NATS or trainwarden is away")
    end = f"{datetime.fromtimestamp(outage.end, UTC):%H:%M:%S}"
    raise UnknownValueError(
        f"no report could be heard from {start} to {end} UTC; a training has {GRACE:g} s from then on to come back"
    )


def _since_report(scope: RunScope) -> timedelta:
    run = scope.run
    if not run.running():
        raise UnknownValueError(f"the job is {run.facts.phase}, and is not expected to report")
    _check_hearing(scope)
    return _seconds(scope.known(run.since_report(scope.now), "the pods were never ready in this attempt"))


def _since_step(scope: RunScope) -> timedelta:
    run = scope.run
    if not run.running():
        raise UnknownValueError(f"the job is {run.facts.phase}: a step that stands still says nothing")
    if not run.reporting():
        raise UnknownValueError("nothing was reported in this attempt yet")
    if run.silent(scope.now):
        raise UnknownValueError(f"last heard {ago(run.clock.silent_for(scope.now.timestamp()))} ago")
    _check_hearing(scope)
    return _seconds(scope.known(run.stall.still_for(scope.now.timestamp()), "nothing was reported in this attempt yet"))


def _fruitless(scope: RunScope) -> int:
    return scope.run.restarts.fruitless


def _stall_budget(scope: RunScope) -> timedelta:
    return _seconds(scope.run.stall.step_budget())


def _since_best(scope: RunScope) -> timedelta:
    for name in MAIN_LOSSES:
        if name in scope.run.metrics:
            answer = scope.call("sinceBest", (name,))
            assert isinstance(answer, timedelta)  # noqa: S101 - for the type checker
            return answer
    raise UnknownValueError(f"none of {', '.join(MAIN_LOSSES)} was reported")


def _eta(scope: RunScope) -> Eta:
    scope.check_heard()
    total, run = _total(scope), scope.run
    if not run.running():
        raise UnknownValueError(f"the job is {run.facts.phase}")
    step = _step(scope)
    if step > total:
        raise UnknownValueError(f"step {step} is beyond the planned {total}")
    return scope.known(run.eta(scope.now), _WARMING_UP)


def _checkpoint_age(scope: RunScope) -> timedelta:
    scope.check_heard()
    _check_hearing(scope)
    if not scope.run.tells_checkpoints:
        raise UnknownValueError("the recording does not tell of checkpoints")
    return scope.known(scope.run.checkpoint_age(scope.now), "no step was reported yet")


def _checkpoint_step(scope: RunScope) -> int:
    proof = scope.run.checkpoint()
    return scope.known(proof.step if proof is not None else None, "no complete checkpoint was reported yet")


def _budget(field: str) -> Callable[[RunScope], float]:
    def read(scope: RunScope) -> float:
        budget = scope.known(scope.run.facts.budget, "the job draws on no budget")
        match field:
            case "limit":
                return budget.limit
            case "used":
                return budget.used
            case "remaining":
                return budget.limit - budget.used
        if budget.limit <= 0:
            raise UnknownValueError(f"budget {budget.name} has a limit of {budget.limit:g}")
        return 100 * budget.used / budget.limit

    return read


VARIABLES_BY_NAME: dict[str, Callable[[RunScope], CelValue]] = {
    "job.name": lambda scope: scope.run.facts.job,
    "job.namespace": lambda scope: scope.run.facts.namespace,
    "job.labels": lambda scope: scope.run.facts.labels,
    "job.annotations": lambda scope: scope.run.facts.annotations,
    "job.phase": lambda scope: scope.run.facts.phase.value,
    "job.gpus": lambda scope: scope.run.facts.gpus,
    "job.gpuType": lambda scope: scope.run.facts.gpu_type,
    "job.nodes": lambda scope: scope.run.facts.nodes,
    "job.queue": lambda scope: scope.run.facts.queue,
    "job.owner": lambda scope: scope.run.facts.owner,
    "job.age": lambda scope: max(scope.now - scope.run.facts.created_at, timedelta()),
    "job.runningFor": lambda scope: _seconds(scope.run.running_seconds(scope.now)),
    "job.restarts": lambda scope: scope.run.facts.restarts,
    "job.restartsWithoutProgress": _fruitless,
    "job.gpuHours": lambda scope: scope.run.running_seconds(scope.now) / 3600 * scope.run.facts.gpus,
    "job.cost": _cost,
    "job.projectedCost": _projected,
    "job.deadline": lambda scope: scope.known(scope.run.facts.deadline, "no deadline is set"),
    "progress.step": _step,
    "progress.totalSteps": _total,
    "progress.epoch": _epoch,
    "progress.percent": _percent,
    "progress.stepsPerSecond": _pace,
    "progress.phase": _phase,
    "progress.sinceReport": _since_report,
    "progress.sinceStep": _since_step,
    "progress.stallBudget": _stall_budget,
    "progress.sinceBest": _since_best,
    "progress.eta": lambda scope: _eta(scope).expected,
    "progress.etaLow": lambda scope: _eta(scope).low,
    "progress.etaHigh": lambda scope: _eta(scope).high,
    "progress.finish": lambda scope: scope.now.astimezone(UTC) + _eta(scope).expected,
    "checkpoint.step": _checkpoint_step,
    "checkpoint.age": _checkpoint_age,
    "budget.limit": _budget("limit"),
    "budget.used": _budget("used"),
    "budget.remaining": _budget("remaining"),
    "budget.percent": _budget("percent"),
    "now": lambda scope: scope.now,
}
