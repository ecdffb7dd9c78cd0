"""What interrupts the steps of an attempt (evaluations, checkpoints, unlabelled pauses), and how much of it is to come.

Each kind has a cadence: a mean length, and the mean number of steps from one to the next. What is to come is the number
that still fits before the last step, times the length. One pause alone has no cadence yet: the steps before or after
it, whichever are more, stand for it; one before the first timed step (a sanity check) counts as the only one.
What an attempt does not know yet is taken from the attempt before it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Cadence", "Pauses", "ToCome"]


@dataclass(frozen=True, slots=True)
class Cadence:
    """How often pauses of a kind come, and how long they take."""

    steps: float  # from one to the next
    seconds: float  # of one


@dataclass(frozen=True, slots=True)
class ToCome:
    """Seconds of pauses before the last step: expected, and between which bounds."""

    expected: float
    low: float
    high: float


class _Kind:
    """Pauses of one kind in this attempt."""

    __slots__ = ("count", "first_seconds", "first_step", "last_step", "open", "seconds")

    def __init__(self) -> None:
        self.count = 0  # ended ones
        self.seconds = 0.0  # of ended ones
        self.first_seconds = 0.0
        self.first_step = 0
        self.last_step = 0
        self.open = 0.0  # seconds of the one that goes on

    def end(self, step: int) -> None:
        if not self.count:
            self.first_step, self.first_seconds = step, self.open
        self.count += 1
        self.seconds += self.open
        self.last_step = step
        self.open = 0.0

    def cadence(self) -> Cadence | None:
        """Known from two on; the first pause is often longer (compilation, caches), and only its step counts."""
        if self.count < 2 or self.last_step <= self.first_step:
            return None
        between = self.count - 1
        return Cadence((self.last_step - self.first_step) / between, (self.seconds - self.first_seconds) / between)


class Pauses:
    """The pauses of an attempt, by kind."""

    __slots__ = ("_before", "_kinds", "_start")

    def __init__(self) -> None:
        self._before: dict[str, Cadence] = {}  # of the attempt before
        self._kinds: dict[str, _Kind] = {}
        self._start: int | None = None  # step at which timing began

    def restart(self) -> None:
        """Begin another attempt, and keep the cadences that this one has learnt."""
        for kind, pauses in self._kinds.items():
            cadence = pauses.cadence()
            if cadence is not None:
                self._before[kind] = cadence
        self._kinds.clear()
        self._start = None

    def begin(self, step: int) -> None:
        """Steps are timed from this one on."""
        self._start = step

    def spend(self, kind: str, seconds: float) -> None:
        """Add to the pause of a kind that goes on."""
        self._kinds.setdefault(kind, _Kind()).open += seconds

    def end(self, step: int) -> None:
        """The training has gone on: whatever paused it at this step is over."""
        for pauses in self._kinds.values():
            if pauses.open > 0:
                pauses.end(step)

    def to_come(self, step: int, total: int) -> ToCome:
        """What is to come from this step on to the last one; a pause that follows the last step is not part of it."""
        expected = low = high = 0.0
        for kind, pauses in self._kinds.items():
            for part in self._of(kind, pauses, step, total):
                expected, low, high = expected + part.expected, low + part.low, high + part.high
        for kind, cadence in self._before.items():
            if kind not in self._kinds:
                part = _sure(cadence, step, total)
                expected, low, high = expected + part.expected, low + part.low, high + part.high
        return ToCome(expected, low, high)

    def _of(self, kind: str, pauses: _Kind, step: int, total: int) -> list[ToCome]:
        cadence = pauses.cadence() or self._before.get(kind)
        found: list[ToCome] = []
        length = cadence.seconds if cadence is not None else pauses.seconds / max(pauses.count, 1)
        if pauses.open > 0:
            rest = max(length - pauses.open, 0.0)
            found.append(ToCome(rest, 0.0, rest))
        last = step if pauses.open > 0 else pauses.last_step
        if cadence is not None:
            found.append(_sure(cadence, last, total))
        elif pauses.count and self._start is not None and pauses.last_step > self._start:
            often = max(pauses.last_step - self._start, step - pauses.last_step)
            guess = _sure(Cadence(often, length), last, total)
            found.append(ToCome(guess.expected, 0.0, 2 * guess.expected))
        return found


def _sure(cadence: Cadence, last: int, total: int) -> ToCome:
    """Pauses of a known cadence after the newest one."""
    number = max(math.ceil((total - last) / cadence.steps - 1e-9) - 1, 0) if cadence.steps > 0 else 0
    fewest, most = max(number * 0.97 - 0.6, 0.0), number * 1.03 + (0.6 if number else 0.0)
    return ToCome(number * cadence.seconds, fewest * cadence.seconds, most * cadence.seconds)
