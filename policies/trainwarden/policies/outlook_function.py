"""`plateau(metric, share, tolerance)`: what is known of the plan, and when there is too little history to tell."""

from __future__ import annotations

import math

from trainwarden.policies.detectors.gains import gain
from trainwarden.policies.detectors.outlook import LEAST, LEAST_WITHOUT_PLAN, LEFT_WITHOUT_PLAN, still_to_gain
from trainwarden.policies.expressions.protocol import UnknownValueError
from trainwarden.policies.question import Question
from trainwarden.policies.series import Series

__all__ = ["by_outlook", "is_by_outlook"]


def is_by_outlook(question: Question) -> bool:
    """Whether the call names a share of the run and a tolerance, not a window."""
    return len(question.arguments) > 2 and isinstance(question.arguments[2], float)


def by_outlook(question: Question, series: Series) -> bool:
    """Whether the rest of the plan has next to nothing to give.

    Raises:
        UnknownValueError: Arguments out of range; too few values in the stretch, or it begins before the first value.
    """
    name, share, tolerance = question.text(0), question.number(1, "share"), question.number(2, "tolerance")
    higher, newest = question.higher(3), float(series.newest_step())
    total = question.run.total()
    question.own = max(question.end(by_time=False) - newest * share, 1.0)
    if total is None and series.count < LEAST_WITHOUT_PLAN:
        raise UnknownValueError(
            f"only {series.count} values of {name}; plateau needs {LEAST_WITHOUT_PLAN} while no plan is known"
        )
    view = series.since_step(int(newest * share))
    rescaled = question.rescaled(name, series)
    first = rescaled[0] if rescaled is not None else series.first_step  # what lies before is of another scale
    if view.points < LEAST or len(view) < 2 or first > newest * share:
        which = "of all" if rescaled is None else "since its scale has changed"
        raise UnknownValueError(
            f"only {view.points} values of {name} from step {newest * share:.0f} on, the first {which} at step "
            f"{first}; plateau needs one before that and {LEAST} after it"
        )
    if view.low == view.high:
        raise UnknownValueError(f"{name} is {view.low:g} at every step of the stretch: its signal is broken")
    question.looked_at(name, view)
    best = series.best(higher=higher)
    assert best is not None  # noqa: S101 - there are values
    if rescaled is not None:
        rows = series.whole().between(first, math.inf).rows  # the first of which may have taken in what lies before
        best_since = max(rows.highs[1:] or rows.highs) if higher else min(rows.lows[1:] or rows.lows)
        so_far = best_since - rescaled[1] if higher else rescaled[1] - best_since
    else:
        sign = -1.0 if higher else 1.0
        so_far = gain([sign * value for value in series.first], sign * best.value, values=series.count)
    left = _left(total, newest)
    return so_far > 0 and still_to_gain(view, share, left=left, higher=higher) < tolerance * so_far


def _left(total: int | None, step: float) -> float:
    """ln(last step of the plan / this step); of a run as long again while no plan is known."""
    if total is None or step <= 0:
        return LEFT_WITHOUT_PLAN
    return max(math.log(total / step), 0.0) if total > 0 else 0.0
