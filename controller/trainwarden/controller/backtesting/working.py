"""Replay recordings one by one, or by several processes; results come in the order of the recordings."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from multiprocessing.connection import Connection, wait
from typing import Literal

from trainwarden.controller.backtesting.judges import compiled
from trainwarden.controller.histories.recording import HistoryError, Reading, Recording
from trainwarden.policies.backtest.outcome import Replay
from trainwarden.policies.backtest.recording import Setting
from trainwarden.policies.backtest.replaying import replay
from trainwarden.policies.compiling import CompiledPolicy
from trainwarden.policies.models import Policy

__all__ = ["Batch", "Job", "replay_all"]

_BATCH = 8  # recordings that go to a process together
_AHEAD = 3  # batches that wait for each process


@dataclass(frozen=True, slots=True)
class Job:
    """What is done with every recording."""

    policies: tuple[Policy, ...]
    setting: Setting
    skip: bool = False  # leave out what is malformed
    curves: bool = False
    total: int | Literal["last"] | None = None  # steps planned, where the recording does not say; last: its last step
    since: datetime | None = None  # leave out runs that ended before

    def reading(self) -> Reading:
        """How to read a recording."""
        return Reading(skip=self.skip)


@dataclass(slots=True)
class Batch:
    """What came of some recordings."""

    replays: list[Replay] = field(default_factory=list)
    done: int = 0  # recordings, also those that gave no replay
    empty: int = 0  # recordings without a row
    skipped: int = 0
    told: list[str] = field(default_factory=list)  # the first malformed places
    error: tuple[str, str, str] | None = None  # place, found and remedy of what could not be read


def replay_all(recordings: Iterable[Recording], job: Job, *, processes: int) -> Iterator[Batch]:
    """Replay recordings, and give what came of them, some at a time.

    Args:
        recordings: Taken as they are needed.
        job: What to do with each.
        processes: How many work; 1 works in this one.

    Raises:
        HistoryError: A recording can't be read.
    """
    if processes <= 1:
        policies = compiled(job.policies)
        for recording in recordings:
            yield _checked(_work([recording], job, policies))
        return
    context = multiprocessing.get_context("spawn")  # forking does not go with threads, and not on every system
    waiting: deque[Future[Batch]] = deque()
    reader, writer = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_begin, initargs=(job, reader))
    try:
        for batch in _batches(recordings):
            waiting.append(pool.submit(_work_here, batch))
            while len(waiting) > processes * _AHEAD or (waiting and waiting[0].done()):
                yield _checked(waiting.popleft().result())
        while waiting:
            yield _checked(waiting.popleft().result())
    except BaseException:
        writer.close()  # nobody waits for what is under way
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        writer.close()
        reader.close()


def _batches(recordings: Iterable[Recording]) -> Iterator[list[Recording]]:
    batch: list[Recording] = []
    for recording in recordings:
        batch.append(recording)
        if len(batch) >= _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _checked(batch: Batch) -> Batch:
    if batch.error is not None:
        raise HistoryError(*batch.error)
    return batch


_here: tuple[Job, list[CompiledPolicy]] | None = None  # of a process of the pool


def _begin(job: Job, ending: Connection) -> None:
    global _here
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
    threading.Thread(target=_end_with, args=(ending,), daemon=True).start()
    _here = job, compiled(job.policies)


def _end_with(ending: Connection) -> None:
    """A process of the pool would work on for nobody when its parent is gone, or has closed the other end."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel, ending])
        os._exit(1)


def _work_here(recordings: Sequence[Recording]) -> Batch:
    assert _here is not None  # noqa: S101 - _begin has run
    job, policies = _here
    return _work(recordings, job, policies)


def _work(recordings: Sequence[Recording], job: Job, policies: Sequence[CompiledPolicy]) -> Batch:
    reading, batch = job.reading(), Batch()
    for recording in recordings:
        try:
            found = _replayed(recording, job, policies, reading)
        except HistoryError as error:
            if job.skip and not isinstance(error, _NoTimeError):
                reading.left_out(str(error))
                batch.done += 1
                continue
            batch.error = error.place, error.found, error.remedy
            break
        batch.done += 1
        if found is not None and not found.reports:
            batch.empty += 1
        elif found is not None:
            batch.replays.append(found)
    batch.skipped, batch.told = reading.skipped, reading.told
    return batch


class _NoTimeError(HistoryError):
    """Whether a run went on within a time can't be told."""


def _replayed(recording: Recording, job: Job, policies: Sequence[CompiledPolicy], reading: Reading) -> Replay | None:
    """The replay of a recording; None when it ended before what is asked for."""
    opened = recording.open(reading)
    total = opened.total
    if total is None and job.total is not None:
        total = job.total if isinstance(job.total, int) else _last_step(recording)
    found = replay(
        recording.id, opened.rows, policies, job.setting, started_at=opened.started_at, total=total, curves=job.curves
    )
    if job.since is not None and found.reports:
        started = opened.started_at
        if started is None:
            remedy = "leave out --since, or give histories with the time of day"
            raise _NoTimeError(recording.id, "no time of day in this history", remedy)
        if started + timedelta(seconds=found.elapsed_seconds) < job.since:
            return None
    return found


def _last_step(recording: Recording) -> int | None:
    """The last step of a recording, for which it is read once more."""
    return max((row.step for row in recording.open(Reading(skip=True)).rows), default=0) or None


def priced(setting: Setting, price_per_gpu_hour: float | None) -> Setting:
    """The setting with a price for the whole job, from that of one GPU."""
    if price_per_gpu_hour is None:
        return setting
    return replace(setting, price_per_hour=price_per_gpu_hour * setting.gpus)
