"""The life of a run as a row: at which steps it reports, and when it is silent, suspended, queued or begun again."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from trainwarden.policies.documents import close
from trainwarden.policies.facts import JobPhase
from trainwarden.policies.unittests.numbers import Span, read_number, span_values
from trainwarden.policies.unittests.rows import NotationError, Row, read_row

__all__ = ["AWAY", "Life", "Mark", "Stretch", "Tick", "read_life", "ticks"]

_EXAMPLES = "write steps such as 1+1x60 or =+10x60, or one of"
_FARTHEST = 1 << 53
_ROUNDING = 1e-6  # a ramp's numbers may be this much below a whole one


class Stretch(StrEnum):
    """What a run does that takes time, apart from reporting steps."""

    SILENT = "silent"  # it runs, and nothing is heard of it
    INIT = "init"  # reports in a phase, the step stands still
    EVAL = "eval"
    CHECKPOINT = "checkpoint"
    PENDING = "pending"  # no pods
    QUEUED = "queued"
    SUSPENDED = "suspended"
    STARTING = "starting"  # pods that are not ready
    COMPLETE = "complete"
    FAILED = "failed"
    DELETING = "deleting"


class Mark(StrEnum):
    """What happens between two reports and takes no time."""

    RESTART = "restart"  # another attempt: new pods
    RERUN = "rerun"  # another training in the same pods
    SAVED = "saved"  # the report before it tells of a complete checkpoint at its step


AWAY = {
    Stretch.PENDING: JobPhase.PENDING,
    Stretch.QUEUED: JobPhase.QUEUED,
    Stretch.SUSPENDED: JobPhase.SUSPENDED,
    Stretch.STARTING: JobPhase.RUNNING,
    Stretch.COMPLETE: JobPhase.COMPLETE,
    Stretch.FAILED: JobPhase.FAILED,
    Stretch.DELETING: JobPhase.DELETING,
}
"""Phase of the job in a stretch in which its pods are not ready."""

_WORDS = {word.value: word for kind in (Stretch, Mark) for word in kind}

Life = Row[Span | Stretch | Mark]


@dataclass(frozen=True, slots=True)
class Tick:
    """One place of time in a run's life."""

    doing: Stretch | None  # None: it trains
    step: int
    marks: tuple[Mark, ...] = ()  # RESTART and RERUN before it, SAVED with it

    @property
    def phase(self) -> str:
        """Of its report; empty when there is none."""
        if self.doing is None:
            return "train"
        return self.doing.value if self.doing in (Stretch.INIT, Stretch.EVAL, Stretch.CHECKPOINT) else ""


def read_life(text: str) -> Life:
    """Read the row of a run's life.

    Raises:
        NotationError: What was found, and what would be right.
    """
    row = read_row(text, _read)
    over = ""
    for body, _ in row.until(row.length):
        if over:
            raise NotationError(f"something behind {over!r}", f"nothing follows {over}")
        if isinstance(body, Stretch) and AWAY.get(body, JobPhase.RUNNING).ended:
            over = body.value
    return row


def _read(text: str) -> tuple[Span | Stretch | Mark, bool]:
    word = _WORDS.get(text)
    if word is not None:
        return word, isinstance(word, Stretch)
    if text in ("_", "stale"):
        raise NotationError(f"{text!r}", "write silent: the run goes on, and nothing is heard of it")
    if text[:1].isalpha() and text.lower() not in ("nan", "inf"):
        raise NotationError(f"the word {text!r}", close(text, list(_WORDS)) or f"known are {', '.join(sorted(_WORDS))}")
    span = read_number(text, f"{_EXAMPLES} {', '.join(sorted(_WORDS))}")
    if span.noise or span.change == "toward":
        raise NotationError(f"{text!r}", "steps have neither noise nor decay; write 1+1x60")
    if span.start is not None and not 0 <= span.start < _FARTHEST:
        raise NotationError(f"{text!r}", "a step is a number from 0 on")
    return span, True


def ticks(row: Life, *, end: int) -> list[Tick]:
    """The first `end` places of a run's life; beyond the end of the row it is silent.

    Raises:
        NotationError: A step below 0.
    """
    return list(_ticks(row, end))


def _ticks(row: Life, end: int) -> Iterator[Tick]:
    step, taken = 0, 0
    marks: list[Mark] = []
    held: Tick | None = None  # waits for a `saved` behind it
    for body, count in row.until(end):
        if isinstance(body, Mark):
            if body is Mark.SAVED:
                if held is None or not held.phase:
                    raise NotationError(
                        "saved without a report before it", "write it behind steps, such as =+10x5 saved"
                    )
                held = Tick(held.doing, held.step, (*held.marks, body))
            else:
                marks.append(body)
            continue
        steps = span_values(body, count, step) if isinstance(body, Span) else itertools.repeat(step, count)
        for number in steps:
            if not 0 <= number < _FARTHEST:
                raise NotationError(f"the step {number:g}", "a step is a number from 0 on")
            if held is not None:
                yield held
            step = int(number + _ROUNDING)
            held = Tick(body if isinstance(body, Stretch) else None, step, tuple(marks))
            marks.clear()
        taken += count
    if held is not None:
        yield held
    for _ in range(end - taken):
        yield Tick(Stretch.SILENT, step)
