"""The local job: its process, what is known of it (facts), and its record on disk."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from nats.errors import Error as NatsError

from trainwarden.controller.bus import Bus, BusError
from trainwarden.controller.local.checkpoint import problem_of_checkpoint
from trainwarden.controller.local.job import Job
from trainwarden.controller.local.server import LocalServer
from trainwarden.controller.local.workspace import RecordState, RunFolder, RunRecord
from trainwarden.controller.publishing import publish_facts
from trainwarden.policies.decision import ActionRequest, ActionType, Proof, RunRef
from trainwarden.policies.facts import JobPhase, RunFacts

__all__ = ["LocalTarget"]


log = logging.getLogger(__name__)

_STATES = {
    ActionType.SUSPEND: RecordState.SUSPENDED,
    ActionType.STOP: RecordState.STOPPED,
    ActionType.DELETE: RecordState.DELETED,
}
_PHASES = {
    ActionType.SUSPEND: JobPhase.SUSPENDED,
    ActionType.STOP: JobPhase.FAILED,
    ActionType.DELETE: JobPhase.DELETING,
}
_TOLD_WITHIN = 5.0  # seconds until NATS must have stored what it is told
_TELL_EVERY = 10.0  # seconds between two looks at whether it still does


class LocalTarget:
    """Implements the executor's Target for one process.

    Args:
        folder: Of the run.
        record: Of the run; kept up to date, in the folder too.
        bus: The connection.
        grace: Seconds between SIGTERM and SIGKILL.
        said: Takes what a person must know: the record can't be written.
    """

    def __init__(
        self, folder: RunFolder, record: RunRecord, bus: Bus, *, grace: float, said: Callable[[str], None]
    ) -> None:
        self.folder, self.record = folder, record
        self._bus, self._grace, self._said = bus, grace, said
        self._job: Job | None = None
        self._started_at: datetime | None = None
        self._started = 0.0
        self._ran: float | None = None  # seconds of this attempt, once it has ended
        self._phase = JobPhase.PENDING
        self.ended_by: ActionType | None = None
        self.interrupted = False  # a person's signal was passed on

    @property
    def alive(self) -> bool:
        return self._job is not None and not self._job.exited.done()

    @property
    def attempt(self) -> str:
        return f"{self.record.id}-{self.record.attempts}"

    @property
    def job(self) -> Job:
        """The process; it has been started."""
        assert self._job is not None  # noqa: S101 - start comes first
        return self._job

    @property
    def resume_command(self) -> str:
        return self.folder.resume_command(self.record)

    def if_meant(self, run: RunRef) -> LocalTarget | None:
        """This job, when it is the one that a decision is about."""
        record = self.record
        mine = (run.namespace, run.job, run.uid) == (record.namespace, record.name, record.uid)
        return self if mine else None

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
        record.state, record.reason = RecordState.RUNNING, ""
        self.keep()
        await self.tell(JobPhase.RUNNING)

    def seconds(self) -> float:
        """How long this attempt has run, or ran."""
        if self._ran is not None:
            return self._ran
        return time.monotonic() - self._started if self._started_at is not None else 0.0

    def keep(self) -> None:
        """Write the record; a full disk is said, and the run goes on."""
        try:
            self.folder.save(self.record)
        except OSError as error:
            self._said(f"{self.folder.path}/run.json can't be written: {error.strerror}; resume will know less")

    def note_checkpoint(self, proof: Proof | None) -> None:
        """Keep the newest complete checkpoint, so that a run which ends in any way can be resumed from it."""
        if proof is not None and proof != self.record.checkpoint and self.ended_by is None:
            self.record.checkpoint = proof
            self.keep()

    async def tell(self, phase: JobPhase | None = None) -> bool:
        """Publish what is known now; whether NATS has stored it in time."""
        self._phase = phase = phase or self._phase
        record = self.record
        facts = RunFacts(
            namespace=record.namespace,
            job=record.name,
            uid=record.uid,
            phase=phase,
            time=datetime.now(UTC),
            created_at=record.created_at,
            attempt=self.attempt,
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
            ended_because=self._why() if phase.ended else "",
        )
        try:
            async with asyncio.timeout(_TOLD_WITHIN):
                await publish_facts(self._bus, facts)
        except (BusError, NatsError, OSError, TimeoutError) as error:
            log.warning("facts were not stored reason=%s", type(error).__name__)
            return False
        return True

    def _why(self) -> str:
        """How the process ended, beyond its phase."""
        if self.ended_by is not None:
            return f"{_STATES[self.ended_by].value} by a policy"
        if self.interrupted:
            return "interrupted by a person's signal"
        code = self._job.exited.result() if self._job is not None and self._job.exited.done() else 0
        return f"exit code {code}" if code > 0 else f"signal {-code}" if code < 0 else ""

    async def keep_told(self, well: Callable[[bool], None]) -> None:
        """Tell again and again while the process runs, also after NATS was away; works until cancelled.

        Args:
            well: Called with whether NATS stores what it is told, when that changes.
        """
        was = True
        while True:
            await asyncio.sleep(_TELL_EVERY if was else 1.0)
            if self.alive and (stored := await self.tell()) is not was:
                well(was := stored)

    def forget(self, action_id: str) -> None:
        """Nothing is counted here."""

    async def wait_ended(self) -> None:
        await asyncio.shield(self.job.exited)

    @property
    def sees_files(self) -> bool:
        return True

    async def objection(self, request: ActionRequest) -> tuple[str, str] | None:
        """Nothing stands against an action here."""
        return None

    async def problem_of(self, proof: Proof) -> str:
        return await problem_of_checkpoint(proof, Path(self.record.folder))

    async def end(self, request: ActionRequest, *, proof: Proof | None) -> None:
        """End the process, and record how before it is gone, so that a crash of ours in between forgets nothing."""
        record, how = self.record, request.action.type
        self.ended_by = how
        record.state, record.reason = _STATES[how], request.decision.rule
        record.checkpoint = proof or record.checkpoint
        self.keep()
        await self.job.end(0.0 if how is ActionType.DELETE else self._grace)
        await self.ended()

    async def ended(self) -> None:
        """The process is gone: record and publish how, once."""
        await self.job.gone.wait()
        if self._ran is not None:
            return
        self._ran, record = self.seconds(), self.record
        record.running_seconds += self._ran
        self._started_at = None
        code = self.job.exited.result()
        if self.ended_by is not None:
            phase = _PHASES[self.ended_by]
        elif code == 0 and not self.interrupted:
            phase, record.state = JobPhase.COMPLETE, RecordState.COMPLETE
        else:
            phase = JobPhase.FAILED
            record.state = RecordState.INTERRUPTED if self.interrupted else RecordState.FAILED
        self.keep()
        await self.tell(phase)
