"""Rows: what each item gives, in the docs' own table, and what is refused how."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwarden.policies.unittests.life import Stretch, read_life, ticks
from trainwarden.policies.unittests.numbers import read_numbers, values
from trainwarden.policies.unittests.rows import MOST_TICKS, NotationError

PAGE = (Path(__file__).parents[3] / "docs" / "policy-tests.md").read_text(encoding="utf-8")


def table(name: str) -> list[tuple[str, str]]:
    """Items of a table of the docs, and what they give."""
    text = PAGE.partition(f"<!-- {name}: begin -->")[2].partition(f"<!-- {name}: end -->")[0]
    return [(item, gives) for item, gives in re.findall(r"^\| `([^`]+)` \| (.*?) \|", text, re.MULTILINE)]


def spoken(text: str, *, end: int | None = None, seed: int = 0, name: str = "loss") -> str:
    row = read_numbers(text)
    found = values(row, end=end or row.length, name=name, seed=seed)
    names = {math.inf: "Inf", -math.inf: "-Inf"}
    return " ".join("_" if v is None else "NaN" if v != v else names.get(v, f"{v:g}") for v in found)


def lived(text: str) -> str:
    row = read_life(text)
    words: list[str] = []
    for tick in ticks(row, end=row.length):
        before = [mark.value for mark in tick.marks if mark.value != "saved"]
        after = [mark.value for mark in tick.marks if mark.value == "saved"]
        words += [*before, tick.doing.value if tick.doing is not None else str(tick.step), *after]
    return " ".join(words)


@pytest.mark.parametrize(("item", "gives"), table("values"), ids=[item for item, _ in table("values")])
def test_values_are_what_the_docs_say(item: str, gives: str) -> None:
    open_ended = gives.endswith(" …")

    assert spoken(item, end=6 if open_ended else None) == gives.removesuffix(" …")


@pytest.mark.parametrize(("item", "gives"), table("life"), ids=[item for item, _ in table("life")])
def test_lives_are_what_the_docs_say(item: str, gives: str) -> None:
    assert lived(item) == gives


def test_the_docs_have_both_tables() -> None:
    assert len(table("values")) > 12
    assert len(table("life")) > 10


def test_noise_depends_on_seed_and_name_alone() -> None:
    row = "2~0.1x50"

    assert spoken(row) == spoken(row)
    assert len({spoken(row), spoken(row, seed=1), spoken(row, name="acc")}) == 3
    assert spoken("2~0.1@7x50") == spoken("2~0.1@7x50", seed=1, name="acc")


def test_noise_has_its_deviation() -> None:
    row = read_numbers("5~2@1x20000")
    found = [value for value in values(row, end=row.length, name="", seed=0) if value is not None]

    mean = sum(found) / len(found)
    assert mean == pytest.approx(5, abs=0.05)
    assert math.sqrt(sum((v - mean) ** 2 for v in found) / len(found)) == pytest.approx(2, abs=0.05)


def test_a_frozen_metric_repeats_its_noise_as_well() -> None:
    first, *rest = spoken("2~0.1 =x5").split()

    assert rest == [first] * 5


items = st.sampled_from(["1", "3-0.5x4", "3..1x7", "_x2", "NaN", "8*0.5x3", "5>1/3x5", "=x2", "2~0.3x3"])
rows = st.recursive(
    items, lambda inner: st.builds("({} {})x{}".format, inner, items, st.integers(1, 4)), max_leaves=6
).map(lambda text: f"1 {text}")


@given(row=rows, end=st.integers(1, 60))
def test_a_row_has_as_many_values_as_it_says_and_is_missing_beyond(row: str, end: int) -> None:
    read = read_numbers(row)
    whole = values(read, end=read.length, name="x", seed=3)

    assert len(whole) == read.length
    assert len(values(read, end=end, name="x", seed=3)) == end
    assert values(read, end=read.length + 2, name="x", seed=3)[-2:] == [None, None]


@given(row=rows, cut=st.integers(1, 30))
def test_values_do_not_depend_on_how_far_a_row_is_read(row: str, cut: int) -> None:
    if ".." in row:  # a ramp to an end knows how long it is
        return
    read = read_numbers(row)
    cut = min(cut, read.length)

    short = [str(v) for v in values(read, end=cut, name="x", seed=3)]

    assert short == [str(v) for v in values(read, end=read.length, name="x", seed=3)][:cut]


@given(text=st.text(alphabet="0123456789.-+*x_=>~@/()NaInf se", max_size=30))
def test_any_other_row_is_refused_with_a_remedy(text: str) -> None:
    for read in (read_numbers, read_life):
        try:
            read(text)
        except NotationError as error:
            found, _, remedy = str(error).partition("; ")
            assert found
            assert remedy


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "an empty row"),
        ("abc", "'abc'; write a number"),
        ("nan", "'nan'; write NaN"),
        ("-.inf", "'-.inf'; write"),
        ("2x0", "'2x0'; x5 is five times"),
        ("2x9999999999", "'2x9999999999'; a test has 500,000 reports at most"),
        ("1x* 2", "an x* that is not the last"),
        ("(1x*)x2", "an x* that is not the last"),
        ("(1 2", "a ( without its )"),
        ("1 2)", "a ) without its ("),
        ("()x2", "an empty group"),
        ("(1)xx", "x5 is five times"),
        ("3 +0.5x20", "3+0.5x20 is a ramp, =+0.5x20 goes on from the newest number, 0.5x20 a number by itself"),
        ("3 -0.5x20", "'-0.5x20' behind a space; 3-0.5x20 is a ramp, 3x1 -0.5x20 are two parts"),
        ("1x3 (5 -1x*)", "5-1x* is a ramp, 5x1 -1x* are two parts"),
        ("3x2 = -1x5", "=-1x5 is a ramp, =x1 -1x5 are two parts"),
        ("1x3 +1x5", "'+1x5' behind a space; =+1x5 goes on from the newest number, 1x5 a number by itself"),
        ("3 ..1x20", "write 3..1x20 without the space"),
        ("8 *0.5x4", "write 8*0.5x4 without the space"),
        ("3-0.5 x20", "write 3-0.5x20 without the space"),
        ("(1 2) x20", "write (…)x20 without the space"),
        ("3 - 0.5x20", "'-' and a space; write all of an item without spaces"),
        ("3- 0.5x20", "'3-' and a space; write all of an item without spaces"),
        ("2~-1", "not negative"),
        ("3>1/0x5", "half of the way"),
        (f"(1x{MOST_TICKS})x2", f"at most {MOST_TICKS}"),
        ("(" * 9 + "1" + ")" * 9, "nested too deeply"),
    ],
)
def test_a_wrong_row_is_told_with_what_would_be_right(text: str, says: str) -> None:
    with pytest.raises(NotationError, match=re.escape(says)):
        read_numbers(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1 suspnded", "the word 'suspnded'; did you mean suspended?"),
        ("1 bananas", "known are checkpoint"),
        ("_x3", "write silent"),
        ("1~2", "neither noise nor decay"),
        ("-1", "from 0 on"),
        ("NaN", "from 0 on"),
        ("1 restartx2", "takes no time"),
        ("(restart)x*", "no time passes"),
        ("1 complete 2", "nothing follows complete"),
    ],
)
def test_a_wrong_life_is_told_with_what_would_be_right(text: str, says: str) -> None:
    with pytest.raises(NotationError, match=re.escape(says)):
        read_life(text)


@pytest.mark.parametrize("text", ["3-1x9", "2*1e9x9", "saved 1", "silent saved 1"])
def test_steps_that_can_not_be_are_refused_when_laid_out(text: str) -> None:
    row = read_life(text)

    with pytest.raises(NotationError):
        ticks(row, end=row.length)


@pytest.mark.parametrize(
    ("text", "gives"),
    [
        ("3 -0.5", "3 -0.5"),
        ("0 -1 -2", "0 -1 -2"),
        ("3x1 -0.5x2", "3 -0.5 -0.5"),
        ("-1 -2x2", "-1 -2 -2"),
        ("+1x2", "1 1"),
        ("_ -1x2", "_ -1 -1"),
    ],
)
def test_numbers_below_zero_stand_by_themselves(text: str, gives: str) -> None:
    assert spoken(text) == gives


def test_steps_that_go_on_are_not_parted_from_what_they_go_on_from() -> None:
    with pytest.raises(NotationError, match=re.escape("=+1x60 goes on from the newest number")):
        read_life("5 silentx2 +1x60")


def test_a_run_is_silent_behind_its_row() -> None:
    assert [tick.doing for tick in ticks(read_life("1"), end=3)] == [None, Stretch.SILENT, Stretch.SILENT]


def test_a_row_that_begins_with_the_newest_number_has_none() -> None:
    with pytest.raises(NotationError, match="begin with a number"):
        values(read_numbers("=x3"), end=3, name="loss", seed=0)
