"""Which training of a job is the one that is judged, and which reports belong to it.

A report belongs to the attempt of its pod, and within it to the training that began last. Reports of older attempts
and older trainings are fenced off; repeated ones are known by their sequence number. After a restart of ours the stream
is read again from before this attempt: what older attempts said then is taken as history.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from trainwarden.policies.facts import RunFacts
from trainwarden.policies.report import ReportLike

__all__ = ["Attempts", "Reception"]

_REMEMBERED = 64  # trainings, per job
_REACH = 256  # sequence numbers below the newest that may still come late
_MASK = (1 << _REACH) - 1


class Reception(StrEnum):
    """What became of a report."""

    ACCEPTED = "Accepted"
    STARTED = "Started"  # accepted, and the first of a training
    REORDERED = "Reordered"  # accepted, though a newer one came before it: only its metrics count
    DUPLICATE = "Duplicate"  # seen before, or too old to tell
    FENCED = "Fenced"  # of an older attempt or an older training
    IGNORED = "Ignored"  # of a rank other than 0
    INVALID = "Invalid"  # a step below 0 or beyond 2**53

    @property
    def counted(self) -> bool:
        """Whether the report changed what is known of the run."""
        return self in (Reception.ACCEPTED, Reception.STARTED, Reception.REORDERED)


class _Sequence:
    """Sequence numbers of one training: the newest, and which of those just below it were seen."""

    __slots__ = ("ended", "newest", "seen")

    def __init__(self, seq: int) -> None:
        self.newest = seq
        self.seen = 1
        self.ended = False  # its newest report said done or failed

    def take(self, seq: int) -> Reception:
        ahead = seq - self.newest
        if ahead > 0:
            self.seen = ((self.seen << ahead) & _MASK | 1) if ahead < _REACH else 1
            self.newest = seq
            return Reception.ACCEPTED
        bit = 1 << -ahead if -ahead < _REACH else 0
        if not bit or self.seen & bit:
            return Reception.DUPLICATE
        self.seen |= bit
        return Reception.REORDERED


class Attempts:
    """Admits reports of the newest training of the newest attempt."""

    __slots__ = ("_fenced", "_known", "_since", "attempt", "history", "pods", "run")

    def __init__(self, facts: RunFacts) -> None:
        self.attempt = facts.attempt
        self.pods = frozenset(facts.pods)
        self.run = ""  # id of the training that is judged; empty before its first report
        self.history = False  # that training is of an older attempt, read again after a restart of ours
        self._since = facts.attempt_started_at or facts.time
        self._known: dict[str, _Sequence] = {}  # trainings of this attempt
        self._fenced: dict[str, None] = {}  # trainings of older attempts, oldest first

    def learn(self, facts: RunFacts) -> bool:
        """Take newer facts; True when they begin another attempt. Its pods' trainings are admitted, older ones not."""
        self.pods = frozenset(facts.pods)
        self._since = facts.attempt_started_at or facts.time
        if facts.attempt == self.attempt:
            return False
        self.attempt = facts.attempt
        self._fenced.update(dict.fromkeys(self._known))
        while len(self._fenced) > _REMEMBERED:
            del self._fenced[next(iter(self._fenced))]
        self._known.clear()
        self.run, self.history = "", False
        return True

    def admit(self, report: ReportLike, at: datetime) -> Reception:
        """Say what a report received `at` is, and remember it."""
        if report.rank != 0:
            return Reception.IGNORED
        if not 0 <= report.step < 1 << 53 or report.seq < 0:
            return Reception.INVALID
        run = report.run
        foreign = bool(self.pods) and report.pod not in self.pods
        if foreign and (at >= self._since or (self.run and not self.history)):
            return Reception.FENCED
        sequence = self._known.get(run)
        if sequence is None:
            if run in self._fenced:
                return Reception.FENCED
            return self._start(report, history=foreign)
        ended = report.phase in ("done", "failed")
        if run == self.run:
            reception = sequence.take(report.seq)
            if reception is Reception.ACCEPTED:
                sequence.ended = ended
            return reception
        current = self._known[self.run]
        if current.ended and not ended and not sequence.ended and report.seq > sequence.newest:
            # A training inside another one has ended, and the outer one goes on.
            sequence.take(report.seq)
            self.run, self.history = run, foreign
            return Reception.STARTED
        return Reception.FENCED

    def _start(self, report: ReportLike, *, history: bool) -> Reception:
        if len(self._known) >= _REMEMBERED:
            del self._known[next(iter(self._known))]
        sequence = self._known[report.run] = _Sequence(report.seq)
        sequence.ended = report.phase in ("done", "failed")
        self.run, self.history = report.run, history
        return Reception.STARTED
