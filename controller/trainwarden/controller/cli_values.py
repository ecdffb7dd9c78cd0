"""Values of command-line options that click does not know."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import click

__all__ = ["Finite", "moment_of"]


class Finite(click.FloatRange):
    """A number in a range; NaN, which no range refuses, and infinity are none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


def moment_of(text: str) -> datetime:
    """The moment that a deadline names: a duration from now, or a time, which is local without a zone.

    Raises:
        ValueError: It is none, or is over; the text says why and what would be right, to be put behind what was given.
    """
    from trainwarden.policies.durations import parse_duration

    now = datetime.now(UTC)
    try:
        moment = now + parse_duration(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError("; write 2h30m from now, or a time such as 2026-12-24T18:00") from None
    except OverflowError:
        raise ValueError(" is beyond the year 9999; give an earlier time") from None
    moment = moment if moment.tzinfo is not None else moment.astimezone()
    if moment <= now:
        raise ValueError(" is over; give a time that is still to come")
    return moment
