"""What people say about actions: approvals and denials, and an owner's wish to be left alone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from tests.policies.judging import Walk, moment, policy, told

from trainwarden.policies.compiling import CompiledPolicy, compile_policy
from trainwarden.policies.decision import ActionState
from trainwarden.policies.expressions.engines import engine
from trainwarden.policies.loading import policy_from_body
from trainwarden.policies.wishes import OPT_OUT, SILENCE

HIGH = "when: metrics.loss > 2.0"
ASKS = f"{HIGH}\nactions: [{{type: Notify}}, {{type: Delete, approval: {{expiresAfter: 4h}}}}]"
SUSPENDS = f"{HIGH}\nactions: [{{type: Notify}}, {{type: Suspend}}]"


def step_id(walk: Walk, type_: str) -> str:
    (found,) = {d.action.id for d in walk.decisions if d.action is not None and d.action.type == type_}
    return found


def annotated(walk: Walk, **annotations: str) -> Walk:
    facts = walk.training.state.facts
    names = {"opt_out": OPT_OUT, "silence": SILENCE}
    wished = {names[key]: value for key, value in annotations.items()}
    walk.training.state.learn(msgspec.structs.replace(facts, annotations=wished))
    return walk


def cluster_policy(**spec: Any) -> CompiledPolicy:
    body = {
        "apiVersion": "trainwarden.dev/v1alpha1",
        "kind": "ClusterTrainingPolicy",
        "metadata": {"name": "guard", "uid": "uid-guard", "generation": 1},
        "spec": {
            "mode": "Enforce",
            "selector": {},
            "rules": [{"name": "bad", "when": "metrics.loss > 2.0", "actions": [{"type": "Suspend"}]}],
            **spec,
        },
    }
    return compile_policy(policy_from_body(body), engine())


def test_an_approved_delete_is_requested_and_says_who_approved() -> None:
    walk = Walk([policy(ASKS)])
    walk.report(3, 0)

    walk.result(step_id(walk, "Delete"), ActionState.WAITING, 60, reason="Approved", by="alice")
    judged = walk.look(61)

    assert told(judged) == ["Delete Requested Due"]
    assert judged.decisions[0].message == "Delete was requested, approved by alice"
    assert [request.action.type for request in judged.requests] == ["Delete"]


def test_a_denied_delete_is_refused_at_once_and_says_who_denied() -> None:
    walk = Walk([policy(ASKS)])
    walk.report(3, 0)

    walk.result(step_id(walk, "Delete"), ActionState.WAITING, 60, reason="Denied", by="bob")
    judged = walk.look(61)

    assert told(judged) == ["Delete Refused Denied"]
    assert judged.decisions[0].message == "Delete was denied by bob"
    assert walk.look(5 * 3600).requests == []


def test_an_answer_that_comes_too_late_changes_nothing() -> None:
    walk = Walk([policy(ASKS)])
    walk.report(3, 0)
    for at in range(600, 4 * 3600 + 601, 600):
        walk.report(3, at)

    walk.result(step_id(walk, "Delete"), ActionState.WAITING, 15100, reason="Approved", by="alice")

    assert told(walk.look(15101)) == []


def test_a_job_whose_owner_opted_out_is_only_spoken_of() -> None:
    walk = annotated(Walk([policy(SUSPENDS)]), opt_out="true")

    assert "Suspend WouldAct OptedOut" in told(walk.report(3, 0))
    assert not any(judgement.requests for judgement in walk.all)


@pytest.mark.parametrize(("overrules", "expected"), [(False, "WouldAct OptedOut"), (True, "Requested Due")])
def test_a_cluster_policy_may_overrule_an_opt_out(overrules: bool, expected: str) -> None:
    walk = annotated(Walk([cluster_policy(overrulesOwners=overrules)]), opt_out="true")

    assert f"Suspend {expected}" in told(walk.report(3, 0))


def test_a_silenced_job_is_neither_told_of_nor_stopped_until_the_silence_ends() -> None:
    until = (moment(0) + timedelta(hours=1)).isoformat()
    walk = annotated(Walk([policy(SUSPENDS)]), silence=until)

    first = walk.report(3, 0)
    assert told(first)[1:] == ["Suspend Waiting Silenced", "Notify Waiting Silenced"]
    assert first.notices == []
    for at in range(60, 3600, 300):
        assert told(walk.report(3, at)) == []

    assert "Suspend Requested Due" in told(walk.report(3, 3601))


def test_a_silence_that_is_no_moment_is_none() -> None:
    walk = annotated(Walk([policy(SUSPENDS)]), silence="for ever")

    assert "Suspend Requested Due" in told(walk.report(3, 0))
