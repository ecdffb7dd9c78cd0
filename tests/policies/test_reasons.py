"""What a decision and a message say of why a rule fired, and of why it ended."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.policies.judging import Walk, policy

from trainwarden.policies.decision import Verdict
from trainwarden.policies.notice import Notice


def fired(when: str, *losses: float, **spec: Any) -> tuple[Walk, Notice]:
    """A walk along some losses, one a second, and the notice of its rule's firing."""
    walk = Walk([policy(f"when: '{when}'\nactions: [{{type: Notify}}]", **spec)])
    for at, loss in enumerate(losses or (3.0,) * 3):
        walk.report(loss, at)
    notice, *_ = [notice for judgement in walk.all for notice in judgement.notices]
    return walk, notice


@pytest.mark.parametrize(
    ("when", "because"),
    [
        ('nonFinite("loss")', "its loss was not finite"),
        ('plateau("loss", 500) || nonFinite("loss")', "its loss was not finite"),
        ('!plateau("loss", 500) || nonFinite("loss")', "its loss was not finite"),
        ('nonFinite("loss") || nonFinite("loss") && progress.sinceReport >= duration("0s")', ""),
        ('job.gpus >= 0 || nonFinite("acc")', ""),
        ('nonFinite(variables.watched)', "its loss was not finite"),
        ('progress.sinceReport >= duration("0s")', "it fell silent"),
        ('!(progress.sinceReport < duration("0s"))', "it fell silent"),
        ('duration("0s") <= progress.sinceStep', "its steps stood still"),
        ('progress.sinceStep < duration("9h")', ""),
        ('!nonFinite("loss") && progress.step > 0', ""),
        ('nonFinite("acc") || progress.sinceStep > duration("9h") || progress.step > 0', ""),
        ('job.gpuHours + 1.0 > 0.5', "its cost passed a limit"),
        ('progress.step > 0 ? nonFinite("loss") : false', ""),
    ],
)  # fmt: skip
def test_the_reason_is_the_one_known_clause_that_was_true(when: str, because: str) -> None:
    variables = [{"name": "watched", "expression": '"loss"'}] if "variables." in when else []

    _, notice = fired(when, 3.0, math.nan, variables=variables)

    assert notice.because == because


def test_the_reason_is_that_of_the_firing_also_in_a_later_message() -> None:
    rule = """
    when: 'nonFinite("loss") || metrics.loss > 100'
    actions: [{type: Notify}, {type: Notify, after: 5s}]
    keepFiringFor: 1m
    """
    walk = Walk([policy(rule)])
    for at, loss in enumerate([1.0, math.nan, *[1.0] * 8]):
        walk.report(loss, at)

    assert [n.because for j in walk.all for n in j.notices] == ["its loss was not finite"] * 2


def ended(when: str, *losses: float, **more: str) -> str:
    """The sentence with which a rule ended."""
    walk = Walk([policy("\n".join([f"when: '{when}'", *(f"{key}: {value}" for key, value in more.items())]))])
    for at, loss in enumerate(losses):
        walk.report(loss, at, step=959 + at)
    return walk.decisions[-1].message


def test_a_rule_that_ends_says_which_clause_holds_no_more() -> None:
    assert ended("metrics.loss > 2 && progress.percent < 96", 3, 3) == (
        "progress.percent < 96 is false (progress.percent is 96)"
    )
    assert ended("metrics.loss > 2 || progress.step < 0", 3, 1) == (
        "metrics.loss > 2 is false (metrics.loss is 1); progress.step < 0 is false (progress.step is 960)"
    )
    assert ended('!nonFinite("loss")', 3, math.nan) == 'nonFinite("loss") is true'


def test_a_rule_that_only_waited_does_not_speak_of_an_end() -> None:
    walk = Walk([policy("when: metrics.loss > 2\nfor: 1m")])
    walk.report(3, 1)
    walk.report(1, 2)

    decision = walk.decisions[-1]
    assert decision.verdict is Verdict.INACTIVE
    assert decision.message == "metrics.loss > 2 is false (metrics.loss is 1)"


def test_the_picture_marks_where_the_rule_fired_also_in_a_later_message() -> None:
    walk = Walk([policy("when: metrics.loss > 2\nactions: [{type: Notify}, {type: Notify, after: 5s}]")])
    for at in range(8):
        walk.report(3 + at, at, step=10 + at)

    notices = [notice for judgement in walk.all for notice in judgement.notices]
    assert [notice.curve and notice.curve.fired_at for notice in notices] == [10, 10]
    assert [notice.decision.evidence.step for notice in notices] == [10, 15]
