"""Presets are right, change only by their parameters, and judge the metric that a run has."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Literal

import pytest
from tests.policies.runs import MINUTE, SECOND, T0, Training, facts

from trainwarden.policies.compiling import CompiledPolicy, compile_loaded
from trainwarden.policies.expressions.engines import engine
from trainwarden.policies.expressions.protocol import CelValue, UnknownValueError
from trainwarden.policies.loading import load_policies
from trainwarden.policies.presets import PRESETS, PresetError, parameters, preset
from trainwarden.policies.run import RunState

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
        ("balanced", ("train/ctc_loss", "validation/ctc_loss"), "validation/ctc_loss"),
        ("balanced", ("lm loss", "grad norm"), "lm loss"),  # Megatron-LM
        ("eager", ("lm loss", "lm loss validation"), "lm loss validation"),
        ("fine-tuning", ("train_loss_step", "train_loss_epoch", "val_loss"), "val_loss"),  # Lightning
        ("conservative", ("Loss/train", "Loss/val"), "Loss/val"),  # TensorBoard's tutorials
        ("balanced", ("train/total_loss",), "train/total_loss"),
        ("vision", ("losses/train", "losses/val"), "losses/val"),
    ],
)
@pytest.mark.parametrize("which", ENGINES)
def test_it_judges_the_metric_that_the_run_has(
    name: str, reported: tuple[str, ...], expected: str, which: Literal["cpp", "python"]
) -> None:
    training = Training(every=SECOND)
    for step in range(0, 1000, 10):
        gone = math.exp(-step / 30)
        training.report(step, {each: 1 + gone if "loss" in each.lower() else 0.9 - gone for each in reported})

    assert value(compiled(preset(name), which), training) == (True, expected)


@pytest.mark.parametrize("which", ENGINES)
@pytest.mark.parametrize("name", PRESETS)
def test_each_rule_tells_people_in_a_sentence(name: str, which: Literal["cpp", "python"]) -> None:
    """Whoever is woken by it sees no expression of a policy's language."""
    training = Training(RunState(facts(deadline=T0, restarts=4)), every=MINUTE)
    for step in range(1, 60):
        training.report(step, {"loss": 1.0 + 1 / step, "reward": step / 60, "kl": 0.1, "reward_std": 0.1})
    scope, known = training.state.scope(training.at), dict[str, CelValue | UnknownValueError]()
    policy = compiled(preset(name), which)
    for variable, expression in policy.variables:
        outcome = expression.evaluate(scope, known)
        known[variable] = UnknownValueError(outcome.unknown) if outcome.value is None else outcome.value

    for rule in policy.rules:
        assert rule.message is not None, rule.spec.name
        outcome = rule.message.evaluate(scope, known)
        assert isinstance(outcome.value, str), (rule.spec.name, outcome.unknown)
        assert "variables." not in outcome.value
        assert not outcome.value.endswith(" ")


def test_general_presets_know_the_same_names_of_losses() -> None:
    names = [parameters(each)["training"] for each in PRESETS]

    assert len(set(names)) == 1


@pytest.mark.parametrize("name", PRESETS)
def test_a_loss_that_is_not_a_number_now_and_then_is_told(name: str) -> None:
    training = Training(every=SECOND)
    for step in range(60):
        training.report(step, {"loss": 1.0} if step % 2 else {}, nonfinite={} if step % 2 else {"loss": "NaN"})
    training.report(60, nonfinite={"loss": "NaN"})

    (rule,) = (each for each in compiled(preset(name)).rules if each.spec.name == "nonFinite")
    assert rule.spec.for_ == timedelta(0)
    assert value(compiled(preset(name)), training, "nonFinite")[0] is True


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
