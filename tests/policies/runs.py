"""Runs for tests: facts and reports with everything that a test does not care about filled in."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from trainwarden.policies.facts import JobPhase, RunFacts
from trainwarden.policies.run import Reception, RunState
from trainwarden.reporters.wire import Checkpoint, Phase, Report

T0 = datetime(2026, 12, 4, 18, 0, tzinfo=UTC)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)


def facts(**changes: Any) -> RunFacts:
    """Facts of a running job whose pods have been ready since T0."""
    usual: dict[str, Any] = {
        "namespace": "team-a",
        "job": "llama",
        "uid": "u-1",
        "phase": JobPhase.RUNNING,
        "time": T0,
        "created_at": T0 - MINUTE,
        "attempt": "a-1",
        "attempt_started_at": T0,
        "ready": True,
        "gpus": 8,
    }
    return RunFacts(**(usual | changes))


@dataclass
class Training:
    """A training that reports to a RunState. Time goes on by `every` with each report."""

    state: RunState = field(default_factory=lambda: RunState(facts()))
    run: str = "r-1"
    pod: str = "llama-0"
    at: datetime = T0
    every: timedelta = 10 * SECOND
    total: int | None = 1000
    seq: itertools.count[int] = field(default_factory=itertools.count)

    def report(
        self,
        step: int,
        metrics: dict[str, float] | None = None,
        *,
        phase: Phase = "train",
        seq: int | None = None,
        nonfinite: dict[str, str] | None = None,
        checkpoint: Checkpoint | None = None,
        rank: int = 0,
        wait: timedelta | None = None,
        epoch: float | None = None,
        epochs: float | None = None,
    ) -> Reception:
        self.at += self.every if wait is None else wait
        message = Report(
            run=self.run,
            seq=next(self.seq) if seq is None else seq,
            ts=0.0,
            pod=self.pod,
            phase=phase,
            step=step,
            rank=rank,
            total=self.total,
            epoch=epoch,
            epochs=epochs,
            metrics=metrics or {},
            nonfinite=nonfinite or {},
            checkpoint=checkpoint,
        )
        return self.state.observe(message, self.at)

    def losses(self, values: Iterable[float], *, start: int = 1, name: str = "loss", stride: int = 1) -> None:
        for number, value in enumerate(values):
            self.report(start + number * stride, {name: value})

    def again(self, run: str, *, pod: str | None = None, seq: int = 0) -> Training:
        """Another training for the same job, from now on."""
        return Training(self.state, run, pod or self.pod, self.at, self.every, self.total, itertools.count(seq))
