"""What is wrong with a test file is told with its place and what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.policies.unittests.files import HIGH, outcomes, problems, rule

from trainwarden.policies.unittests.field_docs import field_tables

PAGE = (Path(__file__).parents[3] / "docs" / "policy-tests.md").read_text(encoding="utf-8")
HEAD = "policies: [p.yaml]\ntests:\n- name: one\n"


def told(text: str) -> str:
    return "\n".join(str(problem) for problem in problems(text))


@pytest.mark.parametrize(
    ("test", "says"),
    [
        ("  serie: {loss: 1}", "t.yaml:4:3: tests[0].serie: an unknown key; did you mean series?"),
        ("  series: {loss: abc}", "t.yaml:4:18: tests[0].series.loss: 'abc'; write a number"),
        ("  series: {loss: [1, 2]}", "tests[0].series.loss: a list; write a row"),
        ("  series: {loss: }", "tests[0].series.loss: a null; write a row"),
        ("  run: 1 suspnded", "tests[0].run: the word 'suspnded'; did you mean suspended?"),
        ("  every: 60", "tests[0].every: the number 60 has no unit; write 60s"),
        ("  every: 0s", "tests[0].every: 0s; write a time such as 1m"),
        ("  length: 10m", "tests[0].length: an expectation lies behind the end of the test; make the test longer"),
        ("  start: 2026-01-01", "tests[0].start: '2026-01-01' has no time zone; write 2026-01-01Z"),
        ("  start: noon", "tests[0].start: 'noon'; write a moment such as"),
        ("  mode: enforce", "tests[0].mode: 'enforce'; did you mean Enforce?"),
        ("  job: {gpu: 8}", "tests[0].job.gpu: an unknown key; did you mean gpus?"),
        ("  job: {budget: {limit: 3}}", "tests[0].job.budget.used: it is missing; add it"),
        ("  executor: {Suspnd: Done}", "tests[0].executor.Suspnd: an unknown key; did you mean Suspend?"),
        ("  executor: {Suspend: done}", "tests[0].executor.Suspend: 'done'; did you mean Done?"),
        ("  changes: [{gpus: 3}]", "tests[0].changes[0].at: it is missing; add it"),
        ("  series: {loss: =x3}", "tests[0].series.loss: a row that begins with =; begin with a number"),
        ("  epoch: =x3", "tests[0].epoch: a row that begins with =; begin with a number"),
        ("  run: 3-1x9", "tests[0].run: the step -1; a step is a number from 0 on"),
        ("  run: 1+1x5\n  series: {loss: 1x9}", "tests[0].series.loss: 9 values, but the run has only 5 places"),
        ("  every: 1s\n  length: 10d", "864001 reports; at most 500000 are right"),
    ],
)
def test_a_wrong_test_is_told(test: str, says: str) -> None:
    assert says in told(f"{HEAD}{test}\n  expect: [{{at: 1h, when: true}}]\n")


@pytest.mark.parametrize(
    ("expectation", "says"),
    [
        ("{at: 1m, verdikt: Firing}", "t.yaml:4:21: tests[0].expect[0].verdikt: an unknown key; did you mean verdict?"),
        ("{at: 1m, verdict: firing}", "expect[0].verdict: 'firing'; did you mean Firing?"),
        ("{at: 1m, when: maybe}", "expect[0].when: 'maybe'; true, false or unknown is right"),
        ("{at: 1m}", "nothing that is expected; write for instance verdict: Firing"),
        ("{at: 1m, from: 0s, when: true}", "at together with from or to"),
        ("{from: 2m, to: 1m, fires: 0}", "a stretch whose end lies before its begin"),
        ("{message: x}", "message without at; write at: 10m, say, the moment in which to look"),
        ("{selected: true}", "expect[0]: selected without at; write at: 10m, say"),
        ("{to: 5m, actions: [], values: {a: 1}}", "values and actions without at; write at: 10m, say"),
        ("{at: 1m, when: true, reason: x}", "reason together with when: true; only what is unknown has a reason"),
        ("{at: 1m, actions: [Suspend]}", "'Suspend'; write action, state and perhaps reason"),
        ("{at: 1m, actions: [Suspended Done]}", "'Suspended' in 'Suspended Done'; did you mean Suspend?"),
        ("{at: 1m, actions: [Suspend Dne]}", "'Dne' in 'Suspend Dne'; did you mean Done?"),
        ("{at: 1m, when: true, rule: bed}", "tests[0].expect[0].rule: the rule 'bed'; did you mean bad?"),
        ("{at: 1m, when: true, policy: gard}", "tests[0].expect[0].policy: the policy 'gard'; did you mean guard?"),
        ("{at: 1m, when: true, policy: zzz}", "the policy 'zzz'; there are guard"),
    ],
)
def test_a_wrong_expectation_is_told(expectation: str, says: str) -> None:
    assert says in told(f"{HEAD}  expect: [{expectation}]\n")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "t.yaml:1:1: no tests; a test file is one document with policies and tests"),
        ("policies: [p]\n---\ntests: []", "2 documents; a test file is one document"),
        ("[1]", "a list; a test file has policies and tests"),
        (
            "tests: [{name: a, expect: [{fires: 0}]}]",
            "neither policies nor presets; name files in policies, or built-in ones in presets",
        ),
        ("policies: []\ntests: []", "tests: an empty list; write at least 1"),
        ("policies: [p]\npolicy: x\ntests: []", "policy: an unknown key; did you mean policies?"),
        ("policies: [p]\npolicies: [q]\ntests: []", "t.yaml:2:1: policies: the key is there twice; keep one"),
        ("a: [", "not YAML"),
        (f"{HEAD}  expect: [{{fires: 0}}]\n- name: one\n  expect: [{{fires: 0}}]", "two tests of the name 'one'"),
    ],
)
def test_a_wrong_file_is_told(text: str, says: str) -> None:
    assert says in told(text)


def test_a_rule_that_is_not_named_must_be_the_only_one() -> None:
    two = rule("[{name: a, when: 'true'}, {name: b, when: 'true'}]")
    text = f"{HEAD}  expect: [{{at: 1m, when: true}}]"

    assert [str(p) for p in problems(text, HIGH)] == []
    (several,) = problems(text, two)
    assert str(several).endswith("no rule, and there are several; add one of a, b")
    (double,) = problems(text.replace("at: 1m", "rule: bad, at: 1m"), HIGH, rule("when: 'true'", name="other"))
    assert "add policy: one of guard, other" in str(double)


def test_rows_are_taken_as_they_are_written() -> None:
    text = f"{HEAD}  series: {{loss: 0x10 3x2, acc: 0x5}}\n  expect: [{{at: 9m, when: false}}, {{at: 10m, when: true}}]"

    assert outcomes(text, rule("when: metrics.loss > 2.0 || metrics.acc < -1.0"))[0].passed


CHOSEN = [{"name": "metric", "expression": '(["eval/loss"].filter(m, m in metrics) + ["loss"])[0]'}]


@pytest.mark.parametrize(
    ("when", "name"),
    [
        ("metrics.loss > 2.0", "loss"),
        ('nonFinite("loss") || metrics["eval/loss"] > 2.0', "eval/loss"),
        ('"loss" in metrics', "loss"),
        ("plateau(variables.metric, 100)", "eval/loss"),
        ("plateau(variables.metric, 100)", "loss"),
        ('["loss", "acc"].exists(m, nonFinite(m))', "acc"),
        ('maskedLoss("loss")', "grad_norm"),
        ('plateau("loss", 100)', "train/learning_rate"),
        ('plateau("loss", 100)', "lr-AdamW"),
        ('progress.sinceBest > duration("1h")', "eval_loss"),
        ("metrics.exists(m, nonFinite(m))", "anything"),
        ('nonFinite("eval/" + job.labels["metric"])', "anything"),
        ('nonFinite(job.labels["metric"])', "anything"),
        ("job.gpus > 3", "anything"),
    ],
)
def test_metrics_that_a_policy_may_read_are_taken(when: str, name: str) -> None:
    text = f"{HEAD}  series: {{'{name}': 1x5}}\n  expect: [{{fires: 0}}]"

    assert problems(text, rule(f"when: '{when}'", variables=CHOSEN if "variables." in when else [])) == []


@pytest.mark.parametrize(
    ("when", "name", "says"),
    [
        ("metrics.loss > 2.0", "los", "did you mean loss?"),
        ('nonFinite("train/loss")', "train_loss", "did you mean train/loss?"),
        ("plateau(variables.metric, 100)", "val/loss", "did you mean eval/loss?"),
        ('plateau(true ? "loss" : "loss", 100)', "los", "did you mean loss?"),
        ('metrics.loss > 2.0 && job.age > duration("9h")', "accuracy", "leave it out, or write one of loss"),
        ("metrics.loss > 2.0 || metrics.kl > 1.0", "accuracy", "leave it out, or write one of kl, loss"),
    ],
)
def test_a_metric_that_no_policy_reads_is_told(when: str, name: str, says: str) -> None:
    text = f"{HEAD}  series: {{'{name}': 1x5}}\n  expect: [{{fires: 0}}]"

    (problem,) = problems(text, rule(f"when: '{when}'", variables=CHOSEN if "variables." in when else []))
    assert (
        str(problem)
        == f"t.yaml:4:{12 + len(name) + 4}: tests[0].series.{name}: a metric that no policy here reads; {says}"
    )


def test_fields_of_the_file_hold_unless_a_test_says_otherwise() -> None:
    text = """
policies: [p.yaml]
every: 10m
job: {gpus: 8, owner: ana}
tests:
- {name: common, expect: [{at: 0s, values: {job.gpus: 8, job.owner: ana}}]}
- {name: own, job: {gpus: 16}, expect: [{at: 0s, values: {job.gpus: 16, job.owner: ana}}]}
"""

    assert [
        each.passed for each in outcomes(text, rule('when: job.gpus > 9 || job.owner != "ana" || job.gpus < 0'))
    ] == [
        True,
        True,
    ]


def test_the_docs_tell_every_field() -> None:
    assert field_tables().strip() in PAGE
    assert "|  |\n" not in field_tables()
