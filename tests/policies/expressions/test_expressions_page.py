"""What docs/expressions.md shows is so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import pytest

from trainwarden.policies.expressions.checking import MOST_DEPTH
from trainwarden.policies.expressions.engines import engine
from trainwarden.policies.expressions.errors import ExpressionError
from trainwarden.policies.expressions.protocol import Limits
from trainwarden.policies.vocabulary import FUNCTIONS, VARIABLES, Type
from trainwarden.policies.vocabulary_docs import vocabulary_tables

PAGE = (Path(__file__).parents[3] / "docs" / "expressions.md").read_text(encoding="utf-8")
ENGINES: tuple[Literal["cpp", "python"], ...] = ("cpp", "python")
RECIPES = re.findall(r"^\| [^|`]+ \| `([^`]+)`", PAGE.partition("## Recipes")[2].partition("## ")[0], re.MULTILINE)
UNKNOWN = PAGE.partition("## True, false, unknown")[2].partition("## Limits")[0].replace("\\|", "|")
ERRORS = re.findall(r"^spec\.rules\[0\]\.when:.*$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("which", ENGINES)
@pytest.mark.parametrize("source", [*RECIPES, *re.findall(r"^\| `([^`]+)`", UNKNOWN, re.MULTILINE)])
def test_every_expression_of_the_page_is_accepted(source: str, which: Literal["cpp", "python"]) -> None:
    expression = engine(which).compile(source, field="when", result=Type.BOOL, variables={})

    assert expression.type is Type.BOOL


def test_the_page_has_recipes_and_errors_to_check() -> None:
    assert len(RECIPES) > 8
    assert len(ERRORS) == 3


@pytest.mark.parametrize("source", ["plataeu('loss', 5)", 'metrics.loss > "2"', "loss > 2"])
def test_the_errors_of_the_page_are_the_real_ones(source: str) -> None:
    with pytest.raises(ExpressionError) as refused:
        engine("cpp").compile(source, field="spec.rules[0].when", result=Type.BOOL, variables={})

    assert str(refused.value) in ERRORS


def test_the_page_names_every_word_and_the_limits() -> None:
    limits = Limits()

    assert vocabulary_tables().strip() in PAGE
    assert all(f"| `{variable.name}` |" in PAGE for variable in VARIABLES)
    assert all(f"`{function.name}(" in PAGE for function in FUNCTIONS)
    assert f"{limits.length} characters" in PAGE
    assert f"{MOST_DEPTH} levels" in PAGE
    assert f"fewer than {limits.iterations:,}" in PAGE
    assert f"{limits.text:,} characters" in PAGE
    assert f"{limits.texts:,} characters" in PAGE


def test_arguments_that_can_be_left_out_stand_in_brackets() -> None:
    assert "`best(string metric [, string direction])`" in vocabulary_tables()
