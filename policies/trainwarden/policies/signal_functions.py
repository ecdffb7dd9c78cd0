"""Functions of the vocabulary that ask whether a metric can still be trusted, and whether its size is out of bounds."""

from __future__ import annotations

import math
from collections.abc import Callable

from trainwarden.policies.detectors.broken import LEAST as FROZEN_LEAST
from trainwarden.policies.detectors.broken import frozen, masked
from trainwarden.policies.detectors.divergence import non_finite_for_good
from trainwarden.policies.detectors.guards import LEAST as GUARD_LEAST
from trainwarden.policies.detectors.guards import collapses, explodes
from trainwarden.policies.expressions.protocol import CelValue, UnknownValueError
from trainwarden.policies.lengths import ago
from trainwarden.policies.question import Question
from trainwarden.policies.series import Series
from trainwarden.policies.view import View

__all__ = ["SIGNAL_FUNCTIONS", "hidden_by_a_filter"]


def hidden_by_a_filter(question: Question, series: Series) -> bool:
    """Whether a loss stands still while gradients are not finite, as transformers logs it with its filter on."""
    gradients = question.run.metrics.series("grad_norm")
    if gradients is None or gradients is series or not non_finite_for_good(gradients):
        return False
    question.used.append(gradients)
    _, _, values = series.exact()
    return len(values) >= 3 and values[-1] == values[-2] == values[-3]


def _frozen(question: Question) -> bool:
    name, series = question.text(0), question.finite()
    view = question.view(series)
    if view.points < FROZEN_LEAST:
        raise question.too_few(name, view.points, FROZEN_LEAST)
    question.looked_at(name, view)
    return frozen(view)


def _masked_loss(question: Question) -> bool:
    series = question.finite()
    return masked(series.exact()[2]) or hidden_by_a_filter(question, series)


def _missing(question: Question) -> bool:
    """Unknown until the attempt has been heard for as long as the window; heartbeats alone count as heard."""
    name, (length, by_time), run = question.text(0), question.window(), question.run
    question.scope.check_heard()
    newest, began = run.metrics.newest(name), run.began_passed() if by_time else run.began()
    end = question.end(by_time=by_time)
    last = None if newest is None else newest.time if by_time else float(newest.step)
    since = max(part for part in (last, began, 0.0) if part is not None)
    if end - since > length:
        return True
    if last is None or (began is not None and last < began):
        gone, awaited = (ago(each) if by_time else f"{each:g} steps" for each in (end - since, length))
        raise UnknownValueError(f"{name} has been missing for {gone}; missing waits for {awaited}")
    return False


def _scale_change(question: Question) -> bool:
    name, series, border = question.text(0), question.finite(), question.run.began()
    if border is None or series.first_step >= border or series.newest_step() < border:
        raise UnknownValueError(f"{name} has no values on both sides of a resume")
    return question.rescaled(name, series) is not None


def _guard(judge: Callable[[View, View], bool]) -> Callable[[Question], bool]:
    def answer(question: Question) -> bool:
        name, series = question.text(0), question.finite()
        recent = question.view(series)
        if recent.points < GUARD_LEAST:
            raise question.too_few(name, recent.points, GUARD_LEAST)
        before = series.whole().between(-math.inf, recent.first_step)
        if before.points < GUARD_LEAST:
            raise UnknownValueError(
                f"only {before.points} values of {name} before the window; {question.function} needs {GUARD_LEAST}"
            )
        if before.last_step - before.first_step < recent.last_step - recent.first_step:
            raise UnknownValueError(f"{name} is known for too short a time before the window to say what is usual")
        question.looked_at(name, recent)
        return judge(before, recent)

    return answer


SIGNAL_FUNCTIONS: dict[str, Callable[[Question], CelValue]] = {
    "frozen": _frozen,
    "maskedLoss": _masked_loss,
    "missing": _missing,
    "scaleChange": _scale_change,
    "explosion": _guard(explodes),
    "collapse": _guard(collapses),
}
