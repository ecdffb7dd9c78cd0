"""`trainwarden policy presets`, and presets in a backtest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from trainwarden.controller.cli import main
from trainwarden.policies.presets import PRESETS

NAMES = {
    "plateau", "overfitting", "nonFinite", "divergence", "spike", "stall", "deadline", "throughputDrop", "restartStorm",
    "noCheckpoint",
}  # fmt: skip


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["policy", *arguments])
    return result.exit_code, result.output


def test_presets_are_listed_with_their_parameters() -> None:
    code, output = run("presets")

    assert code == 0
    assert all(name in output for name in PRESETS)
    assert "parameters: " in output


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_printed_as_a_policy_that_policy_check_takes(name: str, tmp_path: Path) -> None:
    code, output = run("presets", name)
    file = tmp_path / "policy.yaml"
    file.write_text(output)

    assert code == 0
    assert len({rule["name"] for rule in yaml.safe_load(output)["spec"]["rules"]} & NAMES) >= 8
    assert run("check", str(file))[0] == 0


def test_a_team_changes_a_parameter() -> None:
    code, output = run("presets", "conservative", "--set", "window=duration('5h')")

    assert code == 0
    variables = {each["name"]: each["expression"] for each in yaml.safe_load(output)["spec"]["variables"]}
    assert variables["window"] == "duration('5h')"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sharp"], "there is no preset 'sharp'"),
        (["balanced", "--set", "tolerence=1"], "no parameter 'tolerence'"),
        (["balanced", "--set", "tolerance"], "write PARAMETER=CEL"),
        (["balanced", "--set", "tolerance=foo"], "unknown name 'foo'"),
        (["--set", "tolerance=1"], "needs the NAME"),
    ],
)
def test_what_is_wrong_is_said(arguments: list[str], said: str) -> None:
    code, output = run("presets", *arguments)

    assert code == 2
    assert said in output


def test_a_backtest_judges_by_a_preset(tmp_path: Path) -> None:
    history = tmp_path / "run.jsonl"
    rows = [{"step": step, "time": step * 10.0, "loss": 3.0 if step < 300 else "NaN"} for step in range(1, 400)]
    history.write_text("".join(json.dumps(row) + "\n" for row in rows))

    code, output = run("backtest", "--preset", "balanced", "--format", "json", str(history))

    assert code == 0, output
    (found,) = json.loads(output)["runs"]
    assert "nonFinite" in {firing["rule"] for firing in found["firings"]}
    assert run("backtest", "--preset", "sharp", str(history))[0] == 2
