"""`explain` says which policies judge a run, what their rules stand on, and why nothing happens."""

import io
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from trainwarden.controller.cluster.console.drawing import explanation
from trainwarden.controller.cluster.console.explanation import Explained, explain
from trainwarden.controller.cluster.console.matching import Candidate, JobLabels, candidates
from trainwarden.controller.cluster.console.table import Look

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
FLAT = {
    "name": "flat",
    "when": 'plateau("loss", 400) && progress.percent < 95.0 && metrics.grad_norm < 1.0',
    "for": "10m",
    "actions": [{"type": "Notify"}, {"type": "Suspend", "after": "20m"}],
}


def policy(name: str = "flat-loss", kind: str = "TrainingPolicy", ready: str = "", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name} if kind.startswith("Cluster") else {"name": name, "namespace": "team-a"}
    status = {"conditions": [{"type": "Ready", "status": "False", "message": ready}]} if ready else {}
    spec = {"mode": "Enforce", "selector": {}, "rules": [FLAT], **spec}
    return {
        "apiVersion": "trainwarden.dev/v1alpha1",
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }


def judged(
    *bodies: dict[str, Any], labels: dict[str, str] | None = None, of: dict[str, str] | None = None
) -> list[Candidate]:
    return candidates(bodies, JobLabels("team-a", "job", labels or {}, of), NOW)


def standing(verdict: str, *, mode: str = "Enforce", **fields: Any) -> dict[str, Any]:
    return {
        "policy": "team-a/flat-loss",
        "rule": "flat",
        "mode": mode,
        "severity": "warning",
        "verdict": verdict,
        **fields,
    }


def run(*rules: dict[str, Any], **status: Any) -> dict[str, Any]:
    metadata = {"name": "job", "namespace": "team-a", "creationTimestamp": "2026-05-04T10:00:00Z"}
    known = {"state": "Running", "progress": "41 %", "metrics": {"loss": "4.6"}, "time": "2026-05-04T11:59:50Z"}
    return {"metadata": metadata, "status": {**known, "rules": list(rules), **status}}


def told(item: dict[str, Any], *bodies: dict[str, Any], annotations: dict[str, str] | None = None) -> Explained:
    return explain(item, annotations or {}, judged(*bodies), (), NOW)


def test_a_policy_that_is_not_for_the_job_says_by_which_label() -> None:
    bodies = [
        policy("prod", selector={"matchLabels": {"tier": "prod", "team": "nlp"}}),
        policy("set", selector={"matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}]}),
        policy("not", selector={"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["dev"]}]}),
        policy("has", selector={"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}),
        policy("lacks", selector={"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}),
        policy("all"),
    ]

    found = {each.name: each.why_not for each in judged(*bodies, labels={"tier": "dev"})}

    assert found == {
        "team-a/prod": "it wants jobs with tier=prod; this one has tier=dev; "
        "it wants jobs with team=nlp; this one has no such label",
        "team-a/set": "it wants jobs with tier in (a, b); this one has tier=dev",
        "team-a/not": "it wants jobs with tier not in (dev); this one has tier=dev",
        "team-a/has": "it wants jobs with a label gpu; this one has no such label",
        "team-a/lacks": "it wants jobs with no label tier; this one has tier=dev",
        "team-a/all": "",
    }


def test_a_cluster_policy_says_which_namespaces_it_is_for() -> None:
    body = policy("wide", "ClusterTrainingPolicy", namespaceSelector={"matchLabels": {"env": "prod"}})

    assert [each.why_not for each in judged(body, of={"env": "dev"})] == [
        "it wants namespaces with env=prod; team-a has env=dev"
    ]
    assert [each.why_not for each in judged(body, of={"env": "prod"})] == [""]
    assert [each.why_not for each in judged(body, of=None)] == [
        "it may be: it selects namespaces by labels, and you may not read those of team-a"
    ]
    everywhere = policy("all", "ClusterTrainingPolicy")
    assert [each.why_not for each in judged(everywhere, of=None)] == [""]


def test_a_policy_that_can_not_be_used_says_why() -> None:
    refused = policy("typo", ready="spec.rules[0].when: unknown name `metric`")
    strange = policy("strange", rules=[])

    first, second = judged(refused, strange)

    assert first.why_not == "it can't be used: spec.rules[0].when: unknown name `metric`"
    assert second.why_not.startswith("it can't be used: ")
    assert "rules" in second.why_not


def test_a_policy_whose_labels_fit_but_that_does_not_judge_says_what_is_left() -> None:
    found = told(run(), policy("m", match='job.name == "x"'), policy("n"))

    assert found.not_for_it == {
        "team-a/m": 'its labels fit, but its match is not true of the run, or not known: job.name == "x"',
        "team-a/n": "its labels fit, but the engine has not judged the run by it yet",
    }


def test_a_rule_shows_its_expression_and_what_it_reads() -> None:
    rule = told(run(standing("Inactive")), policy()).policies[0].rules[0]

    assert rule.when == FLAT["when"]
    assert rule.holds_for == "10m"
    assert rule.values == {"progress.percent": "41 %", "metrics.grad_norm": "not reported", "loss": "4.6"}


def test_values_that_the_status_gives_come_first() -> None:
    item = run(standing("Inactive", values={'plateau("loss", 400)': "false"}))

    assert told(item, policy()).policies[0].rules[0].values == {'plateau("loss", 400)': "false"}


def test_a_step_that_is_not_due_says_when_it_is() -> None:
    actions = [
        {"id": "n", "type": "Notify", "state": "Done", "message": "told default"},
        {"id": "s", "type": "Suspend", "reason": ""},
    ]
    found = told(run(standing("Firing", since="2026-05-04T11:48:00Z", actions=actions)), policy())

    assert [action.due_in for action in found.policies[0].rules[0].actions] == ["", "8m"]
    assert found.why == ("Suspend of team-a/flat-loss/flat is not due; it is in 8m",)


@pytest.mark.parametrize(
    ("item", "annotations", "why"),
    [
        (run(standing("Inactive")), {}, "no rule fires: what they ask for is not so now"),
        (run(standing("Unknown", reason="no loss yet")), {}, "team-a/flat-loss/flat has no value: no loss yet"),
        (
            run(standing("Pending", since="2026-05-04T11:56:00Z")),
            {},
            "team-a/flat-loss/flat holds for 4m; it fires once it has held for 10m",
        ),
        (
            run(standing("Firing", mode="Audit")),
            {},
            "team-a/flat-loss/flat fires, but its policy is in Audit mode: it only says what would have been done",
        ),
        (run(standing("Firing")), {}, "team-a/flat-loss/flat fires, but has no actions"),
        (
            run(
                standing(
                    "Firing", actions=[{"id": "a", "type": "Stop", "state": "Refused", "message": "99 % are done"}]
                )
            ),
            {},
            "Stop of team-a/flat-loss/flat is Refused: 99 % are done",
        ),
        (run(state="Queued"), {}, "the job is Queued, and rules ask about a run that goes on"),
        (
            run(conditions=[{"type": "Reporting", "status": "False", "message": "nothing is heard of the training"}]),
            {},
            "nothing is heard of the training, so what rules ask for may be unknown",
        ),
        (run(problems=["team-a/typo: unknown name"]), {}, "a policy can't be used: team-a/typo: unknown name"),
        (
            run(),
            {"trainwarden.dev/silence-until": "2026-05-04T14:00:00Z"},
            "the job is silenced for 2h more: nothing is told or done",
        ),
        (
            run(),
            {"trainwarden.dev/opt-out": "true"},
            "its owner has opted out (trainwarden.dev/opt-out): policies only say what they would have done",
        ),
    ],
)
def test_why_nothing_happens(item: dict[str, Any], annotations: dict[str, str], why: str) -> None:
    assert why in told(item, policy(), annotations=annotations).why


def test_a_silence_that_is_over_is_no_reason() -> None:
    found = told(run(), policy(), annotations={"trainwarden.dev/silence-until": "2026-05-04T11:00:00Z"})

    assert not any("silence" in each for each in found.why)


def test_policies_that_overrule_owners_are_named() -> None:
    body = policy("strict", "ClusterTrainingPolicy", overrulesOwners=True)

    found = told(run(), body, annotations={"trainwarden.dev/silence-until": "2026-05-04T14:00:00Z"})

    assert "the job is silenced for 2h more: nothing is told or done, but strict overrules it" in found.why


def test_a_run_that_no_policy_is_for_or_nothing_is_written_of_says_so() -> None:
    assert "no policy is for this job" in told(run(), policy("p", selector={"matchLabels": {"a": "b"}})).why
    nothing = run()
    nothing["status"] = {}
    assert "trainwarden has not written anything about the run yet" in told(nothing).why[-1]


def test_the_drawing_holds_all_of_it() -> None:
    actions = [
        {"id": "d9f0", "type": "Delete", "state": "Waiting", "reason": "Approval", "message": "waits", "time": "?"}
    ]
    item = run(
        standing("Firing", since="2026-05-04T11:48:00Z", actions=actions), step=4100, totalSteps=10000, eta="1h",
        etaLow="50m", etaHigh="2h", loss="4.6", gpus=4, gpuHours=9.25, checkpoint={"step": 4000, "path": "/c/4000"},
        suspendedBy="s1",
    )  # fmt: skip
    bodies = [policy(), policy("other", selector={"matchLabels": {"tier": "prod"}})]
    found = explain(item, {}, judged(*bodies), ["you may not list events"], NOW)
    console = Console(file=io.StringIO(), width=400, color_system=None)
    console.print(explanation(found, item, NOW, Look(width=400)))

    assert isinstance(console.file, io.StringIO)
    assert [line.rstrip() for line in console.file.getvalue().splitlines()] == [
        "team-a/job  Running  █████░░░░░░░  41%",
        "step 4100 of 10000, 1h left (50m to 2h), loss 4.6, 4 GPUs, 9.25 GPU-hours",
        "checkpoint of step 4000 at /c/4000",
        "suspended by action s1",
        "as of 11:59:50Z, 10s ago",
        "",
        "team-a/flat-loss  Enforce",
        "  Firing  flat  warning  since 2026-05-04 11:48:00Z (12m)",
        f"      when  {FLAT['when']}  for 10m",
        "      now   progress.percent = 41 %, metrics.grad_norm = not reported, loss = 4.6",
        "      Delete  Waiting  waits  (approve or deny: d9f0)",
        "",
        "Policies that do not judge it",
        "  - team-a/other: it wants jobs with tier=prod; this one has no such label",
        "",
        "Why nothing happens",
        "  - Delete of team-a/flat-loss/flat is Waiting: waits",
        "",
        "Not read",
        "  - you may not list events",
    ]
