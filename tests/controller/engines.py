"""An engine under test: policies, facts and reports in, and all that comes out."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import yaml
from tests.reporters.nats_server import PATIENCE, eventually

from trainwarden.controller.bus import Bus, Entry, Reading
from trainwarden.controller.engine import Engine
from trainwarden.controller.payloads import decode
from trainwarden.controller.publishing import publish_facts
from trainwarden.controller.status import RunStatus
from trainwarden.policies.decision import ActionRequest, ActionResult, Decision
from trainwarden.policies.facts import JobPhase, RunFacts
from trainwarden.policies.loading import policy_from_body
from trainwarden.policies.models import Policy
from trainwarden.policies.notice import Notice
from trainwarden.reporters.wire import Phase, Report, encode, report_subject

HIGH = "{name: high, when: metrics.loss > 5.0, actions: [{type: Notify}]}"


def policy(rules: str, *, name: str = "guard", generation: int = 1, mode: str = "Enforce", **spec: Any) -> Policy:
    """A policy of the rules given as YAML."""
    given = yaml.safe_load(rules)
    return policy_from_body(
        {
            "apiVersion": "trainwarden.dev/v1alpha1",
            "kind": "TrainingPolicy",
            "metadata": {"name": name, "namespace": "team-a", "uid": f"uid-{name}", "generation": generation},
            "spec": {
                "mode": mode,
                "selector": {},
                "protections": {"minRunningFor": "0s"},
                "rules": given if isinstance(given, list) else [given],
                **spec,
            },
        }
    )


def facts(**changes: Any) -> RunFacts:
    now = datetime.now(UTC)
    usual: dict[str, Any] = {
        "namespace": "team-a",
        "job": "bert",
        "uid": "u-1",
        "phase": JobPhase.RUNNING,
        "time": now,
        "created_at": now,
        "attempt": "a-1",
        "attempt_started_at": now,
        "ready": True,
    }
    return RunFacts(**(usual | changes))


@dataclass
class Outcome:
    """All that is on the streams that the engine and others write to, kept by reading them."""

    decisions: list[Decision] = field(default_factory=list)
    requests: list[ActionRequest] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    results: list[ActionResult] = field(default_factory=list)
    states: list[RunStatus] = field(default_factory=list)

    @property
    def told(self) -> list[str]:
        """Decisions, in order, as `rule Firing` or `rule Suspend Requested`."""
        return [
            f"{d.rule} {d.action.type.value} {d.action_state.value}"
            if d.action and d.action_state
            else f"{d.rule} {d.verdict.value}"
            for d in self.decisions
        ]

    def once(self) -> None:
        """See that nothing is there twice."""
        for ids in (
            [d.id for d in self.decisions],
            [r.action.id for r in self.requests],
            [n.id for n in self.notices],
        ):
            doubled = [each for each, count in Counter(ids).items() if count > 1]
            assert not doubled, f"{doubled} in {self.told}"
        doubled = [each for each, count in Counter(self.told).items() if count > 1]
        assert not doubled, (
            f"{doubled} in {[(d.time, *told) for d, *told in zip(self.decisions, self.told, strict=False)]}"
        )


@contextlib.asynccontextmanager
async def hearing(bus: Bus) -> AsyncIterator[Outcome]:
    """All that was and will be on the streams."""
    heard = Outcome()
    streams: list[tuple[str, list[Any], Any]] = [
        ("TW_DECISIONS", heard.decisions, Decision),
        ("TW_ACTIONS", heard.requests, ActionRequest),
        ("TW_NOTICES", heard.notices, Notice),
        ("TW_RESULTS", heard.results, ActionResult),
        ("TW_STATE", heard.states, RunStatus),
    ]

    def taker(kept: list[Any], kind: Any) -> Any:
        def take(entry: Entry) -> None:
            kept.append(decode(entry.data, kind))

        return take

    readings = [Reading(bus, stream, take=taker(kept, kind)) for stream, kept, kind in streams]
    tasks = [asyncio.create_task(reading.run()) for reading in readings]
    try:
        for reading in readings:
            await asyncio.wait_for(reading.caught_up.wait(), PATIENCE)
        yield heard
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def running(bus: Bus, **options: Any) -> AsyncIterator[Engine]:
    """An engine that is ready, and is stopped hard at the end, as by a crash."""
    engine = Engine(bus, version="test", **options)
    task = asyncio.create_task(engine.run())
    try:
        await _ready(engine, task)
        yield engine
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _ready(engine: Engine, task: asyncio.Task[None]) -> None:
    await eventually(lambda: engine.ready.is_set() or task.done())
    if task.done():
        task.result()


@dataclass
class Trainer:
    """Sends reports as a training does."""

    bus: Bus
    run: str = "r-1"
    pod: str = "bert-0"
    job: str = "bert"
    namespace: str = "team-a"
    seq: itertools.count[int] = field(default_factory=itertools.count)
    step: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    async def report(
        self,
        loss: float | None = None,
        *,
        phase: Phase = "train",
        seq: int | None = None,
        step: int | None = None,
        nonfinite: dict[str, str] | None = None,
    ) -> None:
        """Send a report that the server has when this returns."""
        message = Report(
            run=self.run,
            seq=next(self.seq) if seq is None else seq,
            ts=time.time(),
            pod=self.pod,
            phase=phase,
            step=next(self.step) if step is None else step,
            total=10_000,
            metrics={} if loss is None else {"loss": loss},
            nonfinite=nonfinite or {},
        )
        await self.send(encode(message))

    async def send(self, data: bytes) -> None:
        await self.bus.store(
            report_subject(self.namespace, self.job), data, message_id=f"{self.run}:{time.monotonic_ns()}"
        )

    async def until(self, true: Any, loss: float | None = None, *, patience: float = PATIENCE, **more: Any) -> None:
        """Report on and on until something holds."""
        deadline = time.monotonic() + patience
        while not true():
            assert time.monotonic() < deadline, "it never came to hold"
            await self.report(loss, **more)
            await asyncio.sleep(0.05)


async def begin(bus: Bus, **changes: Any) -> RunFacts:
    """A job that runs."""
    told = facts(**changes)
    await publish_facts(bus, told)
    return told
