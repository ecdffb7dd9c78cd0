"""One unit test with all that its file gives it: rows laid out in time, facts, and what is looked at when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from trainwarden.policies.decision import Mode
from trainwarden.policies.documents import Path
from trainwarden.policies.models import SpecModel
from trainwarden.policies.unittests.life import Tick, read_life, ticks
from trainwarden.policies.unittests.models import Change, Executor, JobFacts, PolicyTests, UnitTest
from trainwarden.policies.unittests.numbers import values
from trainwarden.policies.unittests.rows import MOST_TICKS, NotationError

__all__ = ["Plan", "PlanError", "plan"]

_STEADY = read_life("1+1x*")


class PlanError(ValueError):
    """A test can't be laid out. Its author must act; the text is `found; remedy`."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path  # within the test
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class Plan:
    """A run to be replayed. Times are since the start."""

    start: datetime
    every: timedelta
    look: timedelta
    length: timedelta
    mode: Mode | None
    job: JobFacts
    changes: tuple[Change, ...]  # in order of time
    executor: Executor
    total_steps: int | None
    ticks: Sequence[Tick]  # the n-th is at n * every
    epochs: Sequence[float | None]  # as long
    metrics: dict[str, list[float | None]]  # each as long


def plan(file: PolicyTests, test: UnitTest) -> Plan:
    """Lay out a test.

    Raises:
        PlanError: Its rows don't fit together.
    """
    every = file.every if test.every is None else test.every
    if not every:
        raise PlanError(("every",), "0s; write a time such as 1m")
    end = _length(test, every)
    count = end // every + 1
    if count > MOST_TICKS:
        raise PlanError((), f"{count} reports; at most {MOST_TICKS} are right: report less often with a larger every")
    life = test.run or _STEADY
    if not life.open:
        for name, row in test.series.items():
            if row.length > life.length:
                text = f"{row.length} values, but the run has only {life.length} places; let the run go on, as by =+1x*"
                raise PlanError(("series", name), text)
    metrics = {}
    for name, row in test.series.items():
        try:
            metrics[name] = values(row, end=count, name=name, seed=test.seed)
        except NotationError as error:
            raise PlanError(("series", name), str(error)) from error
    try:
        epochs = values(test.epoch, end=count, name="", seed=test.seed) if test.epoch else [None] * count
    except NotationError as error:
        raise PlanError(("epoch",), str(error)) from error
    try:
        laid_out = ticks(life, end=count)
    except NotationError as error:
        raise PlanError(("run",), str(error)) from error
    return Plan(
        start=test.start or file.start,
        every=every,
        look=max(test.look or file.look or every // 10, timedelta(seconds=1)),
        length=end,
        mode=test.mode or file.mode,
        job=_merged(file.job, test.job),
        changes=tuple(sorted(test.changes, key=lambda change: change.at)),
        executor=_merged(file.executor, test.executor),
        total_steps=test.total_steps,
        ticks=laid_out,
        epochs=epochs,
        metrics=metrics,
    )


def _length(test: UnitTest, every: timedelta) -> timedelta:
    """To the last place of the rows and the last expectation, or as given."""
    moments = [moment for each in test.expect for moment in (each.at, each.from_, each.to) if moment is not None]
    latest = max(moments, default=timedelta(0))
    if test.length is not None:
        if latest > test.length:
            raise PlanError(("length",), "an expectation lies behind the end of the test; make the test longer")
        return test.length
    rows = [*test.series.values(), *(row for row in (test.run, test.epoch) if row is not None)]
    longest = max((row.length for row in rows), default=1)
    return max(latest, every * (longest - 1))


def _merged(common: Any, own: SpecModel | None) -> Any:
    """A model of the file with what a test gives itself."""
    if own is None:
        return common
    return common.model_copy(update={name: getattr(own, name) for name in own.model_fields_set})
