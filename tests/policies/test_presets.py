"""Presets are right, change only by their parameters, and judge the metric that a run has."""

from __future__ import annotations

import math
from typing import Literal

import pytest
from tests.policies.runs import SECOND, Training

from trainwarden.policies.compiling import CompiledPolicy, compile_loaded
from trainwarden.policies.expressions.engines import engine
from trainwarden.policies.expressions.protocol import CelValue, UnknownValueError
from trainwarden.policies.loading import load_policies
from trainwarden.policies.presets import PRESETS, PresetError, parameters, preset

GENERAL = {
    "plateau", "overfitting", "nonFinite", "divergence", "spike",
    "stall", "deadline", "throughputDrop", "restartStorm", "noCheckpoint",
}  # fmt: skip
ENGINES: tuple[Literal["cpp", "python"], ...] = ("cpp", "python")


def compiled(text: str, which: Literal["cpp", "python"] = "cpp") -> CompiledPolicy:
    (policy,), problems = compile_loaded(load_policies(text, source="preset"), engine(which), source="preset")
    assert not problems
    return policy


def value(policy: CompiledPolicy, training: Training, rule: str = "plateau") -> tuple[CelValue | None, CelValue | None]:
    """What a rule's condition and the variable `metric` are now."""
    scope, known = training.state.scope(training.at), dict[str, CelValue | UnknownValueError]()
    for name, expression in policy.variables:
        outcome = expression.evaluate(scope, known)
        known[name] = UnknownValueError(outcome.unknown) if outcome.value is None else outcome.value
    (condition,) = (each.when for each in policy.rules if each.spec.name == rule)
    metric = known["metric"]
    return condition.evaluate(scope, known).value, None if isinstance(metric, UnknownValueError) else metric


@pytest.mark.parametrize("which", ENGINES)
@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_a_right_policy_of_its_name(name: str, which: Literal["cpp", "python"]) -> None:
    policy = compiled(preset(name), which)

    assert policy.ref.name == name
    assert {"plateau", "nonFinite", "divergence", "stall"} <= {rule.spec.name for rule in policy.rules}


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "rl"])
def test_rules_are_named_after_what_they_find(name: str) -> None:
    assert {rule.spec.name for rule in compiled(preset(name)).rules} >= GENERAL


@pytest.mark.parametrize(
    ("name", "reported", "expected"),
    [
        ("conservative", ("loss", "eval/loss"), "eval/loss"),
        ("conservative", ("train_loss", "val_loss"), "val_loss"),
        ("balanced", ("train_loss",), "train_loss"),
        ("vision", ("loss", "validation/loss", "validation/accuracy"), "validation/accuracy"),
        ("vision", ("loss", "eval_loss"), "eval_loss"),
        ("rl", ("loss", "rewards/mean"), "rewards/mean"),
    ],
)
@pytest.mark.parametrize("which", ENGINES)
def test_it_judges_the_metric_that_the_run_has(
    name: str, reported: tuple[str, ...], expected: str, which: Literal["cpp", "python"]
) -> None:
    training = Training(every=SECOND)
    for step in range(0, 1000, 10):
        gone = math.exp(-step / 30)
        training.report(step, {each: 1 + gone if "loss" in each else 0.9 - gone for each in reported})

    assert value(compiled(preset(name), which), training) == (True, expected)


def test_parameters_are_changed_and_nothing_else() -> None:
    changed = preset("balanced", {"tolerance": "0.02", "metric": "'eval/wer'"})

    assert parameters("balanced")["tolerance"] == "variables.metric == variables.training ? 0.004 : 0.0055"
    assert "expression: '0.02'" in changed
    assert "expression: '''eval/wer'''" in changed
    assert len(compiled(changed).variables) == len(parameters("balanced"))
    assert len(changed.splitlines()) == len(preset("balanced").splitlines())


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("bold", {}, "there is no preset 'bold'; there are conservative, balanced, eager, "),
        ("eager", {"sahre": "0.1"}, "preset eager has no parameter 'sahre'; it has training, metric, share, "),
        ("eager", {"share": "0.1\n"}, "the value of share has several lines; one line of CEL is right"),
    ],
)
def test_what_is_not_there_is_refused(name: str, changes: dict[str, str], expected: str) -> None:
    with pytest.raises(PresetError) as caught:
        preset(name, changes)

    assert str(caught.value).startswith(expected)
