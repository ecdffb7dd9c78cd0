"""Values for parameters: what is taken, and that one fault is told once."""

import pytest

from trainwarden.policies.compiling import CompiledPolicy, compile_policy
from trainwarden.policies.expressions.engines import engine
from trainwarden.policies.loading import load_policies
from trainwarden.policies.presets import preset
from trainwarden.policies.tuning.parameters import ParameterError, check_value, parameters_read

WAYS = (
    "plateau(string); it is called as plateau(metric string, window duration), or in 5 other ways, which "
    "docs/expressions.md tells"
)


def balanced() -> CompiledPolicy:
    (policy,) = load_policies(preset("balanced"), source="balanced").policies
    return compile_policy(policy, engine())


@pytest.mark.parametrize(
    ("name", "text", "cel"),
    [
        ("metric", "eval/wer", '"eval/wer"'),
        ("metric", "loss", '"loss"'),
        ("metric", "val-loss", '"val-loss"'),
        ("metric", '"eval/wer"', '"eval/wer"'),
        ("metric", "variables.training", "variables.training"),
        ("tolerance", "0.01", "0.01"),
        ("tolerance", "0", "0.0"),
        ("window", "500", "500"),
        ("share", "variables.metric == 'a' ? 0.3 : 0.4", "variables.metric == 'a' ? 0.3 : 0.4"),
    ],
)
def test_what_is_taken(name: str, text: str, cel: str) -> None:
    assert check_value(balanced(), engine(), name, text) == cel


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("metric", "metrics.loss", "it is a double; the name alone is right: metric=loss"),
        ("metric", "metrics.eval/wer", "at 1:14: unknown name 'wer'; the name alone is right: metric=eval/wer"),
        ("metric", "0.5", "it is a double; a text is right, such as metric=eval/loss"),
        ("metric", "variables.trainin", "unknown variable 'variables.trainin'; did you mean variables.training?"),
        ("tolerance", "foo", "unknown name 'foo'; a number is right, such as tolerance=0.0055"),
        ("tolerance", '"a"', "it is a string; a number is right, such as tolerance=0.0055"),
        ("tolerance", "1%", "at 1:3: an end where more is needed; write the number without %"),
        ("window", "2h", "at 1:2: 'h' where it can't stand; write a duration as duration(\"2h\")"),
        ("window", "foo", "unknown name 'foo'; a duration is right, such as window='duration(\"2h\")'"),
        (
            "tolerance",
            'plateau("x")',
            WAYS,
        ),
    ],
)
def test_what_does_not_fit_is_one_fault(name: str, text: str, told: str) -> None:
    with pytest.raises(ParameterError) as error:
        check_value(balanced(), engine(), name, text)
    assert str(error.value) == told


def test_what_rules_read_is_told_through_other_parameters() -> None:
    policy = balanced()
    rules = {rule.spec.name: rule for rule in policy.rules}

    assert parameters_read(policy, [rules["plateau"]]) == {"metric", "training", "share", "tolerance"}
    assert parameters_read(policy, [rules["restartStorm"]]) == frozenset()
