"""What docs/expressions.md shows is so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import pytest

from trainwarden.policies.compiling import compile_loaded
from trainwarden.policies.expressions.checking import MOST_DEPTH
from trainwarden.policies.expressions.engines import engine
from trainwarden.policies.expressions.protocol import Limits
from trainwarden.policies.loading import load_policies
from trainwarden.policies.vocabulary import FUNCTIONS, VARIABLES, Type
from trainwarden.policies.vocabulary_docs import vocabulary_tables

PAGE = (Path(__file__).parents[3] / "docs" / "expressions.md").read_text(encoding="utf-8")
ENGINES: tuple[Literal["cpp", "python"], ...] = ("cpp", "python")
RECIPES = re.findall(r"^\| [^|`]+ \| `([^`]+)`", PAGE.partition("## Recipes")[2].partition("## ")[0], re.MULTILINE)
UNKNOWN = PAGE.partition("## True, false, unknown")[2].partition("## Limits")[0].replace("\\|", "|")
ERRORS = re.findall(r"^flat\.yaml:\d+:\d+: .*$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("which", ENGINES)
@pytest.mark.parametrize("source", [*RECIPES, *re.findall(r"^\| `([^`]+)`", UNKNOWN, re.MULTILINE)])
def test_every_expression_of_the_page_is_accepted(source: str, which: Literal["cpp", "python"]) -> None:
    expression = engine(which).compile(source, field="when", result=Type.BOOL, variables={})

    assert expression.type is Type.BOOL


def test_the_page_has_recipes_and_errors_to_check() -> None:
    assert len(RECIPES) > 8
    assert len(ERRORS) == 3


HEAD = """\
apiVersion: trainwarden.dev/v1alpha1
kind: TrainingPolicy
metadata: {name: flat}
spec:
  selector: {}
  rules:
"""


def problems(*conditions: str) -> list[str]:
    """What `policy check` says of the rules with these conditions, as they stand in the file."""
    text = HEAD + "".join(f"  - name: rule-{number}\n    when: {each}\n" for number, each in enumerate(conditions))
    _, found = compile_loaded(load_policies(text, source="flat.yaml"), engine(), source="flat.yaml")
    return [str(problem) for problem in found]


def test_the_errors_of_the_page_are_the_real_ones() -> None:
    assert problems("plataeu('loss', 5)", "plateau(loss, 500)", "loss > 2") == ERRORS


@pytest.mark.parametrize("source", RECIPES)
def test_every_recipe_can_be_pasted_in_single_quotes(source: str) -> None:
    assert "'" not in source
    assert problems(f"'{source}'") == []


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
