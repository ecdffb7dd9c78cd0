"""One run from start to end: server, engine, notifier, executor and the command, and what comes out of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainwarden.controller.bus import Bus, BusError, Entry, Reading
from trainwarden.controller.engine import Engine
from trainwarden.controller.exit_codes import ExitCode
from trainwarden.controller.local.decision_log import DecisionLog
from trainwarden.controller.local.display import Display
from trainwarden.controller.local.executor import Executor
from trainwarden.controller.local.job import JobStartError
from trainwarden.controller.local.server import LocalServer, ServerError
from trainwarden.controller.local.target import LocalTarget
from trainwarden.controller.local.workspace import RunFolder, RunRecord
from trainwarden.controller.notifier_role import NotifierRole
from trainwarden.controller.payloads import decode
from trainwarden.controller.publishing import publish_policy
from trainwarden.controller.status import RunStatus
from trainwarden.controller.streams import LOCAL, ensure_streams
from trainwarden.notifiers.delivery import DeliveryResult, Dispatcher
from trainwarden.policies.decision import ActionType
from trainwarden.policies.facts import JobPhase
from trainwarden.policies.models import Policy
from trainwarden.policies.notice import Notice

__all__ = ["Ending", "Options", "Session"]

log = logging.getLogger(__name__)

_QUIET = 0.6  # seconds without anything new after which all is told
_LONGEST_ENDING = 45.0  # seconds after the job's end that messages may take
_ERRNO_NOT_FOUND = 2


@dataclass(frozen=True, slots=True)
class Options:
    """How to run."""

    channels: Mapping[str, Sequence[str]] = field(default_factory=dict)  # name to Apprise URLs
    decision_log: Path | None = None
    nats_port: int = 0
    grace: float = 30.0  # seconds between SIGTERM and SIGKILL
    version: str = ""


@dataclass(slots=True)
class Ending:
    """How a run ended."""

    code: int
    record: RunRecord
    log: DecisionLog
    status: RunStatus | None = None
    problems: list[str] = field(default_factory=list)
    deliveries: list[tuple[str, str, str]] = field(default_factory=list)  # target, state, reason
    training_code: int | None = None
    seconds: float = 0.0


class Session:
    """Runs one attempt of a run."""

    def __init__(
        self, folder: RunFolder, record: RunRecord, policies: Sequence[Policy], options: Options, display: Display
    ) -> None:
        self._folder, self._record, self._policies, self._options = folder, record, policies, options
        self._display = display
        self._log = DecisionLog(options.decision_log)
        self._ending = Ending(ExitCode.DONE, record, self._log)
        self._watching: set[asyncio.Task[None]] = set()
        self._began = time.time()
        self._signals = 0
        self._signal: int | None = None

    async def run(self) -> Ending:
        """Run until the command has ended and everybody is told."""
        ending = self._ending
        try:
            server = await LocalServer.start(self._folder.nats, port=self._options.nats_port)
        except ServerError as error:
            return self._failed(str(error))
        try:
            bus = await server.connect()
            try:
                await ensure_streams(bus, LOCAL)
                await self._with_bus(server, bus)
            finally:
                await bus.close()
        except (ServerError, BusError) as error:
            return self._failed(str(error))
        finally:
            await server.stop()
            self._log.close()
        return ending

    def _failed(self, problem: str) -> Ending:
        self._ending.code = ExitCode.FAILED
        self._ending.problems.append(problem)
        return self._ending

    async def _with_bus(self, server: LocalServer, bus: Bus) -> None:
        ending, options = self._ending, self._options
        target = LocalTarget(self._folder, self._record, bus, grace=options.grace)
        for policy in self._policies:
            await publish_policy(bus, policy)
        await target.tell(JobPhase.PENDING)
        dispatcher = Dispatcher(_channels(options.channels, self._policies))
        engine = Engine(bus, version=options.version)
        notifier = NotifierRole(bus, dispatcher if any(options.channels.values()) else _Nobody())
        executor = Executor(bus, target, since=datetime.now(UTC), told=self._display.action)
        stop = asyncio.Event()
        roles: dict[str, Coroutine[Any, Any, None]] = {
            "engine": engine.run(stop),
            "notifier": notifier.run(),
            "executor": executor.run(),
            "decision log": Reading(bus, "TW_DECISIONS", take=self._decided).run(),
            "status": Reading(bus, "TW_STATE", take=self._told, newest_only=True).run(),
        }
        tasks = {asyncio.create_task(role, name=name) for name, role in roles.items()}
        watcher = asyncio.create_task(self._watch(tasks))
        try:
            await self._until(engine.ready.wait(), watcher)
            with self._heeding_signals(target):
                try:
                    await target.start(server, output=self._display.output)
                except JobStartError as error:
                    self._cannot_start(error)
                    return
                self._display.begin(self._record, target.seconds)
                ending.training_code = await asyncio.shield(target.job.exited)
                await target.job.gone.wait()
                await target.job.settled()
            if target.ended_by is None:
                await target.ended()
            ending.seconds = self._record.running_seconds
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_told(executor, notifier), _LONGEST_ENDING)
            ending.code = self._code(target, ending.training_code)
            for _, results in notifier.results:
                ending.deliveries += [(each.target, str(each.state), each.reason) for each in results]
            stop.set()
        finally:
            self._display.end()
            watcher.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(watcher, *tasks, return_exceptions=True)
            await dispatcher.close()

    def _cannot_start(self, error: JobStartError) -> None:
        found = error.errno != _ERRNO_NOT_FOUND
        self._ending.code = ExitCode.NOT_EXECUTABLE if found else ExitCode.NOT_FOUND
        what = "can't be executed" if found else "was not found"
        command = self._record.command[0]
        self._ending.problems.append(f"the command {command!r} {what}: {error.strerror}")
        self._record.state = "failed"
        self._folder.save(self._record)

    async def _watch(self, tasks: set[asyncio.Task[None]]) -> None:
        """A role of ours that fails must never end the training: it goes on unwatched, and that is said."""
        waiting = set(tasks)
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                error = None if task.cancelled() else task.exception()
                if error is not None:
                    log.error("a role has failed role=%s", task.get_name(), exc_info=error)
                    reason = f"the {task.get_name()} has failed ({type(error).__name__}: {error})"
                    self._ending.problems.append(f"{reason}; the training went on without it")
                    self._display.problem(self._ending.problems[-1])

    async def _until(self, wait: Coroutine[Any, Any, Any], watcher: asyncio.Task[None]) -> None:
        """Wait for the engine, but not for ever when it has failed."""
        waiting = asyncio.create_task(wait)
        while not waiting.done() and not self._ending.problems:
            await asyncio.wait({waiting}, timeout=0.1)
        waiting.cancel()
        del watcher

    async def _all_told(self, executor: Executor, notifier: NotifierRole) -> None:
        """Wait until nothing new comes of the job's end."""
        quiet = 0.0
        while quiet < _QUIET:
            before = (len(self._log.decisions), len(notifier.results))
            await asyncio.sleep(0.1)
            await notifier.settled()
            same = executor.idle and before == (len(self._log.decisions), len(notifier.results))
            quiet = quiet + 0.1 if same else 0.0

    def _code(self, target: LocalTarget, training: int | None) -> int:
        if target.ended_by is not None:
            return {
                ActionType.SUSPEND: ExitCode.SUSPENDED,
                ActionType.STOP: ExitCode.STOPPED,
                ActionType.DELETE: ExitCode.DELETED,
            }[target.ended_by]
        if self._signal == signal.SIGINT:
            return ExitCode.INTERRUPTED
        if self._signal is not None:
            return ExitCode.TERMINATED
        code = training if training is not None else 1
        code = 128 - code if code < 0 else code
        return ExitCode.FAILED if code == 0 and self._ending.problems else code

    @contextlib.contextmanager
    def _heeding_signals(self, target: LocalTarget) -> Any:
        """Pass Ctrl-C and SIGTERM on, so that the training can save; the second time, or after a grace, kill."""
        loop = asyncio.get_running_loop()

        def heed(number: int) -> None:
            self._signals += 1
            self._signal = number
            if not target.alive:
                return
            if self._signals > 1:
                target.job.signal(signal.SIGKILL)
                return
            self._display.problem(
                f"{signal.Signals(number).name} passed on to the training; "
                f"it has {self._options.grace:g} s to end (again to kill it)"
            )
            target.job.signal(number)
            loop.call_later(self._options.grace, _kill, target)

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, heed, number)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    def _decided(self, entry: Entry) -> None:
        if entry.time < self._began:
            return  # of an earlier attempt
        before, problem = len(self._log.decisions), self._log.problem
        self._log.take(entry)
        if self._log.problem and not problem:
            self._ending.problems.append(self._log.problem)
            self._display.problem(self._log.problem)
        if len(self._log.decisions) > before:
            self._display.decision(self._log.decisions[-1])

    def _told(self, entry: Entry) -> None:
        status = decode(entry.data, RunStatus)
        self._ending.status = status
        self._display.status(status)


class _Nobody:
    """Stands where no channel is set."""

    async def send(self, notice: Notice) -> tuple[DeliveryResult, ...]:
        """Tell nobody, which the notifier's role says."""
        del notice
        return ()


def _channels(given: Mapping[str, Sequence[str]], policies: Sequence[Policy]) -> dict[str, Sequence[str]]:
    """The given channels; names that policies use and that are not known here mean the default one."""
    default = given.get("default", ())
    named = {
        name for policy in policies for rule in policy.spec.rules for step in rule.actions for name in step.channels
    }
    return {**dict.fromkeys(named, default), **given}


def _kill(target: LocalTarget) -> None:
    if target.alive:
        target.job.signal(signal.SIGKILL)
