"""What expressions see of a run."""

from __future__ import annotations

import pytest
from tests.policies.runs import MINUTE, T0, Training, facts

from trainwarden.policies.expressions.protocol import UnknownValueError
from trainwarden.policies.functions import FUNCTIONS_BY_NAME
from trainwarden.policies.run import RunState
from trainwarden.policies.variables import VARIABLES_BY_NAME
from trainwarden.policies.vocabulary import FUNCTIONS, VARIABLES


def test_every_name_of_the_vocabulary_is_answered() -> None:
    assert set(VARIABLES_BY_NAME) == {each.name for each in VARIABLES} - {"metrics"}


def test_every_function_of_the_vocabulary_is_answered() -> None:
    assert set(FUNCTIONS_BY_NAME) == {each.name for each in FUNCTIONS}


@pytest.mark.parametrize("name", sorted(VARIABLES_BY_NAME))
def test_a_run_that_nothing_is_known_of_gives_a_value_or_a_reason(name: str) -> None:
    scope = RunState(facts()).scope(T0 + MINUTE)

    answer: object
    try:
        answer = scope.variable(name)
    except UnknownValueError as unknown:
        answer = unknown.reason

    assert answer is not None


def test_a_metric_is_its_newest_value() -> None:
    training = Training()
    training.losses([3.0, 2.0])

    assert training.state.scope(training.at).metric("loss") == 2.0


def test_windows_are_noted_for_each_rule_though_answers_are_shared() -> None:
    training = Training()
    training.losses([3.0, 2.0, 1.0])
    scope = training.state.scope(training.at)
    scope.call("mean", ("loss", 2))
    scope.call("max", ("loss", 3))
    first = scope.windows()

    scope.look_anew()
    scope.call("mean", ("loss", 2))

    assert len(first) == 2
    assert scope.windows() == first[:1]
