"""When a job is looked at: at once, a moment later, when time alone may change something, and how often in a replay."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum, auto

from trainwarden.controller.jobs import Allowance, Job, Key

__all__ = ["Next", "Schedule"]

_APART = 0.1  # seconds between two looks at one run; reports in between are looked at together
_SET_BACK = 60.0  # seconds by which a report is older than the newest look when the clock was set back
_DENSE = 60.0  # seconds of a replay, after the state, that are judged as closely as live
_SPARSE = 200.0  # beyond, looks lie apart by this part of the way to the nearer end


class Next(Enum):
    """What comes next in a replay."""

    RESULT = auto()  # results are to be applied
    LOOK = auto()  # the job is to be looked at


class Schedule:
    """When each job is looked at. All times are handed in, in Unix seconds at the server.

    Args:
        now: The time at the server; up to it a replay goes.
        early: Looks that may be taken although the one before was a moment ago.
    """

    def __init__(self, now: Callable[[], float], early: Allowance) -> None:
        self._now, self._early = now, early
        self._wakes: list[tuple[float, Key]] = []
        self._live = False

    def go_live(self, jobs: Iterable[Job]) -> None:
        """The replay is over: from here on, time goes on by itself."""
        self.clear(jobs)
        self._live = True

    def clear(self, jobs: Iterable[Job]) -> None:
        """Forget all waking; each job must be looked at now."""
        self._wakes.clear()
        for job in jobs:
            job.wake_at = None

    def resume(self, job: Job) -> None:
        """Begin with a job: a replay looks at it from its state on, later it is looked at as things come."""
        job.wake_at = None if self._live or not job.resumed_at else job.resumed_at

    def moment(self, job: Job, at: float) -> float:
        """The time of a look, which is not before the last one's unless the clock was set back.

        What came is stamped before it is here, so the time since the last look may be a little less than nothing.
        """
        return at if at < job.judged_at - _SET_BACK else max(at, job.judged_at)

    def looks_at_once(self, key: Key, job: Job, at: float, *, fresh: bool) -> bool:
        """Whether a report that came is looked at at once; else the job is woken a moment later.

        Args:
            key: Of the job.
            job: Its state; `wake_at` is changed.
            at: When the report came.
            fresh: Whether few reports wait behind it.
        """
        after = at - job.judged_at
        apart = _APART if self._live else self._apart(job, at)
        if after >= apart or after < -_SET_BACK or (fresh and self._live and self._early.take()):
            return True
        self.wake(key, job, job.judged_at + apart)
        return False

    def wake(self, key: Key, job: Job, at: float) -> None:
        """Have a job looked at by a time, or earlier."""
        if job.wake_at is None or at < job.wake_at:
            job.wake_at = at
            if self._live:
                heapq.heappush(self._wakes, (at, key))

    def woken(self, jobs: Mapping[Key, Job], now: float) -> Iterator[tuple[Key, Job]]:
        """Jobs whose time has come; each is no longer to be woken."""
        while self._wakes and self._wakes[0][0] <= now:
            at, key = heapq.heappop(self._wakes)
            job = jobs.get(key)
            if job is not None and job.wake_at == at:
                job.wake_at = None
                yield key, job

    def next_before(self, job: Job, until: float) -> tuple[Next, float] | None:
        """What time alone would have done to a job next, and when; None when nothing before `until`.

        Of two at one time results come first. A look that is given is no longer to be woken for.
        """
        result = job.due[0][1] if job.due else until
        wake = until
        if job.wake_at is not None:
            wake = max(job.wake_at, job.judged_at + self._apart(job, job.wake_at))
        if result < until and result <= wake:
            return Next.RESULT, result
        if wake < until:
            job.wake_at = None
            return Next.LOOK, wake
        return None

    def _apart(self, job: Job, at: float) -> float:
        """Seconds between two looks in a replay: as live near its beginning and its end, further apart in between."""
        return max(_APART, min(at - job.resumed_at - _DENSE, self._now() - at) / _SPARSE)
