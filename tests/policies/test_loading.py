"""YAML to policies: what is valid loads, and everything else is told with its place and remedy."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.policies.runs import facts

from trainwarden.policies.compiling import compile_loaded, compile_policy
from trainwarden.policies.decision import ActionType, CheckpointMode, Mode, Severity
from trainwarden.policies.durations import duration_text, parse_duration
from trainwarden.policies.expressions.engines import engine
from trainwarden.policies.loading import MOST_BYTES, load_policies, policy_from_body
from trainwarden.policies.models import ClusterTrainingPolicy, OnUnknown, TrainingPolicy
from trainwarden.policies.problems import PolicyInvalidError
from trainwarden.policies.selecting import selects

FLAT_LOSS = """\
apiVersion: trainwarden.dev/v1alpha1
kind: TrainingPolicy
metadata: {name: flat-loss, namespace: team-a}
spec:
  mode: Enforce                    # Audit (default) | Enforce
  selector: {matchLabels: {tier: dev}}   # of TrainJobs; {} is all of the namespace
  match: job.gpus >= 4
  variables:
  - {name: watched, expression: '"eval/loss" in metrics ? "eval/loss" : "loss"'}
  rules:
  - name: plateau
    when: plateau(variables.watched, duration("2h")) && progress.percent < 95.0
    for: 10m
    keepFiringFor: 5m
    onUnknown: Hold
    severity: warning
    message: '"no progress in " + variables.watched + " for " + string(progress.sinceBest)'
    actions:
    - {type: Notify, channels: [team-a-slack]}
    - {type: Checkpoint, after: 10m}
    - {type: Suspend, after: 30m, checkpoint: Required}
"""
SHORT = """\
apiVersion: trainwarden.dev/v1alpha1
kind: TrainingPolicy
metadata: {name: a}
spec:
  selector: {}
  rules:
  - name: bad
    when: metrics.loss > 2.0
"""


def problems(text: str) -> list[str]:
    loaded = load_policies(text, source="p.yaml")
    _, found = compile_loaded(loaded, engine(), source="p.yaml")
    return [str(problem) for problem in found]


def test_the_policy_of_the_design_loads_and_compiles() -> None:
    (policy,) = load_policies(FLAT_LOSS, source="p.yaml").policies
    (rule,) = policy.spec.rules

    assert isinstance(policy, TrainingPolicy)
    assert (policy.metadata.name, policy.metadata.namespace, policy.spec.mode) == ("flat-loss", "team-a", Mode.ENFORCE)
    assert (rule.for_, rule.keep_firing_for) == (timedelta(minutes=10), timedelta(minutes=5))
    assert (rule.on_unknown, rule.severity) == (OnUnknown.HOLD, Severity.WARNING)
    assert [(a.type, a.after) for a in rule.actions] == [
        (ActionType.NOTIFY, timedelta()),
        (ActionType.CHECKPOINT, timedelta(minutes=10)),
        (ActionType.SUSPEND, timedelta(minutes=30)),
    ]
    assert rule.actions[0].channels == ("team-a-slack",)
    assert compile_policy(policy, engine()).rules[0].variables == {"watched"}


def test_what_is_left_out_has_a_safe_default() -> None:
    (policy,) = load_policies(SHORT + "    actions: [{type: Suspend}]\n", source="p.yaml").policies

    assert policy.spec.mode is Mode.AUDIT
    assert policy.spec.rules[0].actions[0].checkpoint is CheckpointMode.REQUIRED
    assert policy.spec.protections.above_percent == 97


def test_a_file_may_hold_several_policies_of_both_kinds() -> None:
    cluster = SHORT.replace("TrainingPolicy", "ClusterTrainingPolicy").replace(
        "selector: {}", "selector: {}\n  namespaceSelector: {}"
    )

    loaded = load_policies(f"---\n{SHORT}---\n---\n{cluster}", source="p.yaml")

    assert [type(policy) for policy in loaded.policies] == [TrainingPolicy, ClusterTrainingPolicy]


def test_metadata_of_kubernetes_and_a_status_are_taken() -> None:
    body = {
        "apiVersion": "trainwarden.dev/v1alpha1",
        "kind": "TrainingPolicy",
        "metadata": {
            "name": "a", "namespace": "b", "uid": "u", "generation": 7, "resourceVersion": "9",
            "creationTimestamp": "2026-12-01T00:00:00Z", "managedFields": [{"manager": "kubectl"}],
        },
        "spec": {"selector": {}, "rules": [{"name": "bad", "when": "true"}]},
        "status": {"conditions": []},
    }  # fmt: skip

    assert policy_from_body(body).metadata.generation == 7


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ('when: "eval/loss" in metrics', """when: '"eval/loss" in metrics'"""),
        ("when: 'loss' in metrics", """when: "'loss' in metrics\""""),
        ("when: \"a\" in metrics && 'b' in metrics", """when: '"a" in metrics && \'\'b\'\' in metrics'"""),
        ("when: metrics.loss > (job.gpus > 1 ? 4.0 : 2.0)", "when: 'metrics.loss > (job.gpus > 1 ? 4.0 : 2.0)'"),
        ('when: !nonFinite("loss")', """when: '!nonFinite("loss")'"""),
        ("when: !job.paused", "when: '!job.paused'"),
        ('when: "a" == "b"\n    message: the loss: high', """when: '"a" == "b"'"""),
        ("when: 'true'\n    message: the loss: high", "message: 'the loss: high'"),
        ("when: 'true'\n    message: `high`", "message: '`high`'"),
        ("when: 'true'\n  variables: [{name: a, expression: !b}]", "expression: '!b'"),
        ("when: 'true'\n  match: \"dev\" == job.queue", """match: '"dev" == job.queue'"""),
    ],
)
def test_an_expression_that_yaml_does_not_take_as_text_is_shown_in_quotes(line: str, remedy: str) -> None:
    (problem,) = problems(SHORT.replace("when: metrics.loss > 2.0", line))

    assert problem.endswith(f"; put the whole expression in quotes: {remedy}")


@pytest.mark.parametrize("message", ["loss is too high", "high", "Loss!"])
def test_a_message_of_plain_text_is_shown_in_quotes_within_quotes(message: str) -> None:
    (problem,) = problems(f"{SHORT}    message: {message}\n")

    assert problem.endswith(
        f"""a message is CEL, so plain text stands in quotes within quotes: message: '"{message}"'"""
    )


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("97%", "'97%'; write the number alone: 97"),
        ("'97'", "'97'; write the number alone: 97"),
        ("many", "'many'; a number is right, such as 97"),
        ("197", "197; at most 100 is right"),
        ("-1", "-1; at least 0 is right"),
        ("[97]", "list; a number is right, such as 97"),
    ],
)
def test_a_number_that_is_none_is_told_in_our_words(given: str, told: str) -> None:
    found = problems(f"{SHORT}  protections: {{abovePercent: {given}}}\n")

    assert found in ([f"p.yaml:9:31: spec.protections.abovePercent: {told}"], [])
    assert found or given == "'97'"


def test_one_mistake_in_a_rule_is_one_problem() -> None:
    assert len(problems(SHORT.replace("when: metrics.loss > 2.0", "when: true"))) == 1


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("when:", "wen:", ":8:5: spec.rules[0].wen: an unknown key; did you mean when?"),
        ("selector:", "selectors:", ":5:3: spec.selectors: an unknown key; did you mean selector?"),
        ("> 2.0", "> two", ":8:11: spec.rules[0].when: at 1:16 of the expression: "),
        ("loss > 2.0", "loss > '2'", ":8:11: spec.rules[0].when: at 1:1 of the expression: double > string"),
        ("metrics.loss > 2.0", "metrics.loss", ":8:11: spec.rules[0].when: at 1:"),
        (
            "name: bad",
            "name: bad\n    for: 10",
            ":8:10: spec.rules[0].for: the number 10 has no unit; write 10s, 10m or 10h",
        ),
        (
            "name: bad",
            "name: bad\n    for: -1m",
            ":8:10: spec.rules[0].for: '-1m' is not a duration; write one such as",
        ),
        ("name: bad", "name: on", ":7:11: spec.rules[0].name: True of type bool; put it in quotes"),
        (
            "name: bad",
            "name: bad\n    onUnknown: false",
            ':8:16: spec.rules[0].onUnknown: the bool False; write "False" in quotes',
        ),
        ("name: bad", "name: bad\n    severity: warn", ":8:15: spec.rules[0].severity: 'warn'; did you mean warning?"),
        ("name: bad", "name: bad\n    name: good", ":8:5: spec.rules[0].name: the key is there twice; keep one"),
        ("name: a", "name: A_b", ":3:18: metadata.name: the name 'A_b'; use lower-case letters, "),
        ("kind: Tr", "kind: tr", ":2:7: kind: the kind 'trainingPolicy'; did you mean TrainingPolicy?"),
        ("v1alpha1", "v1", ":1:13: apiVersion: 'trainwarden.dev/v1'; did you mean trainwarden.dev/v1alpha1?"),
        ("  selector: {}\n", "", ":5:3: spec.selector: it is missing; add it"),
        ("selector: {}", "selector: {}\n  namespaceSelector: {}", ":6:3: spec.namespaceSelector: an unknown key"),
        (
            "selector: {}",
            "selector: {matchExpressions: [{key: a, operator: In}]}",
            ":5:33: spec.selector.matchExpressions[0]: In with 0 values; it needs some",
        ),
        ("selector: {}", "selector:", ":5:12: spec.selector: null; a mapping of names to values is right"),
        ("  rules:", "\trules:", ":6:1: not YAML"),
        ("kind: Tr", "<<: {}\nkind: Tr", ":2:1: a merge key <<; Kubernetes does not know it: write the fields out"),
    ],
)
def test_a_mistake_is_told_with_its_place_and_remedy(before: str, after: str, problem: str) -> None:
    assert before in SHORT

    assert f"p.yaml{problem}" in "\n".join(problems(SHORT.replace(before, after, 1)))


@pytest.mark.parametrize(
    ("actions", "problem"),
    [
        ("[{type: Suspend, after: 2m}, {type: Notify, after: 1m}]", "Notify stands behind Suspend but waits less"),
        ("[{type: Suspend, channels: [a]}]", "channels at a Suspend; they belong to Notify"),
        ("[{type: Notify, checkpoint: Skip}]", "they belong to Suspend, Stop and Delete"),
        ("[{type: Suspend, approval: {}}]", "approval at a Suspend; it belongs to Stop and Delete"),
        ("[{type: Stop, includeOwned: true}]", "includeOwned at a Stop; it belongs to Delete"),
        ("[{type: Suspned}]", "'Suspned'; did you mean Suspend?"),
        ("{type: Notify}", "mapping; a list is right"),
    ],
)
def test_a_ladder_that_makes_no_sense_is_refused(actions: str, problem: str) -> None:
    (told,) = problems(f"{SHORT}    actions: {actions}\n")

    assert told.startswith("p.yaml:9:")
    assert problem in told


def test_a_name_that_is_there_twice_is_refused() -> None:
    (told,) = problems(SHORT + "  - {name: bad, when: 'true'}\n")

    assert told.endswith("spec.rules: the name 'bad' is there twice; give each its own")


def test_all_problems_are_told_at_once() -> None:
    text = FLAT_LOSS.replace("plateau(v", "plataeu(v").replace("string(", "strin(").replace("job.gpus", "job.gpu")

    assert [re.split(r": (?=at)", told)[0] for told in problems(text)] == [
        "p.yaml:7:10: spec.match",
        "p.yaml:12:11: spec.rules[0].when",
        "p.yaml:17:14: spec.rules[0].message",
    ]


def test_a_good_policy_beside_a_bad_one_is_still_read() -> None:
    loaded = load_policies(f"{SHORT}---\n{SHORT.replace('when', 'wen')}", source="p.yaml")

    assert (len(loaded.policies), bool(loaded.problems)) == (1, True)


def test_a_variable_may_read_those_before_it_and_no_others() -> None:
    variables = "  variables: [{name: a, expression: '1.0'}, {name: b, expression: 'variables.a + 1.0'}]\n"
    swapped = "  variables: [{name: b, expression: 'variables.a + 1.0'}, {name: a, expression: '1.0'}]\n"

    assert problems(SHORT + variables) == []
    assert "spec.variables[0].expression" in problems(SHORT + swapped)[0]


@pytest.mark.parametrize(
    "text",
    [
        "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)),
        "[" * 5000,
        "- " * 3000 + "x",
        "a: &a [*a]",
        "kind: !!python/object/apply:os.system [x]",
        "x" * (MOST_BYTES + 1),
        "\x00",
        "kind: [TrainingPolicy]",
        "? {a: b}\n: c",
        "2026-99-99",
        "!!int x",
    ],
    ids=["aliases", "brackets", "dashes", "cycle", "object", "long", "nul", "list kind", "key", "date", "tag"],
)  # fmt: skip
def test_hostile_text_is_a_problem_and_nothing_worse(text: str) -> None:
    loaded = load_policies(text, source="p.yaml")

    assert loaded.policies == ()
    assert loaded.problems


@given(text=st.text(max_size=200))
def test_no_text_makes_the_loader_fail(text: str) -> None:
    load_policies(text, source="p.yaml")
    load_policies(SHORT + text, source="p.yaml")


def test_a_bad_object_from_the_api_server_is_one_error_with_all_problems() -> None:
    with pytest.raises(PolicyInvalidError) as raised:
        policy_from_body(
            {"apiVersion": "trainwarden.dev/v1alpha1", "kind": "TrainingPolicy", "metadata": {"name": "a"}}
        )

    assert [problem.field for problem in raised.value.problems] == ["spec"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0s", 0), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("2d", 172_800), ("1d1h1m1s", 90_061)],
)
def test_durations_are_read(text: str, seconds: int) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text",
    ["", "10", "1.5h", "-1m", "1m1h", "1 m", "1w", "m", "１m", "10m\n", "3651d", "99999999h", None, True, 5, 1.5],
)
def test_what_is_not_a_duration_is_refused_with_a_remedy(text: object) -> None:
    with pytest.raises(ValueError, match="; write "):
        parse_duration(text)


@given(seconds=st.integers(0, 3650 * 86_400))
def test_a_duration_reads_back(seconds: int) -> None:
    assert parse_duration(duration_text(timedelta(seconds=seconds))) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ("{}", True),
        ("{matchLabels: {tier: dev}}", True),
        ("{matchLabels: {tier: dev, team: a}}", False),
        ("{matchExpressions: [{key: tier, operator: In, values: [dev, test]}]}", True),
        ("{matchExpressions: [{key: team, operator: In, values: [a]}]}", False),
        ("{matchExpressions: [{key: tier, operator: NotIn, values: [dev]}]}", False),
        ("{matchExpressions: [{key: team, operator: NotIn, values: [a]}]}", True),
        ("{matchExpressions: [{key: tier, operator: Exists}]}", True),
        ("{matchExpressions: [{key: team, operator: Exists}]}", False),
        ("{matchExpressions: [{key: team, operator: DoesNotExist}]}", True),
        ("{matchLabels: {tier: dev}, matchExpressions: [{key: tier, operator: DoesNotExist}]}", False),
    ],
)
def test_a_selector_picks_as_in_kubernetes(selector: str, chosen: bool) -> None:
    (policy,) = load_policies(SHORT.replace("selector: {}", f"selector: {selector}"), source="").policies

    assert selects(policy, facts(labels={"tier": "dev"})) is chosen


def test_a_policy_is_for_its_own_namespace_and_one_of_the_cluster_for_those_it_names() -> None:
    text = SHORT.replace("{name: a}", "{name: a, namespace: team-b}")
    cluster = SHORT.replace("kind: T", "kind: ClusterT").replace("{}", "{}\n  namespaceSelector: {matchLabels: {x: y}}")
    own, wide = load_policies(f"{text}---\n{cluster}", source="").policies

    assert [selects(own, facts(namespace=name)) for name in ("team-a", "team-b")] == [False, True]
    assert [selects(wide, facts(namespace_labels=labels)) for labels in ({}, {"x": "y"})] == [False, True]


def test_a_character_that_json_writes_as_two_escapes_is_one() -> None:
    message = r'''"'\ud83d\ude00 ' + 'high'"'''
    text = SHORT.replace("rules:", "variables: [{name: v, expression: " + message + "}]\n  rules:", 1)

    (policy,) = load_policies(text, source="").policies

    assert policy.spec.variables[0].expression == "'\N{GRINNING FACE} ' + 'high'"


def test_half_a_character_is_refused_with_its_place() -> None:
    text = SHORT.replace("{name: a}", '{name: "\\ud83d"}')

    (problem,) = load_policies(text, source="f.yaml").problems

    assert "half a surrogate pair, which is no character; write the character itself" in str(problem)
    assert problem.line > 0
