"""Every expression gives the same answer on both engines, and what it can't answer is unknown, never false."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.policies.expressions.grown import any_expression

from trainwarden.policies.expressions.engines import engine
from trainwarden.policies.expressions.errors import ExpressionError
from trainwarden.policies.expressions.protocol import CelValue, Limits, Outcome, UnknownValueError
from trainwarden.policies.vocabulary import Type

ENGINES: tuple[Literal["cpp", "python"], ...] = ("cpp", "python")
UNKNOWN = object()
VARIABLES = {"watched": Type.STRING, "limit": Type.DOUBLE, "unset": Type.INT}


class FakeScope:
    """One run with known values. `bad` is NaN at its newest step."""

    values: Mapping[str, CelValue] = {
        "job.name": "llama",
        "job.gpus": 8,
        "job.gpuHours": 12.5,
        "job.labels": {"tier": "dev"},
        "now": datetime(2026, 1, 1, 12, tzinfo=UTC),
        "progress.percent": 50.0,
        "progress.sinceBest": timedelta(hours=2, seconds=1),
        "progress.sinceStep": timedelta(minutes=11),
        "progress.step": 5,
        "progress.totalSteps": 10,
    }
    metrics: Mapping[str, float] = {"loss": 3.0, "eval/loss": 2.5, "zero": 0.0}

    def variable(self, name: str) -> CelValue:
        if name not in self.values:
            raise UnknownValueError(f"{name} has no value")
        return self.values[name]

    def metric(self, name: str) -> float:
        if name == "bad":
            raise UnknownValueError("metrics.bad is NaN at step 120")
        if name not in self.metrics:
            raise UnknownValueError(f"{name} was never reported")
        return self.metrics[name]

    def metric_names(self) -> frozenset[str]:
        return frozenset([*self.metrics, "bad"])

    def call(self, function: str, arguments: tuple[CelValue, ...]) -> CelValue:
        if function == "plateau":
            return arguments[0] == "loss"
        if function == "nonFinite":
            return arguments[0] == "bad"
        if function == "mean":
            return 2.5
        raise UnknownValueError(f"{function} has too little history")


def evaluate(source: str, which: Literal["cpp", "python"], limits: Limits | None = None) -> Outcome:
    expression = engine(which, limits).compile(source, field="when", result=None, variables=VARIABLES)
    return expression.evaluate(FakeScope(), {"watched": "loss", "limit": 2.0, "unset": UnknownValueError("no total")})


@pytest.mark.parametrize("which", ENGINES)
@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("metrics.loss > 2", True),
        ("metrics.loss > 2.0", True),
        ("2 < metrics.loss", True),
        ("metrics.loss == 3", True),
        ("3 != metrics.loss", False),
        ("metrics.loss > variables.limit", True),
        ("progress.percent < 95", True),
        ("job.gpus >= 4 && job.gpuHours > 10", True),
        ('progress.sinceStep > duration("10m")', True),
        ('"loss" in metrics', True),
        ('"bad" in metrics', True),
        ('"absent" in metrics', False),
        ("has(metrics.loss) && has(job.labels.tier)", True),
        ('metrics["eval/loss"] < 3', True),
        ('"x" in metrics ? metrics.x > 1.0 : metrics.loss > 1.0', True),
        ('metrics.exists(m, m.startsWith("loss") && metrics[m] > 2.0)', True),
        ("metrics.exists(m, nonFinite(m))", True),
        ("metrics.exists(m, metrics[m] > 5.0)", UNKNOWN),
        ("size(metrics) == 4 && metrics.size() == 4", True),
        ('"tier" in job.labels && job.labels["tier"] == "dev"', True),
        ('job.labels.tier == "dev"', True),
        ('job.labels.absent == "dev"', UNKNOWN),
        ('plateau(variables.watched, duration("2h")) && progress.percent < 95.0', True),
        ('plateau("loss", 500)', True),
        ('plateau("loss", 500, "higher")', True),
        ("metrics.bad > 2", UNKNOWN),
        ("metrics.bad <= 2.0", UNKNOWN),
        ("!(metrics.bad <= 2.0)", UNKNOWN),
        ("false && metrics.bad > 2", False),
        ("metrics.bad > 2 && false", False),
        ("metrics.bad > 2 || true", True),
        ('metrics.bad > 2 || nonFinite("bad")', True),
        ("progress.percent > 10 ? metrics.loss > 2 : metrics.bad > 1", True),
        ("metrics.zero / metrics.zero > 1.0", UNKNOWN),
        ("!(metrics.zero / metrics.zero > 1.0)", UNKNOWN),
        ("metrics.loss / metrics.zero > 1.0", UNKNOWN),
        ("metrics.loss / metrics.zero", UNKNOWN),
        ("1e308 * 10.0 > 1.0", UNKNOWN),
        ('double("nan") > 1.0', UNKNOWN),
        ("variables.unset > 1", UNKNOWN),
        ("variables.unset > 1 || job.gpus > 1", True),
        ("progress.eta > duration('1h')", UNKNOWN),
        ("progress.step / progress.totalSteps == 0", True),
        ("double(progress.step) / double(progress.totalSteps) == 0.5", True),
        ("-7 / 2 == -3 && -7 % 3 == -1", True),
        ("1 / 0 == 1", UNKNOWN),
        ("9223372036854775807 + 1 > 0", UNKNOWN),
        ("[1, 2][5] == 1", UNKNOWN),
        ("[1, 2][-1] == 2", UNKNOWN),
        ("false && [1].map(x, x / 0).size() == 1", False),
        ("[0, 1].exists(x, 1 / x == 1) && ![0, 1].all(x, 1 / x == 0)", True),
        ("[1, 2].exists_one(x, x / 0 == 1) || true", True),
        ("1.0 / (metrics.loss / metrics.zero) < 1.0", UNKNOWN),
        ("1.0 in [metrics.zero / metrics.zero]", UNKNOWN),
        ("[1.0].map(x, x / metrics.zero).size() == 1", UNKNOWN),
        ("metrics.zero / metrics.zero != 1.0", UNKNOWN),
        ('("日" + "本").contains("本")', True),
        ('"abc".matches("b") && !"abc".matches("^b")', True),
        ("now - job.deadline", UNKNOWN),
        ('now - timestamp("2026-01-01T10:30:00Z")', timedelta(hours=1, minutes=30)),
        ('timestamp("9999-12-31T23:59:59Z") - now', UNKNOWN),
        ('now + duration("1h")', datetime(2026, 1, 1, 13, tzinfo=UTC)),
        ('timestamp("9999-12-31T23:59:59Z") + duration("1h") > now', UNKNOWN),
        ('now.getHours("Mars/Olympus") == 1', UNKNOWN),
        ("now.getDayOfMonth() == 0 && now.getDate() == 1 && now.getFullYear() == 2026", True),
        ("progress.sinceBest.getMinutes() == 120", True),
        ("variables.watched", "loss"),
        ("double(progress.step) / double(progress.totalSteps)", 0.5),
        ("progress.step * 2 - 1", 9),
        ("job.gpus >4&&progress.step -5<1", True),
        ('human(12345.678) + " " + human(0.5) + " " + human(3)', "12,346 0.5 3"),
        ('metrics.map(m, m).exists(m, m == "bad")', True),
        ('job.labels.all(k, job.labels[k] == "dev")', True),
        ("metrics.exists(m, spike(m, 9))", UNKNOWN),
        ('now + duration("1h") > timestamp("2026-01-01T12:30:00Z")', True),
        ('now.getHours("Europe/Berlin") == 13 && now.getHours() == 12', True),
        ("now.getDayOfWeek() == 4 && now.getMonth() == 0", True),
        ("[1, 2, 3].exists(x, x > 2) && [1, 2, 3].all(x, x > 0)", True),
        ("[1, 2, 3].map(x, x * 2).exists_one(x, x == 4)", True),
        ("[1, 2, 3].filter(x, x > 1).size() == 2", True),
        ('job.name in ["llama", "gpt"] && 1 in [1.0, 2.5]', True),
        ('"abc".matches("^a.c$") && "abc".contains("b") && "abc".endsWith("c")', True),
        ('mean("loss", duration("1h")) < 3', True),
        ('slope("loss", 100) < 0.0', UNKNOWN),
        ('"\\u65e5\\u672c \\n $" == "日本 \\n $"', True),
        ("string(progress.sinceBest)", "7201s"),
        ("human(progress.sinceBest)", "2h"),
        ("string(2.5) + string(3.0) + string(true) + string(7) + string(now)", "2.53true72026-01-01T12:00:00Z"),
        (
            '"no progress in " + variables.watched + " for " + string(progress.sinceBest)',
            "no progress in loss for 7201s",
        ),
    ],
)
def test_an_expression_gives_its_value_or_unknown(source: str, value: object, which: Literal["cpp", "python"]) -> None:
    outcome = evaluate(source, which)

    if value is UNKNOWN:
        assert outcome.value is None
        assert outcome.unknown
    else:
        assert (outcome.value, outcome.unknown) == (value, "")


@pytest.mark.parametrize("which", ENGINES)
def test_unknown_says_what_is_missing(which: Literal["cpp", "python"]) -> None:
    assert evaluate("metrics.bad > 2", which).unknown == "metrics.bad is NaN at step 120"
    assert evaluate("metrics.exists(m, metrics[m] > 5.0)", which).unknown == "metrics.bad is NaN at step 120"
    assert evaluate("1 / 0 == 1", which).unknown == "division by zero"


@pytest.mark.parametrize("which", ENGINES)
def test_what_was_used_is_told_as_written(which: Literal["cpp", "python"]) -> None:
    outcome = evaluate('metrics["loss"] > 2 && plateau(variables.watched, duration("2h"))', which)

    assert outcome.used == {
        'metrics["loss"]': 3.0,
        "variables.watched": "loss",
        'plateau(variables.watched, duration("2h"))': True,
    }


@pytest.mark.parametrize("which", ENGINES)
@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('metrics.loss > "2"', "when:1:1: double > string; write the number without quotes"),
        ("los > 2", "when:1:1: unknown name 'los'; a metric of that name is read as metrics.los"),
        ("job.gpu > 3", "when:1:1: unknown name 'job.gpu'; did you mean job.gpus?"),
        ("true &&\n  plataeu('loss', 5)", "when:2:3: unknown function 'plataeu'; did you mean plateau?"),
        ('variables.wached == "x"', "when:1:1: unknown variable 'variables.wached'; did you mean variables.watched?"),
        ('watched == "x"', "when:1:1: unknown name 'watched'; write variables.watched"),
        ("metrics.loss = 2", "when:1:14: '= 2' where it can't stand; compare with =="),
        ("progress.sinceStep > 10", 'when:1:1: duration > int; write a duration as duration("10m")'),
        ("now.year > 1", "when:1:1: a field of now, a timestamp; only maps have fields"),
        (
            "metrics.eval.loss > 1",
            'when:1:1: a field of metrics.eval, a double; write metrics["eval.loss"] for a metric of that name',
        ),
        ("job.labels.tier.x == 'a'", "when:1:1: a field of job.labels.tier, a string; only maps have fields"),
        (
            '"%.2f".format([1.0]) == "x"',
            (
                "when:1:1: format, which only one of the engines has; join texts with +, "
                "and put a number or duration into few words with human(...)"
            ),
        ),
        ("loss > 2", "when:1:1: unknown name 'loss'; a metric of that name is read as metrics.loss"),
        ("metrics > 2", 'when:1:1: metrics as a value; read one, such as metrics.loss or metrics["eval/loss"]'),
        (
            "metrics.exists(a, metrics.all(b, metrics.all(c, a == b)))",
            "when:1:34: three comprehensions inside each other; two are allowed",
        ),
        (
            'plateau("loss")',
            (
                "when:1:1: plateau(string); it is called as plateau(metric string, window duration); "
                "plateau(metric string, window duration, direction string); plateau(metric string, steps int); "
                "plateau(metric string, steps int, direction string); "
                "plateau(metric string, share double, tolerance double); "
                "plateau(metric string, share double, tolerance double, direction string)"
            ),
        ),
        ('plateau("loss", 5, "up")', 'when:1:20: the direction \'up\'; "lower" or "higher" is better'),
        ('plateau("loss", -5)', "when:1:17: a window of -5 steps; at least 1 is right"),
        (
            'plateau("loss", 1.0, 0.01)',
            "when:1:17: the share 1.0; more than 0.0 and less than 1.0 is right",
        ),
        (
            'plateau("loss", 0.5, 0.6)',
            "when:1:22: the tolerance 0.6; more than 0.0 and at most 0.5 is right",
        ),
        (
            'throughputDrop(duration("10m"), 50.0)',
            "when:1:33: the ratio 50.0; more than 0.0 and less than 1.0 is right",
        ),
        ('quantile("loss", 100, 1.5) > 1.0', "when:1:23: the q 1.5; 0 to 1 is right"),
        ('throughputDrop(duration("10m"), 1)', "when:1:33: the ratio as a whole number; write 1.0"),
        (
            'plateau("loss", job.gpus, 0.1)',
            "when:1:17: the share as a whole number; write it with a point, such as 0.5",
        ),
        ("has(job.gpus)", "when:1:1: has(job.gpus); has() asks for a metric or a label, such as has(metrics.loss)"),
        ("null == null", "when:1:1: null; bool, int, double, string, duration and timestamp are the types of policies"),
        ("{'a': 1}.size() == 1", "when:1:1: a map in braces; it is not part of the language of policies"),
        (
            "1u > 0",
            (
                "when:1:1: the unsigned number 1u; "
                "bool, int, double, string, duration and timestamp are the types of policies"
            ),
        ),
        ("metrics.loss >", "when:1:15: an end where more is needed; brackets, quotes and operators must be complete"),
        (
            "99999999999999999999 > 1",
            "when:1:1: the number 99999999999999999999; an int has 64 bits; write a double such as 1e20",
        ),
        ("progress.step + 1.5 > 2.0", "when:1:1: int + double; write double(...) around the int"),
        ("1 && true", "when:1:1: 1 is an int; && joins bools: compare it with something"),
        ('"x".matches("(")', "when:1:13: the pattern '('; RE2 says: missing ): ("),
        ("", "when:1:1: an empty expression; write one, such as metrics.loss > 2"),
        ("metrics.loss", "when:1:1: a double; a bool is right here: compare it with something"),
        (
            'duration("2d") > duration("1h")',
            'when:1:1: the duration \'2d\'; write hours, minutes and seconds, such as "1h30m" (CEL has no days: "48h")',
        ),
    ],
)
def test_a_wrong_expression_is_refused_with_place_and_remedy(
    source: str, message: str, which: Literal["cpp", "python"]
) -> None:
    with pytest.raises(ExpressionError) as refused:
        engine(which).compile(source, field="when", result=Type.BOOL, variables=VARIABLES)

    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("source", "remedy"),
    [
        ("plateau(loss, 500)", 'write the name in quotes: "loss"'),
        ("plateau(metrics.loss, 500)", 'write the name in quotes: "loss"'),
        ('plateau(metrics["eval/loss"], 500)', 'write the name in quotes: "eval/loss"'),
        ('overfitting("eval/loss", loss, 50)', 'write the name in quotes: "loss"'),
        ("sinceBest(metrics.loss) > duration('2h')", 'write the name in quotes: "loss"'),
        ("plateau(watched, 500)", "write variables.watched"),
        ('plateau("loss", "2h")', 'write a window as duration("2h")'),
        ('plateau("loss", "2d", "lower")', 'write a window as duration("48h")'),
        ('plateau("loss", 2h)', 'write a duration as duration("2h")'),
        ('plateau("loss", 2d)', 'write a duration as duration("48h")'),
        ("progress.sinceStep > 30m", 'write a duration as duration("30m")'),
        ("metrics.loss > 2 and true", "write && for and"),
        ("metrics.loss > 2 & true", "write && for and"),
        ("metrics.loss > 2 OR true", "write || for or"),
        ("metrics.loss > 2 | true", "write || for or"),
        ('not nonFinite("loss")', "write ! for not"),
        ("not(true)", "write ! for not"),
        ("true && not false", "write ! for not"),
        ("nonFinite(\u201closs\u201d)", "write straight quotes, \" or '"),
        ("metrics.loss \u2265 2", "write >="),
        ("metrics.loss <> 2", "write !="),
        ("metrics.loss is 2", "compare with =="),
        ("progress.percent > 95%", "write the number without %"),
        ("metrics.loss == NaN", 'NaN and infinity are never compared: ask nonFinite("loss")'),
        ("metrics.loss > Infinity", 'NaN and infinity are never compared: ask nonFinite("loss")'),
        ("isnan(metrics.loss)", 'NaN and infinity are never compared: ask nonFinite("loss")'),
        ("abs(metrics.loss) > 2", "compare with both ends, such as x > 2 || x < -2"),
        ("job.gpus > 1 == True", "write true"),
    ],
)
def test_what_people_bring_from_other_languages_is_put_right(source: str, remedy: str) -> None:
    with pytest.raises(ExpressionError) as refused:
        engine().compile(source, field="when", result=Type.BOOL, variables=VARIABLES)

    assert refused.value.remedy == remedy


@pytest.mark.parametrize("which", ENGINES)
@pytest.mark.parametrize(
    "source",
    ["(" * 200 + "1" + ")" * 200, "!" * 500 + "true", "1" + " + 1" * 400, "x" * 3000, "[" * 3000, '"' * 999],
    ids=["brackets", "negations", "sum", "length", "lists", "quotes"],
)
def test_an_expression_over_its_limits_is_refused(source: str, which: Literal["cpp", "python"]) -> None:
    with pytest.raises(ExpressionError):
        engine(which).compile(source, field="when", result=None, variables={})


@pytest.mark.parametrize("which", ENGINES)
def test_long_chains_of_conditions_are_no_nesting(which: Literal["cpp", "python"]) -> None:
    assert evaluate(" && ".join(["job.gpus > 1"] * 100), which).value is True


def test_a_comprehension_that_takes_too_long_is_unknown() -> None:
    nested = "[1,2,3,4,5,6,7,8,9].all(x, [1,2,3,4,5,6,7,8,9].all(y, x + y > 0))"

    assert evaluate(nested, "python", Limits(seconds=1e-9)).unknown.startswith("the evaluation took longer")
    assert evaluate(nested, "python").value is True


@pytest.mark.parametrize("which", ENGINES)
def test_a_comprehension_over_too_many_names_is_unknown(which: Literal["cpp", "python"]) -> None:
    outcome = evaluate("metrics.exists(a, metrics.all(b, a == b))", which, Limits(iterations=15))

    assert outcome.unknown == "its comprehensions could take 20 steps; fewer than 15 are allowed"


@settings(max_examples=400, deadline=None)
@given(any_expression())
@example("false && metrics.all(a, mean(a, 5) > 1.0)")
@example('metrics.loss > 0.0 || mean("loss", 5) > 1.0')
@example('metrics["nowhere"] > 1.0 || mean("loss", 5) > 1.0')
def test_both_engines_agree_on_any_expression(source: str) -> None:
    refused, outcomes = [], []
    for which in ENGINES:
        try:
            outcomes.append(evaluate(source, which))
        except ExpressionError as error:
            refused.append(str(error))
    if refused:
        assert refused[0] == refused[1]
        return
    fast, plain = outcomes

    assert (type(fast.value), fast.value) == (type(plain.value), plain.value)
    assert bool(fast.unknown) == bool(plain.unknown)
    assert fast.used == plain.used
    assert not any(word in fast.unknown + plain.unknown for word in ("Traceback", "Error(", "overload", "s0_"))


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60) | st.text("metrics.los()[]&|!<>=\"'0123456789 +-*/?:", max_size=60))
def test_no_text_breaks_the_checker(source: str) -> None:
    for which in ENGINES:
        with suppress(ExpressionError):
            evaluate(source, which)
