"""Parameters that depend on the run: their branches, and which of them applies."""

import pytest
from tests.policies.judging import policy

from trainwarden.policies.expressions.engines import engine
from trainwarden.policies.tuning.branches import applying, branches_of, with_branch

VARIABLES = [
    {"name": "training", "expression": '"loss"'},
    {"name": "metric", "expression": '(["eval/loss"].filter(m, m in metrics) + [variables.training])[0]'},
]
SHARE = "variables.metric == variables.training ? 0.7 : 0.5"


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("0.5", [("", "0.5")]),
        ("1 +", [("", "1 +")]),
        ("a ? 1 : 2", [("a", "1"), ("!(a)", "2")]),
        ("(a ? 1 : (2))", [("a", "1"), ("!(a)", "2")]),
        ("a ? 1 : c ? (2) + 3 : -4", [("a", "1"), ("!(a) && (c)", "(2) + 3"), ("!(a) && !(c)", "-4")]),
        ("a || b ? (c ? 1 : 2) : 3", [("(a || b) && (c)", "1"), ("(a || b) && !(c)", "2"), ("!(a || b)", "3")]),
        ("a ?\n  1 :\n  2", [("a", "1"), ("!(a)", "2")]),
    ],
)
def test_every_branch_has_its_condition(expression: str, found: list[tuple[str, str]]) -> None:
    assert [(each.condition, each.text) for each in branches_of(expression)] == found


def test_a_value_takes_the_place_of_one_branch() -> None:
    alone, other = branches_of(SHARE)

    assert with_branch(SHARE, other, "0.6") == "variables.metric == variables.training ? 0.7 : 0.6"
    assert with_branch(SHARE, alone, "0.6") == "variables.metric == variables.training ? 0.6 : 0.5"
    assert with_branch(SHARE, other, "a ? 1.0 : 2.0") == "a ? 1.0 : 2.0"
    assert with_branch("0.5", branches_of("0.5")[0], "0.6") == "0.6"


def test_the_branch_that_applies_is_told_by_the_names_of_metrics() -> None:
    guard = policy("when: 'true'", variables=VARIABLES)

    assert applying(guard, engine(), branches_of(SHARE), {"loss"}) == 0
    assert applying(guard, engine(), branches_of(SHARE), {"loss", "eval/loss"}) == 1
    assert applying(guard, engine(), branches_of("metrics.loss > 2.0 ? 0.7 : 0.5"), {"loss"}) is None
    assert applying(guard, engine(), branches_of("progress.step > 2 ? 0.7 : 0.5"), {"loss"}) is None
