"""When trainings could be heard at all: time in which our own side was away is no silence of theirs.

Each engine puts a pulse into the stream of reports every second. Two pulses of one connection, close together, prove
that the stream stored, that the engine read and that nothing before them is still unread. All else is an outage.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GRACE", "LONGEST_BEAT", "Hearing", "Outage"]

LONGEST_BEAT = 4.0
"""Seconds between two pulses that are no outage yet."""

GRACE = 20.0
"""Seconds after an outage in which a training may come back: reporters try again at least every 15 s."""

_MOST = 64  # outages that are known one by one
_SET_BACK = 1.0  # seconds by which a pulse is older than the one before when the server's clock was set back


@dataclass(frozen=True, slots=True)
class Outage:
    """A stretch in which nothing could be heard, in Unix seconds; `end` is None while it lasts."""

    start: float
    end: float | None


class Hearing:
    """Learns from pulses when all trainings of an engine could be heard. Before the first pulse they always could.

    What it says of a moment is the same whether it is asked then or in a replay of the stream.
    """

    __slots__ = ("_last", "_outages", "_until")

    def __init__(self) -> None:
        self._until: float | None = None  # up to then all is known
        self._last: dict[str, float] = {}  # newest pulse of each connection
        self._outages: list[tuple[float, float]] = []  # apart, in order

    def pulse(self, source: str, at: float) -> None:
        """Take a pulse in the order of the stream.

        Args:
            source: The connection that it came over; another one after each interruption.
            at: Unix seconds at which the stream stored it.
        """
        if self._until is None:
            self._until = at
        elif at < self._until - _SET_BACK:
            self._last.clear()
            self._outages = [outage for outage in self._outages if outage[1] < at]
            self._add(at, at)
            self._until = at
        before = self._last.get(source)
        self._last[source] = at
        if before is None or at - before > LONGEST_BEAT:
            self._last = {each: last for each, last in self._last.items() if at - last <= LONGEST_BEAT}
            return
        if before > self._until:
            self._add(self._until, before)
        self._until = max(self._until, at)

    def outage(self, now: float, *, heard: float) -> Outage | None:
        """What keeps a training from being heard at a moment; None when nothing does.

        Args:
            now: Unix seconds.
            heard: When its newest report came. One from after an outage shows that the training is back.
        """
        for start, end in reversed(self._outages):
            if end <= heard:
                break
            if start < now < end + GRACE:
                return Outage(start, end)
        if self._until is not None and now - self._until > LONGEST_BEAT:
            return Outage(self._until, None)
        return None

    def seconds(self, start: float, end: float, *, heard: float, proven: bool = True) -> float:
        """Seconds of a stretch in which a training could be heard, outages since its newest report left out.

        Args:
            start: Unix seconds.
            end: Unix seconds.
            heard: When its newest report came.
            proven: Count only up to the newest pulse; else also what may be proven by one that is still due.
        """
        if self._until is not None and (proven or end - self._until > LONGEST_BEAT):
            end = min(end, self._until)
        passed = end - start
        for since, until in reversed(self._outages):
            if until <= heard:
                break
            since = max(since, start)
            lost = min(until + GRACE, end) - since
            if lost > 0:
                passed -= lost
                end = since
        return max(passed, 0.0)

    def _add(self, start: float, end: float) -> None:
        self._outages.append((start, end))
        if len(self._outages) > _MOST:
            (oldest, _), (_, newer) = self._outages[:2]
            self._outages[:2] = [(oldest, newer)]
