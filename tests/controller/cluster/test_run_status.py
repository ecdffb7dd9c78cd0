"""What a TrainingRun says of a run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from tests.policies.judging import Walk, moment, policy
from tests.policies.runs import T0

from trainwarden.controller.cluster.run_status import status_of_run
from trainwarden.controller.status import RunStatus, status_of
from trainwarden.policies.decision import ActionState
from trainwarden.policies.facts import JobPhase
from trainwarden.policies.training_run import TrainingRunStatus

RULE = "when: metrics.loss > 2.0\nactions: [{type: Suspend}]"


def walked(*losses: float, **spec: Any) -> Walk:
    walk = Walk([policy(RULE, **spec)])
    for at, loss in enumerate(losses):
        walk.report(loss, 10.0 * at)
    return walk


def shown(walk: Walk, at: float, old: TrainingRunStatus | None = None, **changes: Any) -> TrainingRunStatus:
    run = walk.training.state
    state: RunStatus = status_of(run, walk.memory, walk.policies, moment(at), 0, ())
    return status_of_run(msgspec.structs.replace(run.facts, **changes), state, old, moment(at))


def test_a_run_of_which_the_engine_has_said_nothing_is_shown_with_what_the_cluster_knows() -> None:
    facts = msgspec.structs.replace(Walk([]).training.state.facts, phase=JobPhase.QUEUED, gpus=8)

    status = status_of_run(facts, None, None, T0)

    assert (status.state, status.gpus, status.step, status.progress, status.source) == ("Queued", 8, None, "", "")
    assert {condition.type: condition.status for condition in status.conditions} == {
        "Reporting": "False",
        "PolicyFiring": "False",
        "Acting": "False",
    }


def test_a_state_of_an_earlier_job_of_the_same_name_is_not_shown() -> None:
    assert shown(walked(3.0), 10, uid="another").step is None


def test_audit_says_what_would_have_been_done_and_what_it_would_have_saved() -> None:
    walk = walked(3.0, mode="Audit")

    status = shown(walk, 7200, gpus=4)

    (rule,) = status.rules
    (action,) = rule.actions
    assert (rule.verdict, rule.mode, action.state) == ("Firing", "Audit", ActionState.WOULD_ACT)
    assert action.message == "Suspend would have been done; the mode is Audit"
    assert status.saved_gpu_hours == pytest.approx(8.0, abs=0.1)


def test_nothing_is_saved_once_the_job_has_ended() -> None:
    assert shown(walked(3.0, mode="Audit"), 7200, gpus=4, phase=JobPhase.COMPLETE).saved_gpu_hours == 0.0


def test_a_condition_keeps_the_time_of_its_last_change() -> None:
    walk = walked(1.0)
    first = shown(walk, 0)
    walk.report(3.0, 60)
    second = shown(walk, 60, first)
    walk.report(3.0, 120)
    third = shown(walk, 120, second)

    def firing(status: TrainingRunStatus) -> tuple[str, float]:
        (found,) = [each for each in status.conditions if each.type == "PolicyFiring"]
        return found.status, (found.last_transition_time - T0) / timedelta(seconds=1)

    assert [firing(status) for status in (first, second, third)] == [("False", 0.0), ("True", 60.0), ("True", 60.0)]


def test_a_rule_shows_what_its_newest_look_has_read() -> None:
    walk = Walk([policy('when: metrics.loss > 2.0 && mean("loss", 5) > 2.0')])
    walk.report(3.0, 0)
    assert shown(walk, 0).rules[0].values == {"metrics.loss": "3", 'mean("loss", 5)': "3"}

    walk.report(1.5, 10)
    assert shown(walk, 10).rules[0].values == {"metrics.loss": "1.5", 'mean("loss", 5)': "2.25"}


def test_what_a_status_holds_is_what_the_crd_takes() -> None:
    status = shown(walked(float("nan"), 3.0), 20)

    dumped = status.model_dump(mode="json", by_alias=True)
    assert TrainingRunStatus.model_validate(dumped, strict=False) == status
    assert dumped["loss"] == "3"
