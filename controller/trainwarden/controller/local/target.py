"""The local job: its process, what is known of it (facts), and its record on disk."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from trainwarden.controller.bus import Bus
from trainwarden.controller.local.job import Job
from trainwarden.controller.local.server import LocalServer
from trainwarden.controller.local.workspace import RunFolder, RunRecord
from trainwarden.controller.publishing import publish_facts
from trainwarden.policies.decision import ActionType, Proof
from trainwarden.policies.facts import JobPhase, RunFacts

__all__ = ["LocalTarget"]


class LocalTarget:
    """Implements the executor's Target for one process."""

    def __init__(self, folder: RunFolder, record: RunRecord, bus: Bus, *, grace: float) -> None:
        self.folder, self.record = folder, record
        self._bus, self._grace = bus, grace
        self._job: Job | None = None
        self._started_at: datetime | None = None
        self._started = 0.0
        self.ended_by: ActionType | None = None

    @property
    def alive(self) -> bool:
        return self._job is not None and not self._job.exited.done()

    @property
    def job(self) -> Job:
        """The process; it has been started."""
        assert self._job is not None  # noqa: S101 - start comes first
        return self._job

    @property
    def resume_command(self) -> str:
        return f"trainwarden resume {self.record.name}-{self.record.id}"

    async def start(self, server: LocalServer, *, output: Callable[[bytes], None] | None) -> None:
        """Start the command as a new attempt.

        Raises:
            JobStartError: It can't be found or executed.
        """
        record = self.record
        record.attempts += 1
        environment = {
            **os.environ,
            "TRAINWARDEN_NATS_URL": server.url,
            "TRAINWARDEN_NATS_TOKEN_FILE": str(server.token_file),
            "TRAINWARDEN_NAMESPACE": record.namespace,
            "TRAINWARDEN_JOB": record.name,
            "TRAINWARDEN_AUTO": os.environ.get("TRAINWARDEN_AUTO", "1"),
        }
        for name in ("TRAINWARDEN_NATS_TOKEN", "TRAINWARDEN_RESUME_FROM", "TRAINWARDEN_DISABLED"):
            environment.pop(name, None)
        if record.checkpoint is not None:
            environment["TRAINWARDEN_RESUME_FROM"] = record.checkpoint.path
        if output is not None:
            environment.setdefault("PYTHONUNBUFFERED", "1")
        self._job = await Job.start(record.command, environment=environment, folder=Path(record.folder), output=output)
        self._started_at, self._started = datetime.now(UTC), time.monotonic()
        record.state, record.reason = "running", ""
        self.folder.save(record)
        await self.tell(JobPhase.RUNNING)

    def seconds(self) -> float:
        """How long this attempt has run, or ran."""
        return time.monotonic() - self._started if self._started_at is not None else 0.0

    async def tell(self, phase: JobPhase) -> None:
        """Publish what is known now."""
        record = self.record
        await publish_facts(
            self._bus,
            RunFacts(
                namespace=record.namespace,
                job=record.name,
                uid=record.uid,
                phase=phase,
                time=datetime.now(UTC),
                created_at=record.created_at,
                attempt=f"{record.id}-{record.attempts}",
                attempt_started_at=self._started_at,
                ready=phase is JobPhase.RUNNING,
                pods=(socket.gethostname(),),
                restarts=0,
                labels=record.labels,
                gpus=record.gpus,
                owner=os.environ.get("USER", ""),
                running_seconds=record.running_seconds,
                price_per_hour=record.price_per_hour,
                deadline=record.deadline,
            ),
        )

    async def end(self, how: ActionType, *, proof: Proof | None, reason: str) -> None:
        """End the process, and record how before it is gone, so that a crash of ours in between forgets nothing."""
        record = self.record
        self.ended_by = how
        record.state = {"Suspend": "suspended", "Stop": "stopped", "Delete": "deleted"}[how.value]
        record.checkpoint = proof or record.checkpoint
        record.reason = reason
        self.folder.save(record)
        await self.job.end(0.0 if how is ActionType.DELETE else self._grace)
        await self.ended()

    async def ended(self) -> None:
        """The process is gone: record and publish how."""
        await self.job.gone.wait()
        record = self.record
        if self._started_at is None:
            return
        record.running_seconds += self.seconds()
        code = await asyncio.shield(self.job.exited)
        phase = (
            {
                ActionType.SUSPEND: JobPhase.SUSPENDED,
                ActionType.STOP: JobPhase.FAILED,
                ActionType.DELETE: JobPhase.DELETING,
            }.get(self.ended_by)
            if self.ended_by is not None
            else None
        )
        if phase is None:
            phase = JobPhase.COMPLETE if code == 0 else JobPhase.FAILED
            record.state = "complete" if code == 0 else "failed"
        started, self._started_at = self._started_at, None
        self.folder.save(record)
        del started
        await self.tell(phase)
