"""`--set PARAMETER=CEL` with a preset: what is put in place, and what is said of what can't be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from trainwarden.controller.cli import main
from trainwarden.controller.cli_values import changed_preset
from trainwarden.policies.loading import load_policies

PARAMETERS = ("training", "metric", "share", "tolerance", "window", "checkpointEvery")


@pytest.fixture
def history(tmp_path: Path) -> Path:
    path = tmp_path / "run.jsonl"
    rows = [{"step": step, "time": step * 10.0, "loss": max(3.0 - step / 50, 1.0)} for step in range(1, 400)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def backtest(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["policy", "backtest", "--quiet", *map(str, arguments)])


def test_a_changed_preset_claims_nothing_that_held_for_the_delivered_one() -> None:
    changed = changed_preset("balanced", ["tolerance=0.01", "metric=eval/wer"])

    head, parameters, *_ = changed.text.splitlines()
    assert head.startswith('# The preset balanced with tolerance=0.01, metric="eval/wer".')
    assert parameters.startswith("# Parameters: ")
    assert "fewer than 3 %" not in changed.text
    (policy,) = load_policies(changed.text, source="x").policies
    variables = {each.name: each.expression for each in policy.spec.variables}
    assert (variables["tolerance"], variables["metric"]) == ("0.01", '"eval/wer"')


def test_what_a_value_takes_the_place_of_is_told() -> None:
    (note,) = changed_preset("balanced", ["share=0.6", "metric=eval/wer"]).notes

    assert note == (
        "--set share=0.6: preset balanced has variables.metric == variables.training ? 0.7 : 0.5; 0.6 takes the place "
        "of 0.7 and 0.5: write such an expression to keep one of them"
    )
    assert changed_preset("balanced", ["share=variables.metric == variables.training ? 0.8 : 0.6"]).notes == ()
    assert changed_preset("llm-pretraining", ["share=0.6"]).notes == ()


def test_a_backtest_takes_changes_of_a_preset(history: Path) -> None:
    found = backtest("--preset", "balanced", "--set", "metric=eval/wer", "--format", "json", history)

    assert found.exit_code == 0, found.output
    (run,) = json.loads(found.stdout)["runs"]
    assert run["outcomes"][0]["withoutValue"]["plateau"].startswith("eval/wer was never reported")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (["tolerance=foo"], ["--set tolerance=foo: unknown name 'foo'; a number is right, such as tolerance=0.0055"]),
        (
            ["metric=metrics.loss", "window=2h"],
            [
                "--set metric=metrics.loss: it is a double; the name alone is right: metric=loss",
                "--set window=2h: at 1:2: 'h' where it can't stand; write a duration as duration(\"2h\")",
            ],
        ),
        (
            ["tolerence=1"],
            [f"--set tolerence=1: preset balanced has no parameter 'tolerence'; it has {', '.join(PARAMETERS)}"],
        ),
        (["tolerance"], ["--set 'tolerance'; write PARAMETER=CEL, such as tolerance=0.01"]),
        (["share=0.6", "share=0.7"], ["--set share=0.7: share is set twice; keep one"]),
    ],
)
def test_each_fault_is_told_once(history: Path, changes: list[str], told: list[str]) -> None:
    options = [option for change in changes for option in ("--set", change)]
    found = backtest("--preset", "balanced", *options, history)

    assert found.exit_code == 2
    assert found.stderr == "".join(f"trainwarden: {line}\n" for line in told)


def test_changes_need_a_preset(history: Path) -> None:
    found = backtest("--policy", history, "--set", "tolerance=0.01", history)

    assert found.exit_code == 2
    assert found.stderr == "trainwarden: --set changes parameters of a preset; give one with --preset NAME\n"
