"""Does to jobs what the engine asks: checkpoint with proof, suspend, stop, delete. Each id once, wherever they run."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
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
    Decision,
    Proof,
    RunRef,
)
from trainwarden.policies.expressions.functions import human_duration
from trainwarden.reporters.wire import Command, Reply

__all__ = ["AUDITED", "LATER", "REMAINS", "Executor", "NotDoneError", "Target"]

log = logging.getLogger(__name__)

LATER = "Brake"
"""Reason of an objection that passes by itself: the action waits, as long as its rule asks for it."""

AUDITED = "AuditSwitch"
"""Reason of an objection by which nothing is done for now, whatever the policies' modes are: the action waits, too."""

REMAINS = "PodsRemain"
"""Reason of an action that has had its effect, and not all of it."""

_HELD_BACK = frozenset({LATER, AUDITED})
_AGAIN = 15.0  # seconds between two looks at whether an action may be done by now
_HOLD_MARGIN = 120.0  # seconds that a hold outlives the time for saving: proof checked, process ended
_LAST_WORD = 1.0  # seconds that an answer may still be on its way when the training has ended


class Target(Protocol):
    """The job that actions are done to."""

    @property
    def attempt(self) -> str:
        """The attempt that runs now; what was asked for in another is not done."""
        ...

    @property
    def alive(self) -> bool:
        """Whether its processes run."""
        ...

    @property
    def resume_command(self) -> str:
        """What a person types to go on."""
        ...

    @property
    def sees_files(self) -> bool:
        """Whether a checkpoint's files can be looked at from here, beyond what the training says of them."""
        ...

    async def objection(self, request: ActionRequest) -> tuple[str, str] | None:
        """Reason, for machines, and message of why this place does not allow an action; None when it does.

        With the reasons LATER and AUDITED it is asked for again.
        """
        ...

    def forget(self, action_id: str) -> None:
        """Nothing has come of an action that was not objected to."""
        ...

    async def wait_ended(self) -> None:
        """Wait until its process has ended; other processes of it may still be there."""
        ...

    async def problem_of(self, proof: Proof) -> str:
        """What is wrong with a checkpoint, as far as it can be seen from here; empty when nothing is."""
        ...

    async def end(self, request: ActionRequest, *, proof: Proof | None) -> None:
        """End the job and all that came of it, and record how; returns when its processes are gone.

        It is called again after a crash of ours, and then sees to what is left.

        Raises:
            NotDoneError: It can't be done here.
        """
        ...


class NotDoneError(Exception):
    """An action did not work.

    Args:
        reason: One CamelCase word for machines.
        message: A sentence for people.
        refused: Whether it was not even tried.
    """

    def __init__(self, reason: str, message: str, *, refused: bool = False) -> None:
        self.reason, self.refused = reason, refused
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class _Saved:
    """A checkpoint to rely on, or why there is none."""

    proof: Proof | None
    note: str


class Executor:
    """Takes requests from the outbox; those of one job in order, one at a time, and jobs beside each other.

    Where each action stands is in TW_RESULTS, so that another executor goes on where this one was killed.

    Args:
        bus: The connection.
        target_of: The job that a decision is about; None when there is none.
        told: Takes each result, beside its stream.
        remains: Waits for what came of a job that is gone, and gives what is still there; empty when nothing is.
        at_once: Jobs that are worked on beside each other.
    """

    def __init__(
        self,
        bus: Bus,
        target_of: Callable[[RunRef], Target | None],
        *,
        told: Callable[[ActionResult], None] = lambda result: None,
        remains: Callable[[RunRef], Awaitable[str]] | None = None,
        at_once: int = 1000,
    ) -> None:
        self._bus, self._target_of, self._told, self._remains = bus, target_of, told, remains
        self._final: set[str] = set()
        self._cancelled: set[str] = set()
        self._waiting: set[str] = set()  # of actions that wait and have said so
        self._reached: dict[str, ActionResult] = {}  # newest result of actions that are being done
        self._queues: dict[tuple[str, str], deque[ActionRequest]] = {}
        self._workers: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(at_once)

    @property
    def idle(self) -> bool:
        """Whether nothing is asked for."""
        return not self._workers

    async def run(self) -> None:
        """Work until cancelled."""
        results = Reading(self._bus, "TW_RESULTS", take=self._take_result)
        decisions = Reading(self._bus, "TW_DECISIONS", take=self._take_decision)
        requests = Reading(self._bus, "TW_ACTIONS", take=self._take_request)
        tasks: list[asyncio.Task[None]] = []
        try:
            for reading in (results, decisions):
                tasks.append(asyncio.create_task(reading.run()))
                await reading.caught_up.wait()
            tasks.append(asyncio.create_task(requests.run()))
            await asyncio.gather(*tasks)
        finally:
            await end_all([*tasks, *self._workers.values()])

    def _take_result(self, entry: Entry) -> None:
        try:
            result = decode(entry.data, ActionResult)
        except msgspec.DecodeError:
            return
        if result.state.final:
            self._final.add(result.action_id)
            self._reached.pop(result.action_id, None)
        elif result.action_id not in self._final:
            self._reached[result.action_id] = result

    def _take_decision(self, entry: Entry) -> None:
        """Learn which actions the engine has taken back."""
        if b'"actionState":"Cancelled"' not in entry.data:
            return
        with contextlib.suppress(msgspec.DecodeError):
            decision = decode(entry.data, Decision)
            if decision.action is not None and decision.action_state is ActionState.CANCELLED:
                self._cancelled.add(decision.action.id)

    def _take_request(self, entry: Entry) -> None:
        try:
            request = decode(entry.data, ActionRequest)
        except msgspec.DecodeError as error:
            log.error("an action can't be read reason=%s", error)
            return
        if request.action.id in self._final:
            return
        run = request.decision.run
        key = (run.namespace, run.job)
        self._queues.setdefault(key, deque()).append(request)
        if key not in self._workers:
            self._workers[key] = asyncio.create_task(self._work(key))

    async def _work(self, key: tuple[str, str]) -> None:
        try:
            async with self._places:
                queue, later = self._queues[key], list[ActionRequest]()
                while queue:
                    request = queue.popleft()
                    if await self._do(request):
                        later.append(request)
                queue.extend(later)
        finally:
            del self._workers[key]
            if not self._queues[key]:
                del self._queues[key]
            else:
                asyncio.get_running_loop().call_later(_AGAIN, self._begin, key)

    def _begin(self, key: tuple[str, str]) -> None:
        if key in self._queues and key not in self._workers:
            self._workers[key] = asyncio.create_task(self._work(key))

    async def _do(self, request: ActionRequest) -> bool:
        """Do an action, whatever comes of it; gives whether it waits, and is to be done later."""
        action = request.action
        if action.id in self._final:
            return False
        self._final.add(action.id)
        target = self._target_of(request.decision.run)
        try:
            return await self._try(request, target)
        except NotDoneError as error:
            if error.reason in _HELD_BACK:
                return await self._wait(request, error.reason, str(error))
            state = ActionState.REFUSED if error.refused else ActionState.FAILED
            await self._say(request, state, error.reason, str(error))
        except Exception as error:
            log.exception("an action failed action=%s", action.type)
            await self._say(request, ActionState.FAILED, "InternalError", f"{type(error).__name__}: {error}")
        return False

    async def _try(self, request: ActionRequest, target: Target | None) -> bool:
        action = request.action
        reached = self._reached.pop(action.id, None)
        ending = reached is not None and reached.reason == "Ending"
        if target is None and reached is not None and ending and action.type is ActionType.DELETE:
            await self._say_deleted(request, reached)
            return False
        if target is None:
            raise NotDoneError("NoJob", "there is no such job any more", refused=True)
        same = request.decision.run.attempt == target.attempt
        if same and reached is not None and ending:
            # The effect may be there, and its record missing.
            await self._finish(request, target, _Saved(reached.proof, reached.message))
            return False
        if (objection := await self._objection(request, target)) is not None:
            if objection[0] in _HELD_BACK:
                return await self._wait(request, *objection)
            raise NotDoneError(*objection, refused=True)
        try:
            await self._say(request, ActionState.IN_PROGRESS, "Begun", f"{action.type} has begun")
            if action.type is ActionType.CHECKPOINT:
                await self._checkpoint(request, target)
            else:
                await self._end(request, target)
        except NotDoneError as error:
            if error.reason != REMAINS:
                target.forget(action.id)
            raise
        return False

    async def _wait(self, request: ActionRequest, reason: str, message: str) -> bool:
        self._final.discard(request.action.id)
        if request.action.id not in self._waiting:
            self._waiting.add(request.action.id)
            await self._say(request, ActionState.WAITING, reason, message)
        return True

    async def _objection(self, request: ActionRequest, target: Target) -> tuple[str, str] | None:
        """Why an action is not begun; None when it may be."""
        if request.action.id in self._cancelled:
            return "Resolved", "the rule had resolved before it was begun"
        if request.decision.run.attempt != target.attempt:
            return "AttemptOver", "it was asked for in an earlier attempt"
        if not target.alive:
            return "JobEnded", "the job had already ended"
        return await target.objection(request)

    async def _checkpoint(self, request: ActionRequest, target: Target) -> None:
        saved, _ = await self._save(request, target, hold=False)
        if saved.proof is None:
            await self._say(request, ActionState.FAILED, "NotSaved", saved.note)
        else:
            await self._say(request, ActionState.DONE, "Saved", saved.note, proof=saved.proof)

    async def _end(self, request: ActionRequest, target: Target) -> None:
        """Save first as the policy says, then end the job; a training that holds for it is let go when it isn't."""
        action, mode = request.action, request.action.checkpoint
        saved, held = _Saved(None, ""), None
        try:
            if mode is not CheckpointMode.SKIP:
                saved, held = await self._save(request, target, hold=True)
            if not target.alive:
                held = None
                await self._say(request, ActionState.REFUSED, "JobEnded", "the job ended by itself", proof=saved.proof)
                target.forget(action.id)
                return
            if saved.proof is None and mode is not CheckpointMode.SKIP:
                saved = await self._newest(request, target, saved.note)
            if saved.proof is None and mode is CheckpointMode.REQUIRED:
                message = f"not done, since no checkpoint is proven: {saved.note}"
                raise NotDoneError("NoCheckpoint", message, refused=True)
            if action.id in self._cancelled:
                raise NotDoneError("Resolved", "the rule resolved before the effect", refused=True)
            if request.decision.run.attempt != target.attempt:
                raise NotDoneError("AttemptOver", "another attempt has begun meanwhile", refused=True)
            await self._say(request, ActionState.IN_PROGRESS, "Ending", saved.note, proof=saved.proof)
            await self._finish(request, target, saved)
            held = None
        finally:
            if held is not None and target.alive:
                await self._release(request, target, held)

    async def _finish(self, request: ActionRequest, target: Target, saved: _Saved) -> None:
        """Do what can't be taken back, or see it done after a crash, and say so."""
        await target.end(request, proof=saved.proof)
        await self._say_ended(request, saved.proof, saved.note, resume_command=target.resume_command)

    async def _say_deleted(self, request: ActionRequest, reached: ActionResult) -> None:
        """The job is gone, and the record of its deletion is missing: see to its pods, and say so."""
        left = await self._remains(request.decision.run) if self._remains is not None else ""
        if left:
            raise NotDoneError(REMAINS, f"it was deleted, but {left}")
        await self._say_ended(request, reached.proof, reached.message)

    async def _say_ended(
        self, request: ActionRequest, proof: Proof | None, note: str, *, resume_command: str = ""
    ) -> None:
        action = request.action
        where = f" after {note}" if proof is not None else ""
        done = {"Suspend": "suspended", "Stop": "stopped", "Delete": "deleted"}[action.type.value]
        await self._say(
            request,
            ActionState.DONE,
            done.capitalize(),
            f"{done}{where or ' without a checkpoint'}; all its processes are gone",
            proof=proof,
            resume=resume_command if action.type is ActionType.SUSPEND and proof is not None else "",
        )

    async def _save(self, request: ActionRequest, target: Target, *, hold: bool) -> tuple[_Saved, Command | None]:
        """Ask the training for a checkpoint, and check its proof.

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
        reply = await self._ask(request, target, command, patience=min(30.0, seconds))
        if reply is None:
            return _Saved(None, "the training ended before it had saved"), None
        held = command if hold and reply.state != "unsupported" else None
        if reply.state != "saved" or reply.checkpoint is None:
            return _Saved(None, reply.reason or f"the training answered {reply.state}"), held
        told = reply.checkpoint
        proof = Proof(step=told.step, path=told.path, bytes=told.bytes, digest=told.digest)
        if proof.digest is None:
            return _Saved(None, f"the training sent no digest over the files of {proof.path}"), held
        problem = await target.problem_of(proof)
        if problem:
            return _Saved(None, problem), held
        return _Saved(proof, f"its checkpoint of step {proof.step} was proven ({proof.path})"), held

    async def _ask(self, request: ActionRequest, target: Target, command: Command, *, patience: float) -> Reply | None:
        """Ask the training; None when it ends without an answer."""
        run = request.decision.run
        asking = asyncio.create_task(ask(self._bus, run.namespace, run.job, command, patience=patience))
        ending = asyncio.create_task(target.wait_ended())
        try:
            await asyncio.wait({asking, ending}, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                await asyncio.wait({asking}, timeout=_LAST_WORD)
            return asking.result() if asking.done() else None
        finally:
            await end_all((asking, ending))

    async def _newest(self, request: ActionRequest, target: Target, why: str) -> _Saved:
        """The newest known checkpoint, when the policy lets it do and it is fresh enough."""
        known, age, most = request.newest_checkpoint, request.newest_checkpoint_age, request.action.max_checkpoint_age
        if known is None or most is None:
            return _Saved(None, why)
        if age is None or age > most:
            shown = "unknown" if age is None else human_duration(age)
            return _Saved(
                None, f"{why}; the newest checkpoint's age is {shown}, at most {human_duration(most)} will do"
            )
        problem = await target.problem_of(known)
        if problem:
            return _Saved(None, f"{why}; {problem}")
        how = "was checked" if target.sees_files else "was announced by the training"
        return _Saved(known, f"the newest checkpoint of step {known.step} {how} ({known.path})")

    async def _release(self, request: ActionRequest, target: Target, held: Command) -> None:
        release = Command(id=f"{held.id}-release", run=held.run, op="release", timeout=10.0)
        with contextlib.suppress(NatsError, OSError, TimeoutError):
            await self._ask(request, target, release, patience=5.0)

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
