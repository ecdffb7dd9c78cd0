"""An evaluation never raises, never runs long, reads only what it needs, and tells what it used and what it missed."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Literal

import pytest

from trainwarden.policies.expressions.engines import engine
from trainwarden.policies.expressions.errors import ExpressionError
from trainwarden.policies.expressions.protocol import CelValue, Limits, Outcome, UnknownValueError
from trainwarden.policies.vocabulary import Type

NAN, INF = float("nan"), float("inf")
ENGINES: tuple[Literal["cpp", "python"], ...] = ("cpp", "python")
which_engine = pytest.mark.parametrize("which", ENGINES)


class RunOf:
    """A scope of whatever values a test gives it; it remembers what it was asked for."""

    def __init__(
        self,
        values: Mapping[str, CelValue] | None = None,
        metrics: Mapping[str, float] | None = None,
        call: Callable[[str, tuple[CelValue, ...]], CelValue] | None = None,
    ) -> None:
        self.values = values or {}
        self.metrics = metrics or {}
        self.answer = call or (lambda function, arguments: True)
        self.asked: list[str] = []

    def variable(self, name: str) -> CelValue:
        self.asked.append(name)
        return self.values[name]

    def metric(self, name: str) -> float:
        self.asked.append(f"metrics.{name}")
        if name not in self.metrics:
            raise UnknownValueError(f"{name} was never reported")
        return self.metrics[name]

    def metric_names(self) -> frozenset[str]:
        return frozenset(self.metrics)

    def call(self, function: str, arguments: tuple[CelValue, ...]) -> CelValue:
        self.asked.append(f"{function}{arguments}")
        return self.answer(function, arguments)


def evaluate(
    source: str,
    scope: RunOf,
    which: Literal["cpp", "python"],
    *,
    own: Mapping[str, CelValue | UnknownValueError] | None = None,
    types: Mapping[str, Type] | None = None,
    limits: Limits | None = None,
) -> Outcome:
    expression = engine(which, limits).compile(source, field="when", result=None, variables=types or {})
    return expression.evaluate(scope, own or {})


@which_engine
def test_only_what_is_used_is_read_and_each_thing_once(which: Literal["cpp", "python"]) -> None:
    scope = RunOf({"job.gpus": 8, "progress.step": 5}, {"loss": 1.0, "lr": 0.1})

    evaluate('metrics.loss > 2 || metrics["loss"] < 1 || job.gpus > 9 || plateau("loss", 5)', scope, which)

    assert sorted(scope.asked) == ["job.gpus", "metrics.loss", "plateau('loss', 5)"]


@which_engine
@pytest.mark.parametrize("bad", [NAN, INF, -INF], ids=str)
@pytest.mark.parametrize(
    "source",
    [
        "metrics.loss > 2.0",
        "!(metrics.loss <= 2.0)",
        "metrics.loss != 1.0",
        "progress.percent > 2.0",
        "variables.limit < 2.0",
        'slope("loss", 5) < 2.0',
        "metrics.exists(m, slope(m, 5) < 2.0)",
        "metrics.exists(m, metrics[m] < 2.0)",
        "metrics.loss",
        "metrics.loss in [1.0]",
        "human(metrics.loss)",
    ],
)
def test_a_number_that_is_not_finite_is_unknown_wherever_it_comes_from(
    source: str, bad: float, which: Literal["cpp", "python"]
) -> None:
    scope = RunOf({"progress.percent": bad}, {"loss": bad}, lambda function, arguments: bad)

    outcome = evaluate(source, scope, which, own={"limit": bad}, types={"limit": Type.DOUBLE})

    assert outcome.value is None
    assert outcome.unknown


@which_engine
def test_an_int_where_a_double_is_promised_is_taken_as_one(which: Literal["cpp", "python"]) -> None:
    scope = RunOf({"progress.percent": 50}, {"loss": 3}, lambda function, arguments: 2)

    outcome = evaluate('metrics.loss > 2.5 && progress.percent < 50.5 && mean("loss", 5) < 2.5', scope, which)

    assert outcome.value is True


@which_engine
def test_a_scope_that_breaks_makes_unknown_where_it_matters(which: Literal["cpp", "python"]) -> None:
    def broken(function: str, arguments: tuple[CelValue, ...]) -> CelValue:
        raise RuntimeError("out of order")

    scope = RunOf({}, {"loss": 3.0}, broken)

    assert evaluate('plateau("loss", 5) || metrics.loss > 2', scope, which).value is True
    outcome = evaluate('plateau("loss", 5) && metrics.loss > 2', scope, which)
    assert outcome.unknown == 'plateau("loss", 5) can\'t be read: RuntimeError: out of order'
    assert evaluate("job.gpus > 2", scope, which).unknown == "job.gpus can't be read: KeyError: 'job.gpus'"
    assert evaluate("metrics.exists(m, plateau(m, 5))", scope, which).value is None


@which_engine
@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("metrics.a > 1 && false || 1 / 0 == 1", "division by zero"),
        ("false && metrics.a > 1 || metrics.b > 1", "b was never reported"),
        ("metrics.a > 1 || metrics.b > 1", "a was never reported"),
        ("progress.step > 1 ? metrics.b > 1 : metrics.a > 1", "b was never reported"),
        ("(metrics.a > 1 ? 1 : 2) == 1", "a was never reported"),
        ("[1, 2][progress.step] == 1", "an index is outside its list"),
        ("metrics.loss * 1e308 * 10.0 > 1.0", "a computed value is NaN or infinite"),
        ("progress.step * 9223372036854775807 > 1", "a number, duration or moment is out of its range"),
        ('job.labels.tier == "dev"', "there is nothing named 'tier'"),
        ("variables.total > 5", "variables.total: streaming data has no total"),
        ("variables.other > 5", "variables.other has no value"),
        ('spike(variables.other + "x", 5)', "variables.other has no value"),
        ('double(job.labels["n"]) > 1.0', "'many' is not a number"),
    ],
)
def test_the_reason_is_that_of_what_mattered(source: str, reason: str, which: Literal["cpp", "python"]) -> None:
    scope = RunOf({"progress.step": 5, "job.labels": {"n": "many"}}, {"loss": 3.0})
    types = {"total": Type.INT, "other": Type.STRING if "spike" in source else Type.INT}

    outcome = evaluate(
        source, scope, which, own={"total": UnknownValueError("streaming data has no total")}, types=types
    )

    assert (outcome.value, outcome.unknown) == (None, reason)


@which_engine
def test_calls_with_computed_arguments_are_told_with_their_values(which: Literal["cpp", "python"]) -> None:
    scope = RunOf({}, {"loss": 3.0, "kl": 1.0}, lambda function, arguments: arguments[0] == "loss")

    outcome = evaluate('metrics.all(m, plateau(m, duration("2h"))) || plateau("x" + "y", 500)', scope, which)

    assert outcome.value is False
    assert outcome.used['plateau("kl", duration("7200s"))'] is False
    assert outcome.used['plateau("xy", 500)'] is False


@which_engine
def test_names_tell_what_an_expression_can_read(which: Literal["cpp", "python"]) -> None:
    source = (
        'metrics["eval/loss"] > 2 && job.gpus > 1 && plateau(variables.watched, 5) && spike("kl", 9) && "lr" in metrics'
    )
    types = {"watched": Type.STRING}

    names = engine(which).compile(source, field="when", result=None, variables=types).names

    assert names == {
        "metrics.eval/loss", "job.gpus", "plateau()", "variables.watched", "spike()", "metrics.kl", "metrics.lr",
    }  # fmt: skip
    anything = engine(which).compile("metrics.exists(m, age(m) > job.age)", field="when", result=None, variables={})
    assert anything.names == {"metrics", "age()", "job.age"}


@which_engine
@pytest.mark.parametrize(("metrics", "known"), [(99, True), (100, False)], ids=["just below", "at the limit"])
def test_comprehensions_may_take_so_many_steps(metrics: int, known: bool, which: Literal["cpp", "python"]) -> None:
    scope = RunOf({}, {f"m{number}": 1.0 for number in range(metrics)})

    outcome = evaluate('metrics.all(m, m != "")', scope, which, limits=Limits(iterations=100))

    assert (outcome.value is True) is known
    assert ("could take 100 steps" in outcome.unknown) is not known


def test_the_fast_engine_bears_all_the_steps_that_are_allowed() -> None:
    scope = RunOf({}, {f"m{number}": 1.0 for number in range(Limits().iterations - 1)})

    assert evaluate('metrics.all(m, m != "")', scope, "cpp").value is True


@which_engine
def test_all_comprehensions_count_together_with_those_around_them(which: Literal["cpp", "python"]) -> None:
    scope = RunOf({}, {f"m{number}": 1.0 for number in range(10)})
    source = "metrics.all(a, [1, 2, 3].exists(b, b > 2)) && metrics.filter(c, true).map(d, d).size() == 10"

    assert evaluate(source, scope, which, limits=Limits(iterations=61)).value is True
    assert "could take 60 steps" in evaluate(source, scope, which, limits=Limits(iterations=60)).unknown


def test_the_python_engine_gives_up_when_its_time_is_over() -> None:
    scope = RunOf({}, {f"m{number}": 1.0 for number in range(95)})

    outcome = evaluate("metrics.all(a, metrics.all(b, a <= b || a > b))", scope, "python", limits=Limits(seconds=0.001))

    assert outcome.value is None
    assert "took longer than" in outcome.unknown


def test_importing_the_policies_imports_no_engine() -> None:
    modules = "trainwarden.policies.expressions.engines, trainwarden.policies.expressions.protocol"
    program = (
        f"import sys, {modules}\nprint([m for m in ('celpy', 'cel_expr_python', 'lark', 're2') if m in sys.modules])"
    )

    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)

    assert shown.stdout.strip() == "[]"


def test_without_a_name_the_fast_engine_is_taken() -> None:
    assert engine().name == "cpp"
    assert engine("python").name == "python"


def test_without_the_fast_engine_the_python_one_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cel_expr_python", None)
    monkeypatch.delitem(sys.modules, "trainwarden.policies.expressions.cpp", raising=False)

    assert engine().name == "python"
    with pytest.raises(ImportError):
        engine("cpp")


@which_engine
def test_values_of_every_type_come_out_as_pythons(which: Literal["cpp", "python"]) -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    scope = RunOf({"now": moment, "job.age": timedelta(hours=1), "job.gpus": 8, "job.name": "a", "job.cost": 1.5})

    for name, value in scope.values.items():
        outcome = evaluate(name, scope, which)
        assert (type(outcome.value), outcome.value) == (type(value), value)


@which_engine
def test_a_pattern_that_grows_huge_is_refused(which: Literal["cpp", "python"]) -> None:
    scope = RunOf({"job.name": "llama-7b"})

    assert evaluate('job.name.matches("^llama-[0-9]{1,3}b(-v[0-9]+)?$")', scope, which).value is True
    with pytest.raises(ExpressionError) as refused:
        evaluate(f'job.name.matches("{"(a{1000})" * 200}")', scope, which)
    assert "pattern too large" in refused.value.remedy


NESTS = {
    "sum": ("(", " + 1)", "1"),
    "sum on the right": ("(1 + ", ")", "1"),
    "negative": ("-(", ")", "job.gpus"),
    "ternary": ("(true ? ", " : 1)", "1"),
    "ternary on the right": ("(true ? 1 : ", ")", "1"),
    "not": ("!(", ")", "true"),
    "size": ("size([", "])", "1"),
    "index": ("[", "][0]", "1"),
    "conversion": ("int(double(", "))", "job.gpus"),
    "divisor": ("(1.0 / ", ")", "double(job.gpus)"),
    "filter": ("", ".filter(x, true)", "[1, 2]"),
    "text": ('("a" + ', ")", "job.name"),
}


@pytest.mark.parametrize("shape", NESTS)
def test_both_engines_bear_whatever_depth_is_accepted(shape: str) -> None:
    before, after, middle = NESTS[shape]
    scope = RunOf({"job.gpus": 1, "job.name": "a"})
    refused: list[str] = []

    for depth in range(1, 34):
        outcomes = []
        for which in ENGINES:
            text = before * depth + middle + after * depth
            source = f"size({text}) > 0" if shape in ("filter", "text") else text
            try:
                outcomes.append(evaluate(source, scope, which))
            except ExpressionError as error:
                refused.append(error.found)
        if outcomes:
            assert outcomes[0].unknown == outcomes[1].unknown == ""
            assert outcomes[0].value == outcomes[1].value

    assert set(refused) == {"brackets and calls nested too deeply"}
    assert len(refused) % 2 == 0
    assert len(refused) < 60


LONG = "x" * 16_384


@which_engine
def test_a_value_is_at_most_16_384_characters_long(which: Literal["cpp", "python"]) -> None:
    own, types = {"v": LONG}, {"v": Type.STRING}

    assert evaluate("variables.v", RunOf(), which, own=own, types=types).value == LONG
    longer = evaluate('variables.v + "y"', RunOf(), which, own=own, types=types)
    assert longer.value is None
    assert longer.unknown == "the result is a text of 16385 characters; at most 16384 are allowed"
    assert evaluate('size(variables.v + "y")', RunOf(), which, own=own, types=types).value == 16_385


NAMES = [f"m{number:02}" for number in range(90)]
JOINED = " + ".join(["variables.v"] * 20)
GROWING = {
    "joined over and over": f"size({' + '.join([f'({JOINED})'] * 4)}) > 0",
    "joined at each step": f"{NAMES}.map(x, {JOINED})[0] != ''",
    "joined at each step of two": 'metrics.exists(m, metrics.exists(n, m + variables.v == n + ""))',
    "through another list": 'metrics.map(m, m + variables.v).map(x, x + x + x)[0] != ""',
    "searched at each step": 'metrics.exists(m, metrics.exists(n, variables.v.matches("(a|b)+" )))',
    "an item of a list": 'metrics.exists(m, metrics.exists(n, [variables.v, "a"][0] == n))',
    "an entry of a map": 'metrics.exists(m, metrics.exists(n, job.labels["tier"] + m == n))',
    "either": 'metrics.exists(m, metrics.exists(n, (size(m) > 9 ? variables.v : "a") == n))',
    "what a filter leaves": "[variables.v].filter(v, true).exists(v, metrics.exists(m, v + v + v + v + v + v == m))",
}


@which_engine
@pytest.mark.parametrize("way", GROWING)
def test_texts_that_could_grow_huge_are_unknown_before_they_are_made(way: str, which: Literal["cpp", "python"]) -> None:
    scope = RunOf({"job.labels": {"tier": LONG}}, dict.fromkeys(NAMES, 1.0))

    outcome = evaluate(GROWING[way], scope, which, own={"v": LONG}, types={"v": Type.STRING})

    assert outcome.value is None
    assert re.fullmatch(r"its texts could come to \d{7,} characters; at most 4000000 are allowed", outcome.unknown), (
        outcome.unknown
    )


@which_engine
def test_texts_of_an_everyday_size_are_joined(which: Literal["cpp", "python"]) -> None:
    scope = RunOf({"job.labels": {"tier": "dev"}}, dict.fromkeys(NAMES[:20], 1.0))

    found = evaluate('metrics.exists(m, metrics.exists(n, m + "/" + job.labels["tier"] == n))', scope, which)
    named = evaluate('metrics.filter(m, m.startsWith("m1")).map(m, m + ": " + human(metrics[m]))[1]', scope, which)

    assert found.value is False
    assert named.value == "m11: 1"


@pytest.mark.parametrize("shape", NESTS)
@which_engine
def test_what_nests_too_deeply_is_refused_at_its_place(shape: str, which: Literal["cpp", "python"]) -> None:
    before, after, middle = NESTS[shape]

    with pytest.raises(ExpressionError) as refused:
        evaluate(before * 40 + middle + after * 40, RunOf(), which)

    assert (refused.value.line, refused.value.column > 0) == (1, True)


@which_engine
def test_a_chain_of_conditions_that_is_too_long_is_refused_at_its_place(which: Literal["cpp", "python"]) -> None:
    with pytest.raises(ExpressionError) as refused:
        evaluate("true ? 1 : " * 40 + "1", RunOf(), which)

    assert refused.value.found == "brackets and calls nested too deeply"
    assert (refused.value.line, refused.value.column) == (1, 1)
