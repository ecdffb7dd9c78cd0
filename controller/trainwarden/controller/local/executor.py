"""Does to a local process what the engine asks: checkpoint with proof, suspend, stop, delete. Each id once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import msgspec
from nats.errors import Error as NatsError

from trainwarden.controller.bus import Bus, Entry, Reading
from trainwarden.controller.cancelling import end_all
from trainwarden.controller.commanding import ask
from trainwarden.controller.payloads import decode
from trainwarden.controller.publishing import publish_result
from trainwarden.policies.decision import (
    ActionRequest,
    ActionResult,
    ActionState,
    ActionType,
    CheckpointMode,
    Proof,
)
from trainwarden.policies.expressions.functions import human_duration
from trainwarden.reporters.proof import ProofError, measure
from trainwarden.reporters.wire import Command, Reply

__all__ = ["Executor", "Target", "check_proof"]

log = logging.getLogger(__name__)

_HOLD_MARGIN = 120.0  # seconds that a hold outlives the time for saving: proof checked, process ended
_LAST_WORD = 1.0  # seconds that an answer may still be on its way when the training has ended


class Target(Protocol):
    """The job that actions are done to."""

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        ...

    @property
    def resume_command(self) -> str:
        """What a person types to go on."""
        ...

    async def wait_ended(self) -> None:
        """Wait until its process has ended; other processes of it may still be there."""
        ...

    async def end(self, how: ActionType, *, proof: Proof | None, reason: str) -> None:
        """End the process and all that came of it, and record how; returns when they are gone."""
        ...


@dataclass(frozen=True, slots=True)
class _Saved:
    """A checkpoint to rely on, or why there is none."""

    proof: Proof | None
    note: str


class Executor:
    """Takes requests from the outbox in order, one at a time."""

    def __init__(self, bus: Bus, target: Target, *, since: datetime, told: Callable[[ActionResult], None]) -> None:
        self._bus, self._target, self._since, self._told = bus, target, since, told
        self._final: set[str] = set()
        self._queue: asyncio.Queue[ActionRequest] = asyncio.Queue()
        self._busy = False

    @property
    def idle(self) -> bool:
        """Whether nothing is asked for."""
        return not self._busy and self._queue.empty()

    async def run(self) -> None:
        """Work until cancelled."""
        results = Reading(self._bus, "TW_RESULTS", take=self._take_result)
        requests = Reading(self._bus, "TW_ACTIONS", take=self._take_request)
        tasks = [asyncio.create_task(results.run())]
        try:
            await results.caught_up.wait()
            tasks.append(asyncio.create_task(requests.run()))
            while True:
                request = await self._queue.get()
                self._busy = True
                try:
                    await self._do(request)
                finally:
                    self._busy = False
        finally:
            await end_all(tasks)

    def _take_result(self, entry: Entry) -> None:
        try:
            result = decode(entry.data, ActionResult)
        except msgspec.DecodeError:
            return
        if result.state.final:
            self._final.add(result.action_id)

    def _take_request(self, entry: Entry) -> None:
        try:
            request = decode(entry.data, ActionRequest)
        except msgspec.DecodeError as error:
            log.error("an action can't be read reason=%s", error)
            return
        if request.action.id not in self._final:
            self._queue.put_nowait(request)

    async def _do(self, request: ActionRequest) -> None:
        action = request.action
        if action.id in self._final:
            return
        self._final.add(action.id)
        if request.decision.time < self._since:
            await self._say(request, ActionState.REFUSED, "AttemptOver", "it was asked for in an earlier attempt")
            return
        if not self._target.alive:
            await self._say(request, ActionState.REFUSED, "JobEnded", "the job had already ended")
            return
        await self._say(request, ActionState.IN_PROGRESS, "Begun", f"{action.type} has begun")
        try:
            if action.type is ActionType.CHECKPOINT:
                await self._checkpoint(request)
            else:
                await self._end(request)
        except Exception as error:
            log.exception("an action failed action=%s", action.type)
            await self._say(request, ActionState.FAILED, "InternalError", f"{type(error).__name__}: {error}")

    async def _checkpoint(self, request: ActionRequest) -> None:
        saved, _ = await self._save(request, hold=False)
        if saved.proof is None:
            await self._say(request, ActionState.FAILED, "NotSaved", saved.note)
        else:
            await self._say(request, ActionState.DONE, "Saved", saved.note, proof=saved.proof)

    async def _end(self, request: ActionRequest) -> None:
        """Save first as the policy says, then end the job; a training that holds for it is let go when it isn't."""
        action, mode = request.action, request.action.checkpoint
        saved, held = _Saved(None, ""), None
        try:
            if mode is not CheckpointMode.SKIP:
                saved, held = await self._save(request, hold=True)
            if not self._target.alive:
                held = None
                await self._say(request, ActionState.REFUSED, "JobEnded", "the job ended by itself", proof=saved.proof)
                return
            if saved.proof is None and mode is not CheckpointMode.SKIP:
                saved = await self._newest(request, saved.note)
            if saved.proof is None and mode is CheckpointMode.REQUIRED:
                message = f"not done, since no checkpoint is proven: {saved.note}"
                await self._say(request, ActionState.REFUSED, "NoCheckpoint", message)
                return
            await self._target.end(action.type, proof=saved.proof, reason=request.decision.rule)
            held = None
        finally:
            if held is not None and self._target.alive:
                await self._release(request, held)
        where = f" after {saved.note}" if saved.proof is not None else " without a checkpoint"
        done = {"Suspend": "suspended", "Stop": "stopped", "Delete": "deleted"}[action.type.value]
        await self._say(
            request,
            ActionState.DONE,
            done.capitalize(),
            f"{done}{where}; all its processes are gone",
            proof=saved.proof,
            resume=self._target.resume_command if action.type is ActionType.SUSPEND and saved.proof is not None else "",
        )

    async def _save(self, request: ActionRequest, *, hold: bool) -> tuple[_Saved, Command | None]:
        """Ask the training for a checkpoint, and check its proof against the files.

        Gives also the command for which the training may hold, now or once it comes to it.
        """
        run, action = request.decision.run, request.action
        if not run.run:
            return _Saved(None, "the training has no trainwarden reporter that could be asked"), None
        seconds = action.timeout.total_seconds()
        command = Command(
            id=action.id,
            run=run.run,
            op="stop" if action.type is ActionType.STOP else "checkpoint",
            hold=hold,
            timeout=seconds,
            holdFor=seconds + _HOLD_MARGIN,
        )
        reply = await self._ask(request, command, patience=min(30.0, seconds))
        if reply is None:
            return _Saved(None, "the training ended before it had saved"), None
        held = command if hold and reply.state != "unsupported" else None
        if reply.state != "saved" or reply.checkpoint is None:
            return _Saved(None, reply.reason or f"the training answered {reply.state}"), held
        told = reply.checkpoint
        proof = Proof(step=told.step, path=told.path, bytes=told.bytes, digest=told.digest)
        problem = await check_proof(proof)
        if problem:
            return _Saved(None, problem), held
        return _Saved(proof, f"its checkpoint of step {proof.step} was proven ({proof.path})"), held

    async def _ask(self, request: ActionRequest, command: Command, *, patience: float) -> Reply | None:
        """Ask the training; None when it ends without an answer."""
        run = request.decision.run
        asking = asyncio.create_task(ask(self._bus, run.namespace, run.job, command, patience=patience))
        ending = asyncio.create_task(self._target.wait_ended())
        try:
            await asyncio.wait({asking, ending}, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                await asyncio.wait({asking}, timeout=_LAST_WORD)
            return asking.result() if asking.done() else None
        finally:
            await end_all((asking, ending))

    async def _newest(self, request: ActionRequest, why: str) -> _Saved:
        """The newest known checkpoint, when the policy lets it do and it is fresh enough."""
        known, age, most = request.newest_checkpoint, request.newest_checkpoint_age, request.action.max_checkpoint_age
        if known is None or most is None:
            return _Saved(None, why)
        if age is None or age > most:
            shown = "unknown" if age is None else human_duration(age)
            return _Saved(
                None, f"{why}; the newest checkpoint's age is {shown}, at most {human_duration(most)} will do"
            )
        problem = await check_proof(known)
        if problem:
            return _Saved(None, f"{why}; {problem}")
        return _Saved(known, f"the newest checkpoint of step {known.step} was checked ({known.path})")

    async def _release(self, request: ActionRequest, held: Command) -> None:
        release = Command(id=f"{held.id}-release", run=held.run, op="release", timeout=10.0)
        with contextlib.suppress(NatsError, OSError, TimeoutError):
            await self._ask(request, release, patience=5.0)

    async def _say(
        self,
        request: ActionRequest,
        state: ActionState,
        reason: str,
        message: str,
        *,
        proof: Proof | None = None,
        resume: str = "",
    ) -> None:
        run = request.decision.run
        result = ActionResult(
            action_id=request.action.id,
            namespace=run.namespace,
            job=run.job,
            state=state,
            reason=reason,
            message=message,
            time=datetime.now(UTC),
            proof=proof,
            resume_command=resume,
        )
        self._told(result)
        await publish_result(self._bus, result)


async def check_proof(proof: Proof) -> str:
    """What is wrong with a checkpoint; empty when its files are there and are what was proven."""
    path = Path(proof.path)
    try:
        found = await asyncio.to_thread(measure, path)
    except (ProofError, OSError) as error:
        return f"the checkpoint {path} can't be read: {error}"
    if proof.digest is not None and found.digest != proof.digest:
        return f"the checkpoint {path} is not what the training proved: its files have changed"
    return ""
