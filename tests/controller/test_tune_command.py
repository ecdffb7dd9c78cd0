"""`trainwarden policy tune`, as a user calls it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from trainwarden.controller.cli import main

POLICY = """# ours
apiVersion: trainwarden.dev/v1alpha1
kind: TrainingPolicy
metadata: {name: flat, namespace: team-a}
spec:
  mode: Enforce
  selector: {matchLabels: {tier: dev}}
  variables:
  - {name: patience, expression: "50"}  # steps
  rules:
  - name: plateau
    when: stepsSinceBest("loss") >= variables.patience
    actions: [{type: Suspend}]
"""


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "flat.yaml"
    path.write_text(POLICY)
    return path


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """Ten groups of two runs: one that stays flat after step 100, and one that is flat for 80 steps only."""
    falling = [5.0 - step / 25 for step in range(101)]
    lines = []
    for group in range(10):
        for name, values in (
            ("flat", falling + [2.0] * 300),
            ("rests", falling + [2.0] * 80 + [1.0 - step / 100 for step in range(50)]),
        ):
            series = {"loss": [[step, value] for step, value in enumerate(values)]}
            elapsed = [[step, 10.0 * step] for step in range(len(values))]
            run = {"id": f"w{group}/{name}", "source": "x", "series": series, "elapsed": elapsed, "total_steps": None}
            lines.append(json.dumps(run))
    path = tmp_path / "runs.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def call(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["policy", "tune", "--quiet", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def test_the_trade_off_and_the_choice(policy: Path, history: Path) -> None:
    vary = ("--policy", policy, "--vary", "patience=50,100,200", "--every-report", "--most-wrong", "20%")
    found = json.loads(call(*vary, "--format", "json", history).stdout)

    hasty, right, slow = found["candidates"]
    assert [each["parameters"] for each in (hasty, right, slow)] == [{"patience": str(n)} for n in (50, 100, 200)]
    assert (hasty["runs"], hasty["groups"], hasty["stops"], hasty["wrong"]) == (20, 10, 20, 10)
    assert (right["stops"], right["wrong"], slow["stops"], slow["wrong"]) == (10, 0, 10, 0)
    assert hasty["saved"] > right["saved"] > slow["saved"] > 0
    assert right["wrongHigh"] == pytest.approx(0.1611, abs=1e-4)  # 0 of 20: z²/(n + z²)
    assert found["chosen"] == 1
    validated = found["crossValidation"]
    assert (validated["folds"], validated["runs"], validated["wrong"]) == (5, 20, 0)


def test_no_choice_that_the_runs_do_not_bear_out(policy: Path, history: Path, tmp_path: Path) -> None:
    target = tmp_path / "tuned.yaml"
    result = call("--policy", policy, "--vary", "patience=50,100", "--write", target, history, code=2)
    told = " ".join(result.stdout.split())
    assert (
        "none chosen: none saves time with an upper bound of wrong stops within 1 %, which takes 381 runs without a "
        "wrong stop, and 20 are there "
        "not cross-validated: without any one of 5 parts, nothing could be chosen on the rest"
    ) in told
    assert "0.0% (0.0% to 0.0%)" not in told
    assert not target.exists()


def test_few_groups_are_told(policy: Path, history: Path) -> None:
    found = call("--policy", policy, "--vary", "patience=50", "--group", "/(flat|rests)", history).stdout
    alone = call("--policy", policy, "--vary", "patience=50", "--group", ".+", history).stdout

    assert "20 runs in 2 groups, such as flat;" in found
    assert "2 groups tell little of other runs; --group REGEX says what of an id names its group" in found
    assert "20 runs; intervals" in alone
    assert "each run counts as a group; --group REGEX says what of an id names its group" in alone


def test_a_candidate_that_never_had_a_value_is_told(history: Path) -> None:
    result = call("--preset", "balanced", "--vary", "share=0.6,7.0", history)

    reason = "plateau was given the share 7; more than 0.0 and less than 1.0 is right"
    assert result.stderr == f"trainwarden: share=7.0: plateau had no value in any run: {reason}\n"


def test_the_chosen_policy_is_written_as_it_was_but_for_its_parameters(
    policy: Path, history: Path, tmp_path: Path
) -> None:
    target = tmp_path / "tuned.yaml"
    call("--policy", policy, "--vary", "patience=50,100", "--most-wrong", "0.2", "--write", target, history)

    first, figures, validated, *rest = target.read_text().splitlines(keepends=True)
    assert first == f"# tuned: {policy} with patience=100\n"
    assert figures.startswith("# tuned: 20 runs in 10 groups: wrong 0.0% (0.0% to 16.1%), saved ")
    assert validated.startswith("# tuned: chosen on the rest and measured on each of 5 parts: wrong 0.0%")
    assert "".join(rest) == POLICY.replace('"50"', "'100'").replace("name: flat,", "name: flat-tuned,")


def test_what_was_tuned_and_what_became_of_it_are_judged_in_one_backtest(
    policy: Path, history: Path, tmp_path: Path
) -> None:
    target = tmp_path / "tuned.yaml"
    told = call("--policy", policy, "--vary", "patience=100", "--most-wrong", "0.2", "--write", target, history).stderr

    assert (
        told
        == f"trainwarden: {target} written; its policy is named flat-tuned, so that one backtest takes it and flat\n"
    )
    both = ["policy", "backtest", "--quiet", "--policy", str(policy), "--policy", str(target), str(history)]
    assert CliRunner().invoke(main, both).exit_code == 0

    told = call("--policy", policy, "--vary", "patience=100", "--most-wrong", "0.2", "--write", policy, history).stderr
    assert told == f"trainwarden: {policy} written\n"
    assert "{name: flat," in policy.read_text()


def test_only_the_branch_that_applies_is_varied(history: Path, tmp_path: Path) -> None:
    """The runs report a training loss alone; what the preset does for a held-out loss stays as it is."""
    target = tmp_path / "tuned.yaml"
    loose = ("--vary", "tolerance=0.01", "--vary", "share=0.3", "--most-wrong", "1", "--total-steps", "last")
    found = call("--preset", "balanced", *loose, "--write", target, history)

    text = target.read_text()
    told = "is varied where variables.metric == variables.training, as in 20 of 20 runs; elsewhere it stays as in"
    assert told in " ".join(found.stdout.split())
    assert f"# tuned: share {told} variables.metric == variables.training ? 0.7 : 0.5\n" in text
    assert "expression: 'variables.metric == variables.training ? 0.3 : 0.5'" in text
    assert "expression: 'variables.metric == variables.training ? 0.01 : 0.0055'" in text
    assert "fewer than 3 %" not in text
    assert "# Parameters: metric" in text


def test_a_value_with_branches_of_its_own_is_taken_as_it_is(history: Path, tmp_path: Path) -> None:
    target = tmp_path / "tuned.yaml"
    value = "variables.metric == variables.training ? 0.3 : 0.4"
    vary = ("--vary", f"share={value}", "--vary", "tolerance=0.02", "--most-wrong", "1", "--total-steps", "last")
    call("--preset", "balanced", *vary, "--write", target, history)

    assert f"expression: '{value}'" in target.read_text()


def test_branches_that_names_of_metrics_do_not_tell_become_one_value_and_that_is_told(
    policy: Path, history: Path, tmp_path: Path
) -> None:
    target = tmp_path / "tuned.yaml"
    policy.write_text(POLICY.replace('"50"', '"progress.step > 5 ? 50 : 60"'))
    found = call("--policy", policy, "--vary", "patience=100", "--most-wrong", "1", "--write", target, history)

    told = "patience is the same value wherever it was progress.step > 5 ? 50 : 60, since"
    assert told in found.stdout
    assert told in target.read_text()
    assert "expression: '100'" in target.read_text()


@pytest.mark.parametrize(
    ("preset", "parameter", "told"),
    [
        (
            "llm-pretraining",
            "tolerance=0.01",
            "(only plateau, which only tells people); restartStorm reads no parameter",
        ),
        (
            "llm-pretraining",
            "checkpointEvery=duration('1h')",
            "(only noCheckpoint, which only tells people); restartSt",
        ),
        ("balanced", "window=500", "(only overfitting, which only tells people); plateau reads metric and share and "),
    ],
)
def test_what_no_rule_that_stops_reads_is_told(history: Path, preset: str, parameter: str, told: str) -> None:
    found = call("--preset", preset, "--vary", parameter, history, code=2).stderr

    name = parameter.partition("=")[0]
    assert f"--vary {name}: no rule of preset {preset} that suspends, stops or deletes reads it {told}" in found


def test_a_policy_that_only_tells_is_told(policy: Path, history: Path) -> None:
    policy.write_text(POLICY.replace("Suspend", "Notify"))

    found = call("--policy", policy, "--vary", "patience=50", history, code=2).stderr
    assert found.endswith(
        "no rule suspends, stops or deletes, so that there is nothing to tune; plateau only tells people\n"
    )


def test_labels_overrule_the_curve(policy: Path, history: Path, tmp_path: Path) -> None:
    labels = tmp_path / "labels.csv"
    rows = [f"w{group}/rests,100" for group in range(10)] + ["w0/flat,"]
    labels.write_text("\n".join(["run,usefulUntilStep", *rows]) + "\n")
    found = json.loads(
        call(
            "--policy",
            policy,
            "--vary",
            "patience=50",
            "--labels",
            labels,
            "--every-report",
            "--format",
            "json",
            history,
        ).stdout
    )
    assert found["candidates"][0]["wrong"] == 1  # w0/flat, which someone wants to the end


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--vary", "patience"), "write PARAMETER=VALUE,VALUE"),
        (("--vary", "tolerance=1"), "no parameter 'tolerance'; it has patience"),
        (("--vary", "patience=1", "--vary", "patience=2"), "patience is varied twice"),
        (("--vary", "patience=1 +"), "--vary patience=1 +: at 1:4: an end where more is needed"),
        (
            ("--vary", "patience=foo"),
            "--vary patience=foo: unknown name 'foo'; a whole number is right, such as patience=50",
        ),
        (("--vary", "patience=1", "--most-wrong", "120%"), "write a share such as 1% or 0.01"),
        (("--vary", "patience=1", "--group", "("), "write a regular expression"),
        (("--vary", "patience=1", "--preset", "balanced"), "either --policy FILE or --preset NAME"),
    ],
)
def test_wrong_input(policy: Path, history: Path, arguments: tuple[str, ...], told: str) -> None:
    assert told in call("--policy", policy, *arguments, history, code=2).stderr


@pytest.mark.parametrize("text", ["id,step\na,1\n", "run,usefulUntilStep\na,x\n", "run,usefulUntilStep\na,1\na,2\n"])
def test_wrong_labels_are_told_with_their_place(policy: Path, history: Path, tmp_path: Path, text: str) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_text(text)
    result = call("--policy", policy, "--vary", "patience=50", "--labels", labels, history, code=2)
    assert f"{labels}:{1 if text.startswith('id') else text.count(chr(10))}: " in result.stderr


def test_a_preset_can_be_tuned(history: Path) -> None:
    result = call("--preset", "balanced", "--vary", "tolerance=0.002,0.005", "--total-steps", "last", history)
    assert "20 runs in 10 groups" in result.stdout
