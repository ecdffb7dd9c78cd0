"""Combinations of parameters, and putting them into a policy's text."""

import pytest

from trainwarden.policies.tuning.grid import GridError, combinations, parse_variation, with_parameters


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
