"""Combinations of parameters, and putting them into a policy's text."""

import pytest

from trainwarden.policies.tuning.grid import (
    GridError,
    combinations,
    parse_variation,
    tuned_name,
    with_head,
    with_name,
    with_parameters,
)


def test_commas_in_brackets_and_quotes_part_nothing() -> None:
    assert parse_variation('metric="a,b",max(1, 2),[1, 2][0]') == ("metric", ('"a,b"', "max(1, 2)", "[1, 2][0]"))
    assert parse_variation(r'm="a\",b",1') == ("m", (r'"a\",b"', "1"))


@pytest.mark.parametrize("text", ["", "a", "=1", "a=", "a=1,,2", "a=1,", "a=1\n,2"])
def test_what_is_no_variation(text: str) -> None:
    with pytest.raises(GridError):
        parse_variation(text)


def test_every_combination_and_not_too_many() -> None:
    found = combinations([("a", ("1", "2")), ("b", ("3", "4"))], ["a", "b"])
    assert found == [{"a": "1", "b": "3"}, {"a": "1", "b": "4"}, {"a": "2", "b": "3"}, {"a": "2", "b": "4"}]
    with pytest.raises(GridError, match="201 combinations"):
        combinations([("a", tuple(map(str, range(201))))], ["a"])


@pytest.mark.parametrize("written", ["1", "'1'", '"1"', "|\n      1", ">-\n      1"])
def test_only_the_value_changes(written: str) -> None:
    text = f"spec:\n  variables:\n  - name: a # first\n    expression: {written}\n  - name: b\n    expression: '2'\n"
    right = "spec:\n  variables:\n  - name: a # first\n    expression: '''x'' + 1'\n  - name: b\n    expression: '2'\n"
    assert with_parameters(text, {"a": "'x' + 1"}) == right


def test_an_alias_is_refused() -> None:
    text = "spec:\n  variables:\n  - {name: a, expression: &one '1'}\n  - {name: b, expression: *one}\n"
    with pytest.raises(GridError, match="alias"):
        with_parameters(text, {"a": "2", "b": "3"})


def test_a_tuned_policy_has_a_name_of_its_own_each_time() -> None:
    assert [tuned_name(name) for name in ("ours", "ours-tuned", "ours-tuned-2")] == [
        "ours-tuned",
        "ours-tuned-2",
        "ours-tuned-3",
    ]
    assert len(tuned_name("a" * 253)) <= 253


@pytest.mark.parametrize("written", ["ours", "'ours'", "|-\n    ours"])
def test_only_the_name_changes(written: str) -> None:
    text = f"kind: TrainingPolicy\nmetadata:\n  name: {written}\n  namespace: ours\n"
    assert with_name(text, "new") == "kind: TrainingPolicy\nmetadata:\n  name: new\n  namespace: ours\n"


def test_the_head_of_an_earlier_tuning_gives_way() -> None:
    text = "# tuned: before\n# Ours.\n# Parameters: a.\nkind: x # here\n"
    assert with_head(text, ["now,\n in lines"], others=True) == (
        "# tuned: now, in lines\n# Ours.\n# Parameters: a.\nkind: x # here\n"
    )
    assert with_head(text, ["now"], others=False) == "# tuned: now\n# Parameters: a.\nkind: x # here\n"
