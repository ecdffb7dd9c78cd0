"""The time and order of a recording's rows: what its clock can't mean is told, and steps in no order are sorted."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from trainwarden.controller.histories.recording import Reading
from trainwarden.policies.backtest.recording import Row

__all__ = ["clocked", "in_order"]

_JITTER = 0.1  # seconds that a clock may go back, as where several threads log
_LOOKED_AT = 1024  # rows by which it is found out whether there is an order
_BACK, _RISING = 0.4, 0.4  # shares of rows: that go back at least, and that are the greatest so far at most


def clocked(rows: Iterable[Row], place: str, reading: Reading) -> Iterator[Row]:
    """The same rows; a time before the beginning is 0, an infinite one is none. These, and going back, are told.

    Args:
        rows: In the order in which they were written.
        place: Where they stand, for what is told.
        reading: Takes what is told, once for the whole recording.
    """
    latest = -math.inf
    early = back = endless = 0
    first_early = first_back = first_endless = ""
    for each in rows:
        seconds = each.seconds
        if seconds is None:
            pass
        elif not math.isfinite(seconds):
            each.seconds = None
            endless += 1
            first_endless = first_endless or f"step {each.step:,}"
        elif seconds < 0:
            each.seconds = 0.0
            early += 1
            first_early = first_early or f"{seconds:,.10g} s at step {each.step:,}"
        elif seconds >= latest:
            latest = seconds
        elif latest - seconds > _JITTER:
            back += 1
            first_back = first_back or f"from {latest:,.10g} s to {seconds:,.10g} s at step {each.step:,}"
        yield each
    if early:
        what = f"the clock is before the run's beginning, {first_early}"
        reading.note(f"{place}: {what}; {_rows(early)} as of the beginning")
    if back:
        reading.note(f"{place}: the clock goes back {first_back}; {_rows(back)} as of the latest time before")
    if endless:
        reading.note(f"{place}: the clock is infinite at {first_endless}; {_rows(endless)} as without a time")


def _rows(count: int) -> str:
    return f"{count:,} row{' counts' if count == 1 else 's count'}"


def in_order(rows: Iterable[Row], place: str, reading: Reading) -> Iterator[Row]:
    """The rows, sorted by step where they stand in no order, or the newest first, and have neither clock nor epoch.

    A run that was resumed goes back as well, and is left as it is: it rises otherwise.
    """
    rest = iter(rows)
    first = list(itertools.islice(rest, _LOOKED_AT))
    if not _is_mixed(first):
        return itertools.chain(first, rest)
    ordered = sorted(itertools.chain(first, rest), key=lambda row: row.step)
    reading.note(f"{place}: the steps stand in no order, and there is no clock; the rows were sorted by step")
    return iter(ordered)


def _is_mixed(rows: Sequence[Row]) -> bool:
    if len(rows) < 4 or any(row.seconds is not None or row.epoch is not None for row in rows):
        return False
    back = sum(after.step < before.step for before, after in itertools.pairwise(rows))
    greatest, rising = -1, 0
    for row in rows:
        if row.step > greatest:
            greatest, rising = row.step, rising + 1
    return back >= _BACK * (len(rows) - 1) and rising <= _RISING * len(rows)
