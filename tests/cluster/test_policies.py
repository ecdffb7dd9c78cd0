"""Policies as objects of a real API server: refused with place and remedy, marked, judged, withdrawn."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.cluster.world import OURS, World
from tools.cluster.processes import ClusterError, wait_until

UNKNOWN_FUNCTION = 'plateu("loss", 300)'
REFUSED = "spec.rules[1].when: at 1:1 of the expression: unknown function 'plateu'; did you mean plateau?"
BOTH_KINDS = ("TrainingPolicy", "ClusterTrainingPolicy")


def rules(when: str) -> list[dict[str, Any]]:
    return [
        {"name": "quiet", "when": "false", "actions": [{"type": "Notify"}]},
        {"name": "watched", "when": when, "actions": [{"type": "Notify"}]},
    ]


def ready(world: World, kind: str = "trainingpolicy", name: str = "watch") -> dict[str, Any]:
    """The Ready condition; empty while there is none."""
    arguments = [kind, name] if kind.startswith("cluster") else [kind, name, "-n", world.namespace]
    conditions = (world.kubectl.get(*arguments).get("status") or {}).get("conditions") or [{}]
    return dict(conditions[0])


def judged(world: World, rule: str = "watched") -> list[dict[str, Any]]:
    return [each for each in world.status().get("rules", []) if each["rule"] == rule]


@pytest.fixture
def no_webhook(world: World) -> Iterator[None]:
    """The API server without the webhook that checks policies, until the test is over."""
    kept = world.kubectl.get("validatingwebhookconfiguration", "trainwarden")
    kept["metadata"] = {"name": "trainwarden"}
    world.kubectl.run("delete", "validatingwebhookconfiguration", "trainwarden")
    wait_until(lambda: not world.cluster.product.refuses(), "the webhook is forgotten")
    try:
        yield
    finally:
        world.kubectl.apply([kept])
        wait_until(world.cluster.product.refuses, "the webhook answers again")


@pytest.mark.parametrize("kind", BOTH_KINDS)
def test_a_policy_with_a_bad_expression_is_refused_with_field_place_and_remedy(world: World, kind: str) -> None:
    name = f"bad-{world.namespace}"
    with pytest.raises(ClusterError) as refused:
        world.policy(name, kind=kind, rules=rules(UNKNOWN_FUNCTION))
    assert str(refused.value).rstrip().endswith(f"denied the request: {REFUSED}")
    assert name not in world.kubectl.run("get", kind, "-A", "-o", "name")


def test_all_that_is_wrong_with_a_policy_is_told_at_once(world: World) -> None:
    with pytest.raises(ClusterError) as refused:
        world.policy(match="job.gpu > 1", rules=rules("progress.percent +"))
    told = str(refused.value)
    assert "spec.match: at 1:1 of the expression: unknown name 'job.gpu'; did you mean job.gpus?" in told
    assert "spec.rules[1].when: at 1:19 of the expression: an end where more is needed" in told


def test_an_edit_that_breaks_a_policy_is_refused_and_the_old_one_stays(world: World) -> None:
    world.policy(rules=rules("progress.percent > 1.0"))
    with pytest.raises(ClusterError, match="unknown function 'plateu'"):
        world.policy(rules=rules(UNKNOWN_FUNCTION))
    assert world.get("trainingpolicy", "watch")["spec"]["rules"][1]["when"] == "progress.percent > 1.0"


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"mode": "Kill"}, 'spec.mode: Unsupported value: "Kill"'),
        ({"rules": []}, "spec.rules: Invalid value"),
        ({"unheard": 1}, "unknown field"),
        (
            {"rules": [{"name": "r", "when": "true", "actions": [{"type": "Notify", "checkpoint": "Skip"}]}]},
            "belong to",
        ),
        ({"rules": [{"name": "r", "when": "true", "actions": [{"type": "Suspend", "channels": ["c"]}]}]}, "Notify"),
        ({"rules": [{"name": "r", "when": "true", "for": "10 minutes"}]}, "spec.rules[0].for"),
        ({"rules": [{"name": "r", "when": "true"}, {"name": "r", "when": "true"}]}, "spec.rules[1]"),
    ],
)
def test_what_the_schema_knows_is_refused_without_us(
    world: World, no_webhook: None, spec: dict[str, Any], told: str
) -> None:
    made = {"selector": {}, "rules": rules("true"), **spec}
    body = {
        "apiVersion": OURS,
        "kind": "TrainingPolicy",
        "metadata": {"name": "bad", "namespace": world.namespace},
        "spec": made,
    }
    with pytest.raises(ClusterError) as refused:
        world.kubectl.run("create", "--validate=strict", "-f", "-", stdin=yaml.safe_dump(body))
    assert told in str(refused.value)


def test_what_slips_past_the_webhook_is_marked_and_never_acted_on(world: World, no_webhook: None) -> None:
    world.policy(rules=rules(UNKNOWN_FUNCTION))
    condition = world.wait(lambda: ready(world), "marked")
    assert (condition["status"], condition["reason"], condition["message"]) == ("False", "Invalid", REFUSED)
    assert condition["observedGeneration"] == 1

    world.policy("good", rules=[{"name": "seen", "when": "true"}])
    world.trainjob(suspend=True)
    world.wait(lambda: judged(world, "seen"), "judged by the good policy")
    assert judged(world, "watched") == []
    assert judged(world, "quiet") == [], "a policy is judged whole or not at all"


def test_a_policy_that_is_fixed_becomes_ready_and_is_judged(world: World, no_webhook: None) -> None:
    world.trainjob(suspend=True)
    world.policy(rules=rules(UNKNOWN_FUNCTION))
    world.wait(lambda: ready(world).get("status") == "False", "marked")
    world.policy(rules=rules("true"))
    condition = world.wait(lambda: ready(world).get("status") == "True" and ready(world), "ready")
    assert (condition["reason"], condition["observedGeneration"]) == ("Accepted", 2)
    assert condition["message"] == "it is judged by the engine, in Enforce mode"
    world.wait(lambda: judged(world), "judged")


def test_a_good_policy_that_is_broken_is_withdrawn(world: World, no_webhook: None) -> None:
    world.trainjob(suspend=True)
    world.policy(rules=rules("true"))
    world.wait(lambda: judged(world), "judged")
    world.policy(rules=rules(UNKNOWN_FUNCTION))
    world.wait(lambda: ready(world).get("status") == "False", "marked")
    world.wait(lambda: not judged(world), "withdrawn")


@pytest.mark.parametrize("kind", BOTH_KINDS)
def test_deleting_a_policy_withdraws_it(world: World, kind: str) -> None:
    name = f"watch-{world.namespace}"
    spec = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}}}
    world.policy(name, kind=kind, rules=rules("true"), **(spec if kind.startswith("Cluster") else {}))
    try:
        world.trainjob(suspend=True)
        world.wait(lambda: judged(world), "judged")
    finally:
        world.kubectl.run("delete", kind, name, *([] if kind.startswith("Cluster") else ["-n", world.namespace]))
    world.wait(lambda: not judged(world), "withdrawn")


def test_both_kinds_of_one_name_are_two_policies(world: World) -> None:
    name = f"watch-{world.namespace}"
    near = {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}}
    world.policy(name, rules=[{"name": "own", "when": "true"}])
    world.policy(name, kind="ClusterTrainingPolicy", namespaceSelector=near, rules=[{"name": "wide", "when": "true"}])
    try:
        world.trainjob(suspend=True)
        world.wait(lambda: judged(world, "own") and judged(world, "wide"), "judged by both")
        world.kubectl.run("delete", "trainingpolicy", name, "-n", world.namespace)
        world.wait(lambda: not judged(world, "own"), "withdrawn")
        assert judged(world, "wide")
    finally:
        world.kubectl.run("delete", "clustertrainingpolicy", name)


def test_explain_and_columns_read_well(world: World) -> None:
    explained = world.kubectl.run("explain", "trainingpolicy.spec.rules.actions.checkpoint")
    assert [line.strip() for line in explained.split("ENUM:")[1].splitlines()[1:4]] == [
        "Required",
        "BestEffort",
        "Skip",
    ]
    assert "Required acts only on a proven checkpoint" in " ".join(explained.split())
    for kind in ("trainingpolicy", "ctp", "nc", "cnc", "tr"):
        top = world.kubectl.run("explain", kind)
        assert "trainwarden.dev" in top
        assert "<empty>" not in world.kubectl.run("explain", f"{kind}.spec"), kind

    world.policy(mode="Audit", rules=rules("true"))
    world.wait(lambda: ready(world).get("status") == "True", "ready")
    table = [re.split(r" {2,}", line.strip()) for line in _table(world, "tp")]
    assert table[0] == ["NAME", "MODE", "RULES", "READY", "AGE"]
    assert table[1][:4] == ["watch", "Audit", "2", "True"]
    assert "trainingpolicy.trainwarden.dev/watch" in world.kubectl.run(
        "get", "trainwarden", "-n", world.namespace, "-o", "name"
    )


def _table(world: World, kind: str) -> list[str]:
    return world.kubectl.run("get", kind, "-n", world.namespace).splitlines()


def test_a_training_run_shows_its_columns(world: World) -> None:
    world.trainjob(suspend=True, gpus=2)
    world.wait(lambda: world.status().get("state") == "Suspended", "seen")
    header, row = _table(world, "tr")
    assert header.split() == ["NAME", "PROGRESS", "ETA", "LOSS", "STATE", "GPUS", "AGE"]
    assert [row[header.index(name) :].split()[0] for name in ("NAME", "STATE", "GPUS")] == ["job", "Suspended", "2"]


# ---------------------------------------------------------------------- who answers


ANSWERED_BY = "trainwarden.dev/answered-by"


def annotate(world: World, *annotations: str, user: str) -> dict[str, Any]:
    """Annotate the TrainingRun as somebody; gives its annotations as the API server stored them."""
    told = world.kubectl.run(
        *("annotate", "trainingrun", "job", "-n", world.namespace, "--overwrite", "-o", "json"),
        *(f"--as={user}", "--as-group=system:masters"),
        *annotations,
    )
    return dict(json.loads(told)["metadata"].get("annotations") or {})


def annotations_of(world: World) -> dict[str, Any]:
    return dict(world.get("trainingrun")["metadata"].get("annotations") or {})


@pytest.fixture
def run(world: World) -> World:
    """The world with a TrainingRun in it."""
    world.trainjob(suspend=True)
    world.wait(lambda: world.status().get("state"), "seen")
    return world


@pytest.mark.parametrize("answer", ["trainwarden.dev/approve", "trainwarden.dev/deny", "trainwarden.dev/resume"])
def test_an_answer_carries_its_author_also_after_it_was_taken(run: World, answer: str) -> None:
    stored = annotate(run, f"{answer}=0123", user="jane")
    assert stored[answer] == "0123"
    assert stored[ANSWERED_BY] == "jane"

    run.wait(lambda: answer not in annotations_of(run), "taken by the operator")
    assert annotations_of(run)[ANSWERED_BY] == "jane"


def test_a_forged_author_is_replaced(run: World) -> None:
    stored = annotate(run, "trainwarden.dev/deny=0123", f"{ANSWERED_BY}=jane", user="mallory")
    assert stored[ANSWERED_BY] == "mallory"

    run.wait(lambda: "trainwarden.dev/deny" not in annotations_of(run), "taken by the operator")
    assert annotate(run, f"{ANSWERED_BY}=jane", user="paul")[ANSWERED_BY] == "mallory"
    assert annotations_of(run)[ANSWERED_BY] == "mallory"


def test_an_author_without_an_answer_is_not_taken(run: World) -> None:
    assert ANSWERED_BY not in annotate(run, f"{ANSWERED_BY}=jane", user="mallory")
