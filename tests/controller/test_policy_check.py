"""`trainwarden policy check` says what is wrong, where, and what would be right; exit code 0 or 2."""

import json
from pathlib import Path

from click.testing import CliRunner
from tests.controller.local.running import policy

from trainwarden.controller.cli import main

RIGHT = policy("metrics.loss > 2", "{type: Notify}")


def test_right_policies_pass(tmp_path: Path) -> None:
    (tmp_path / "right.yaml").write_text(RIGHT)

    checked = CliRunner().invoke(main, ["policy", "check", str(tmp_path / "right.yaml")])

    assert checked.exit_code == 0
    assert checked.output == "TrainingPolicy watch: 1 rule, right\n"


def test_problems_are_told_with_place_and_remedy(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(policy("metric.loss > 2").replace("selector", "selecter"))

    checked = CliRunner().invoke(main, ["policy", "check", str(file)])

    assert checked.exit_code == 2
    assert f"{file}:6:3: spec.selecter: an unknown key; did you mean selector?" in checked.stderr


def test_editors_get_json(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(policy("metrics.loss > 'x'"))

    checked = CliRunner().invoke(main, ["policy", "check", "--format", "json", str(file)])

    assert checked.exit_code == 2
    (problem,) = json.loads(checked.stdout)
    assert problem["file"] == str(file)
    assert (problem["line"], problem["field"], problem["severity"]) == (9, "spec.rules[0].when", "error")
    assert problem["remedy"] == "write the number without quotes"


def test_standard_input_and_missing_and_binary_files_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")

    stdin = CliRunner().invoke(main, ["policy", "check", "-"], input=RIGHT)
    missing = CliRunner().invoke(main, ["policy", "check", str(tmp_path / "no.yaml")])
    binary = CliRunner().invoke(main, ["policy", "check", str(tmp_path / "binary.yaml")])

    assert stdin.exit_code == 0
    assert (missing.exit_code, "No such file" in missing.stderr) == (2, True)
    assert (binary.exit_code, "not UTF-8" in binary.stderr) == (2, True)
