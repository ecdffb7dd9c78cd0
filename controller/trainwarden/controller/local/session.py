"""One run from start to end: server, engine, notifier, executor and the command, and what comes out of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nats.errors import Error as NatsError

from trainwarden.controller.bus import Bus, BusError, Entry, Reading
from trainwarden.controller.cancelling import end_all
from trainwarden.controller.contesting import Contestable, locally
from trainwarden.controller.engine import Engine
from trainwarden.controller.executor import Executor
from trainwarden.controller.exit_codes import ExitCode
from trainwarden.controller.local.decision_log import DecisionLog
from trainwarden.controller.local.display import Display
from trainwarden.controller.local.job import JobStartError
from trainwarden.controller.local.server import LocalServer, ServerError
from trainwarden.controller.local.target import LocalTarget
from trainwarden.controller.local.workspace import RecordState, RunFolder, RunRecord
from trainwarden.controller.notifier_role import NotifierRole
from trainwarden.controller.payloads import decode
from trainwarden.controller.publishing import publish_policy, told_policies, withdraw_policies
from trainwarden.controller.status import RunStatus
from trainwarden.controller.streams import LOCAL, ensure_streams
from trainwarden.controller.subjects import policy_subject
from trainwarden.notifiers.delivery import DeliveryResult, Dispatcher
from trainwarden.policies.decision import ActionResult, ActionType
from trainwarden.policies.facts import JobPhase
from trainwarden.policies.models import Policy
from trainwarden.policies.notice import Notice

__all__ = ["Ending", "Options", "Session"]

log = logging.getLogger(__name__)

_QUIET = 0.6  # seconds without anything new after which all is told
_LONGEST_ENDING = 45.0  # seconds after the job's end that messages may take
_LONGEST_START = 30.0  # seconds that preparing may take before the training starts
_LONGEST_STOP = 6.0
_LONGEST_STATUS = 2.0
_ERRNO_NOT_FOUND = 2
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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
    ended_by: ActionType | None = None  # what a policy did; a training may have ended itself with the same code
    signal: int | None = None  # that ended the training, when somebody sent us one
    seconds: float = 0.0
    saved_seconds: float | None = None  # of training that will not be run, as people were told
    saved_cost: float | None = None
    resume_command: str = ""


class Session:
    """Runs one attempt of a run."""

    def __init__(
        self, folder: RunFolder, record: RunRecord, policies: Sequence[Policy], options: Options, display: Display
    ) -> None:
        self._folder, self._record, self._policies, self._options = folder, record, policies, options
        self._display = display
        self._log = DecisionLog(options.decision_log)
        self._ending = Ending(ExitCode.DONE, record, self._log, resume_command=folder.resume_command(record))
        self._target: LocalTarget | None = None
        self._storing = True
        self._began = time.time()
        self._signals = 0
        self._signal: int | None = None

    async def run(self) -> Ending:
        """Run until the command has ended and everybody is told."""
        try:
            with self._heeding_signals():
                server = await LocalServer.start(self._folder.nats, port=self._options.nats_port)
                try:
                    await self._with_server(server)
                finally:
                    await server.stop()
        except (ServerError, BusError, NatsError, OSError) as error:  # a TimeoutError is an OSError
            self._problem(str(error) or type(error).__name__)
            self._ending.code = ExitCode.FAILED
        finally:
            self._log.close()
        return self._ending

    async def _with_server(self, server: LocalServer) -> None:
        bus = await server.connect()
        target = LocalTarget(self._folder, self._record, bus, grace=self._options.grace, said=self._problem)
        self._target = target
        try:
            try:
                async with asyncio.timeout(_LONGEST_START):
                    await ensure_streams(bus, LOCAL)
                    await self._place_policies(bus)
                    stored = await target.tell(JobPhase.PENDING)
            except TimeoutError:
                stored = False
            if not stored:
                raise ServerError(f"nats-server does not store what it is told: {server.complaint() or 'it is silent'}")
            await self._with_roles(server, bus, target)
        finally:
            await bus.close()

    async def _place_policies(self, bus: Bus) -> None:
        """Put the policies where the engine reads them, and take away those of an earlier attempt."""
        given = {policy_subject(policy) for policy in self._policies}
        await withdraw_policies(bus, await told_policies(bus) - given)
        for policy in self._policies:
            await publish_policy(bus, policy)

    async def _with_roles(self, server: LocalServer, bus: Bus, target: LocalTarget) -> None:
        given = self._options.channels
        unknown = _unknown_channels(given, self._policies)
        dispatcher = Dispatcher({**dict.fromkeys(unknown, given.get("default", ())), **given})
        for name in unknown if any(given.values()) else ():
            self._show(self._display.problem, f"there is no channel {name!r} here; its messages go where all go")
        engine = Engine(bus, version=self._options.version)
        telling = Contestable(dispatcher, locally(self._options.decision_log)) if any(given.values()) else _Nobody()
        notifier = NotifierRole(bus, telling)
        executor = Executor(bus, target.if_meant, told=self._acted)
        stop = asyncio.Event()

        def stores(well: bool) -> None:
            self._storing = well
            if server.trouble:
                return  # and it has been said
            if well:
                self._show(self._display.problem, "nats-server stores reports again; the training is watched")
            else:
                why = server.complaint()
                self._show(
                    self._display.problem,
                    f"nats-server does not store reports{f' ({why})' if why else ''}; the training goes on unwatched",
                )

        roles: dict[str, Coroutine[Any, Any, None]] = {
            "engine": engine.run(stop),
            "notifier": notifier.run(),
            "executor": executor.run(),
            "decision log": Reading(bus, "TW_DECISIONS", take=self._decided).run(),
            "status": Reading(bus, "TW_STATE", take=self._told, newest_only=True).run(),
            "nats-server": server.keep_up(lambda text: self._show(self._display.problem, text)),
            "facts": target.keep_told(stores),
        }
        tasks = {name: asyncio.create_task(role, name=name) for name, role in roles.items()}
        watcher = asyncio.create_task(self._watch(set(tasks.values())))
        try:
            await self._until(engine.ready)
            if self._signal is not None:
                self._ending.code = self._code(target, None)
                return
            if await self._train(server, target):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LONGEST_ENDING):
                        await self._all_told(executor, notifier)
                await self._give_up(dispatcher, executor, notifier)
                self._finish(target, server, notifier)
                stop.set()
                await asyncio.wait({tasks["engine"]}, timeout=_LONGEST_STOP)
        finally:
            self._show(self._display.end)
            await end_all([watcher, *tasks.values()])
            await dispatcher.close()

    async def _train(self, server: LocalServer, target: LocalTarget) -> bool:
        """Run the command to its end; whether it could be started."""
        try:
            await target.start(server, output=self._display.output)
        except JobStartError as error:
            self._cannot_start(error)
            return False
        self._show(self._display.begin, self._record, target.seconds)
        self._ending.training_code = await asyncio.shield(target.job.exited)
        await target.job.gone.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST_STOP):
                await target.job.settled()
        await target.ended()
        return True

    def _finish(self, target: LocalTarget, server: LocalServer, notifier: NotifierRole) -> None:
        ending = self._ending
        ending.seconds = target.seconds()
        if server.trouble or not self._storing:
            why = server.trouble or server.complaint() or "it did not answer"
            self._problem(f"nats-server stored no reports at the end: {why}; nothing was judged then")
        ending.code = self._code(target, ending.training_code)
        for notice, results in notifier.results:
            if notice.saved_seconds is not None:
                ending.saved_seconds, ending.saved_cost = notice.saved_seconds, notice.saved_cost
            ending.deliveries += [(each.target, str(each.state), each.reason) for each in results]

    def _problem(self, text: str) -> None:
        """A part of ours does not work: said now, and in the summary."""
        self._ending.problems.append(text)
        if self._target is not None and self._target.alive:
            self._show(self._display.problem, text)

    def _show(self, shown: Callable[..., None], *arguments: object) -> None:
        """Show something; a terminal or pipe that is gone must not end the training."""
        try:
            shown(*arguments)
        except Exception as error:
            log.warning("can't be shown reason=%s", error)

    def _cannot_start(self, error: JobStartError) -> None:
        found = error.errno != _ERRNO_NOT_FOUND
        self._ending.code = ExitCode.NOT_EXECUTABLE if found else ExitCode.NOT_FOUND
        what = "can't be executed" if found else "was not found"
        command = self._record.command[0]
        self._problem(f"the command {command!r} {what}: {error.strerror}")
        self._record.state = RecordState.FAILED
        with contextlib.suppress(OSError):
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
                    self._problem(f"{reason}; the training went on without it")

    async def _until(self, ready: asyncio.Event) -> None:
        """Wait for the engine, but not for ever when a role has failed, or somebody wants an end."""
        while not ready.is_set() and not self._ending.problems and self._signal is None:  # noqa: ASYNC110 - of three
            await asyncio.sleep(0.05)

    async def _all_told(self, executor: Executor, notifier: NotifierRole) -> None:
        """Wait until nothing new comes of the job's end, or somebody wants no more of it."""
        quiet, waited, signals = 0.0, 0.0, self._signals
        while (quiet < _QUIET or (waited < _LONGEST_STATUS and not self._is_over())) and self._signals == signals:
            before = (len(self._log.decisions), len(notifier.results))
            await asyncio.sleep(0.1)
            await notifier.settled()
            same = executor.idle and before == (len(self._log.decisions), len(notifier.results))
            quiet, waited = quiet + 0.1 if same else 0.0, waited + 0.1

    async def _give_up(self, dispatcher: Dispatcher, executor: Executor, notifier: NotifierRole) -> None:
        """End messages that are still under way, so that they are told as not delivered."""
        if not notifier.busy:
            return
        await dispatcher.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST_STATUS):
                await self._all_told(executor, notifier)

    def _is_over(self) -> bool:
        """Whether the engine has said where the ended run stands."""
        status = self._ending.status
        return status is not None and status.job_phase not in (JobPhase.PENDING.value, JobPhase.RUNNING.value)

    def _code(self, target: LocalTarget, training: int | None) -> int:
        if target.ended_by is not None:
            self._ending.ended_by = target.ended_by
            return {
                ActionType.SUSPEND: ExitCode.SUSPENDED,
                ActionType.STOP: ExitCode.STOPPED,
                ActionType.DELETE: ExitCode.DELETED,
            }[target.ended_by]
        if self._signal is not None and (training is None or target.interrupted):
            self._ending.signal = self._signal
            return 128 + self._signal
        code = training if training is not None else 1
        code = 128 - code if code < 0 else code
        return ExitCode.FAILED if code == 0 and self._ending.problems else code

    @contextlib.contextmanager
    def _heeding_signals(self) -> Iterator[None]:
        """Pass Ctrl-C, SIGTERM and SIGHUP on, so that the training can save; the second, or a grace later, kill it.

        Before the training runs they keep it from being started; after its end they cut short what is still to be told.
        """
        loop = asyncio.get_running_loop()
        heeded = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # nohup ignores one
        for number in heeded:
            loop.add_signal_handler(number, self._heed, number)
        try:
            yield
        finally:
            for number in heeded:
                loop.remove_signal_handler(number)

    def _heed(self, number: int) -> None:
        self._signals += 1
        self._signal = number
        target = self._target
        if target is None or not target.alive:
            return
        if target.interrupted:
            target.job.send(signal.SIGKILL)
            return
        target.interrupted = True
        target.job.send(number)
        asyncio.get_running_loop().call_later(self._options.grace, _kill, target)
        self._show(
            self._display.problem,
            f"{signal.Signals(number).name} passed on to the training; "
            f"it has {self._options.grace:g} s to end (again to kill it)",
        )

    def _decided(self, entry: Entry) -> None:
        if entry.time < self._began:
            return  # of an earlier attempt
        before, problem = len(self._log.decisions), self._log.problem
        self._log.take(entry)
        if self._log.problem and not problem:
            self._problem(self._log.problem)
        if len(self._log.decisions) > before:
            self._show(self._display.decision, self._log.decisions[-1])

    def _told(self, entry: Entry) -> None:
        if entry.time < self._began:
            return
        status = decode(entry.data, RunStatus)
        self._ending.status = status
        if self._target is not None:
            self._target.note_checkpoint(status.checkpoint)
        self._show(self._display.status, status)

    def _acted(self, result: ActionResult) -> None:
        self._show(self._display.action, result)


class _Nobody:
    """Stands where no channel is set."""

    async def send(self, notice: Notice) -> tuple[DeliveryResult, ...]:
        """Tell nobody, which the notifier's role says."""
        del notice
        return ()


def _unknown_channels(given: Mapping[str, Sequence[str]], policies: Sequence[Policy]) -> list[str]:
    """Names of channels that policies use and that are not known here."""
    actions = (step for policy in policies for rule in policy.spec.rules for step in rule.actions)
    return sorted({name for step in actions for name in step.channels} - given.keys())


def _kill(target: LocalTarget) -> None:
    if target.alive:
        target.job.send(signal.SIGKILL)
