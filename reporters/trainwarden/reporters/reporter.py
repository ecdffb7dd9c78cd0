"""What a training holds: says where the training stands, and takes commands. Never blocks, never raises."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from trainwarden.reporters import values
from trainwarden.reporters.ambient import Recording, ambient
from trainwarden.reporters.backlog import Entry
from trainwarden.reporters.commands import Commands
from trainwarden.reporters.complaints import Complaints, logger, said, shown
from trainwarden.reporters.identity import HOSTS, NAMESPACE_MOUNT, Identity, UnknownJobError, identify
from trainwarden.reporters.inbox import Standing
from trainwarden.reporters.wire import Phase
from trainwarden.reporters.worker import Worker

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

__all__ = ["Reporter", "resume_from"]

CLOSE_SECONDS = 2.0
MAX_REASON = 2000

_PLAIN = frozenset({float, int, bool})
_ABSENT: Any = object()
_PHASES = ("init", "train", "eval", "checkpoint")


def resume_from() -> str | None:
    """Checkpoint that this process is to resume from, as `TRAINWARDEN_RESUME_FROM` says; None to start anew."""
    return os.environ.get("TRAINWARDEN_RESUME_FROM") or None


class Reporter:
    """Reports one training, from any of its threads.

    Identity and connection come from the environment (docs/reporter.md) where no argument gives them. Without a NATS
    URL or a job, with `TRAINWARDEN_DISABLED=1`, and on every rank but 0 it is inactive: all calls are allowed and do
    nothing. Each Reporter is a run of its own. In a forked child it is silent; a copy or an unpickled one is inactive.

    Args:
        namespace: Namespace of the job.
        job: Name of the job.
        url: NATS URLs, separated by commas.
        token: NATS token; give it through `TRAINWARDEN_NATS_TOKEN_FILE` when it changes.
        rank: This process among those of the training.
        world: Number of processes.
        total: Optimizer steps of the whole training, when known.
        epochs: Epochs of the whole training, when known.
        step: Optimizer steps done before: the first report of a resumed training carries it.
        heartbeat_seconds: Longest silence; then a heartbeat tells that the process lives.
        recorder: Takes the reports in place of NATS.
        enabled: False for an inactive reporter, True to report in spite of `TRAINWARDEN_DISABLED`.
    """

    def __init__(
        self,
        *,
        namespace: str | None = None,
        job: str | None = None,
        url: str | None = None,
        token: str | None = None,
        rank: int | None = None,
        world: int | None = None,
        total: int | None = None,
        epochs: float | None = None,
        step: int = 0,
        heartbeat_seconds: float = 10.0,
        recorder: Recording | None = None,
        enabled: bool | None = None,
    ) -> None:
        self.run = os.urandom(16).hex()
        self._worker: Worker | None = None
        self.commands = Commands(self.run)
        self._complaints = Complaints()
        try:
            if enabled is False:
                return
            worker = self._configured(
                namespace, job, url, token, rank, world, heartbeat_seconds, recorder or ambient(), enabled
            )
            if worker is None:
                return
            self._sizes(worker.standing, total, None, epochs)
            if type(step) is int and 0 <= step <= values.MAX_STEP:
                worker.standing.step = step
            worker.put()
            worker.start()
            self._worker, self.commands = worker, worker.commands
            weakref.finalize(self, worker.stop).atexit = False
        except UnknownJobError as error:
            logger.warning("reporter inactive: %s", error)
        except Exception as error:
            self._complaints.error("starting the reporter", error)

    @property
    def active(self) -> bool:
        """Whether reports are taken: configured, rank 0, not closed, not in a forked child."""
        return self._worker is not None and self._worker.alive

    @property
    def counts(self) -> Mapping[str, int]:
        """Reports `sent` and `dropped`, metrics `trimmed`, `connects`, and what was refused by kind."""
        counts = dict(self._complaints.counts)
        if self._worker is not None:
            counts |= {name: getattr(self._worker.counts, name) for name in self._worker.counts.__slots__}
        return counts

    def report(
        self,
        step: int = _ABSENT,
        metrics: Mapping[str, object] | None = None,
        /,  # so that metrics may have these names
        *,
        epoch: float | None = None,
        total: int | None = None,
        epochs: float | None = None,
        **more: object,
    ) -> None:
        """Report a step and what was measured at it. Takes microseconds: sending happens in the background.

        Args:
            step: Optimizer steps done so far; by position or by name.
            metrics: Name to number. A tensor on an accelerator is refused: reading it would make this thread wait.
            epoch: Epochs done so far, with a fraction.
            total: Optimizer steps of the whole training, once known.
            epochs: Epochs of the whole training, once known.
            more: More metrics.
        """
        worker = self._worker
        if worker is None or not worker.alive:
            return
        try:
            if step is _ABSENT:
                step, metrics = self._by_name(more)
            taken: dict[Any, Any] = more if metrics is None else {**metrics, **more}
            for name, value in taken.items():
                if type(value) not in _PLAIN or type(name) is not str or len(name) > values.MAX_NAME or not name:
                    taken = values.metrics(taken, self._complaints)
                    break
            if type(step) is not int or not 0 <= step <= values.MAX_STEP:
                step = values.whole("step", step)
            now = worker.standing
            if total is not None or epoch is not None or epochs is not None:
                self._sizes(now, total, epoch, epochs)
            now.step = step
            if now.phase == "init":
                now.phase = "train"
            worker.inbox.put(Entry(time.time(), now.phase, step, now.total, now.epoch, now.epochs, taken))
        except values.RefusedError as refused:
            self._complaints.add(refused.kind, str(refused))
        except Exception as error:
            self._complaints.error("report", error)

    def set_phase(self, name: Phase) -> None:
        """Say that another phase begins: `init`, `train`, `eval` or `checkpoint`. The first report begins `train`."""
        worker = self._worker
        if worker is None or not worker.alive:
            return
        try:
            known = name in _PHASES
        except Exception:  # of a comparison of somebody's own
            known = False
        if known:
            worker.set_phase(name)
        else:
            self._complaints.add(
                "phase", f"phase {shown(name)} ignored; known are {', '.join(_PHASES)}; finish() and fail() end"
            )

    @contextmanager
    def phase(self, name: Phase) -> Iterator[None]:
        """Be in a phase for a while, then in the one before."""
        worker = self._worker
        before = worker.standing.phase if worker is not None else "init"
        self.set_phase(name)
        try:
            yield
        finally:
            self.set_phase(before)

    def checkpoint_saved(self, path: str | Path, *, step: int) -> None:
        """Announce a complete checkpoint. Returns at once: its size and digest are computed in the background."""
        worker = self._worker
        if worker is None or not worker.alive:
            return
        try:
            worker.announce(os.fspath(path), values.whole("step", step))
        except values.RefusedError as refused:
            self._complaints.add(refused.kind, str(refused))
        except Exception as error:
            self._complaints.error("checkpoint_saved", error)

    def finish(self) -> None:
        """Say that the training is done. Doesn't wait; what is reported later is ignored."""
        self._end("done", None)

    def fail(self, reason: str = "") -> None:
        """Say that the training has failed, and why. Doesn't wait; what is reported later is ignored."""
        self._end("failed", said(reason)[:MAX_REASON])

    def flush(self, timeout: float = CLOSE_SECONDS) -> bool:
        """Wait at most so many seconds until what was reported so far, checkpoints too, is sent; whether it is."""
        return self._worker is None or self._worker.flush(timeout)

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Send what is left, waiting at most so many seconds. Called at exit by itself."""
        if self._worker is not None:
            self._worker.close(timeout)

    def __enter__(self) -> Reporter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
            self.finish()
        else:
            self.fail(f"{type(error).__name__}: {said(error)}")
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _inactive, ()

    @staticmethod
    def _by_name(more: dict[str, Any]) -> tuple[Any, Any]:
        """Step and metrics of a call that gave them by name."""
        return more.pop("step", None), more.pop("metrics", None)

    def _end(self, phase: Phase, reason: str | None) -> None:
        worker = self._worker
        if worker is None or not worker.alive:
            return
        worker.standing.phase, worker.standing.reason = phase, reason
        worker.put(acked=True)
        worker.stop()

    def _sizes(self, now: Standing, total: object, epoch: object, epochs: object) -> None:
        """Take in the sizes that were given; a bad one is complained of and left out."""
        if total is not None:
            with self._complaining("total"):
                now.total = (
                    total if type(total) is int and 0 <= total <= values.MAX_STEP else values.whole("total", total)
                )
        if epoch is not None:
            with self._complaining("epoch"):
                now.epoch = values.finite_number("epoch", epoch)
        if epochs is not None:
            with self._complaining("epochs"):
                now.epochs = values.finite_number("epochs", epochs)

    @contextmanager
    def _complaining(self, doing: str) -> Iterator[None]:
        """Complain of what is refused or goes wrong, and go on."""
        try:
            yield
        except values.RefusedError as refused:
            self._complaints.add(refused.kind, str(refused))
        except Exception as error:
            self._complaints.error(doing, error)

    def _configured(
        self,
        namespace: str | None,
        job: str | None,
        url: str | None,
        token: str | None,
        rank: int | None,
        world: int | None,
        heartbeat_seconds: float,
        recorder: Recording | None,
        enabled: bool | None,
    ) -> Worker | None:
        """The background of an active reporter, not started yet; None for an inactive one."""
        environ = os.environ
        url = url or environ.get("TRAINWARDEN_NATS_URL")
        if recorder is None:
            if enabled is None and environ.get("TRAINWARDEN_DISABLED", "") not in ("", "0"):
                logger.debug("reporter inactive: TRAINWARDEN_DISABLED is set")
                return None
            if not url:
                logger.debug("reporter inactive: TRAINWARDEN_NATS_URL is not set")
                return None
        identity = _identity(namespace, job, rank, world, recorded=recorder is not None)
        if identity.rank != 0:
            logger.debug("reporter inactive: rank %d, and rank 0 reports", identity.rank)
            return None
        opening = _Nats(str(url), token, identity).opening if recorder is None else recorder.opening
        worker = Worker(self.run, identity, opening, max(0.05, float(heartbeat_seconds)))
        worker.complaints = self._complaints
        if recorder is not None:
            recorder.attach(worker)
        return worker


class _Nats:
    """How to open the connection, once the background thread asks."""

    def __init__(self, url: str, token: str | None, identity: Identity) -> None:
        self._url, self._token, self._identity = url, token, identity

    def opening(self) -> Any:
        from trainwarden.reporters.link import nats_opening  # nats and asyncio take 100 ms to import

        return nats_opening(self._url, self._token, self._identity)


def _identity(
    namespace: str | None, job: str | None, rank: int | None, world: int | None, *, recorded: bool
) -> Identity:
    import socket  # here, since an inactive reporter needs none of it

    return identify(
        {"TRAINWARDEN_JOB": "recorded", **os.environ} if recorded else os.environ,
        pod=socket.gethostname(),
        hosts=_text_of(HOSTS),
        mounted_namespace=_text_of(NAMESPACE_MOUNT),
        namespace=namespace,
        job=job,
        rank=rank,
        world=world,
    )


def _text_of(path: str) -> str:
    from pathlib import Path

    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _inactive() -> Reporter:
    return Reporter(enabled=False)
