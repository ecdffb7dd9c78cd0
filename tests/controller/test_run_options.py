"""`trainwarden run` tells its own options from those of the command."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.controller.local.running import policy

from trainwarden.controller.cli import main

RIGHT = policy("metrics.loss > 2")


@pytest.mark.parametrize(
    ("given", "meant"),
    [("--polcy", "--policy"), ("--prise-per-hour", "--price-per-hour"), ("--notify-fle", "--notify-file")],
)
@pytest.mark.parametrize("dashes", [("--",), ()], ids=["with --", "without --"])
def test_a_mistyped_option_is_named_with_the_one_that_was_meant(
    given: str, meant: str, dashes: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("right.yaml").write_text(RIGHT)

    ran = CliRunner().invoke(main, ["run", "--policy", "right.yaml", given, "5", *dashes, "python", "train.py"])

    assert ran.exit_code == 2
    assert given in ran.stderr
    assert meant in ran.stderr.splitlines()[-1]
    assert not Path(".trainwarden").exists()


def test_what_follows_the_command_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("wrong.yaml").write_text(policy("metric.loss > 2"))

    ran = CliRunner().invoke(main, ["run", "--policy", "wrong.yaml", "python", "train.py", "--polcy", "x"])

    assert ran.exit_code == 2
    assert "metrics" in ran.stderr  # it came as far as the policy
    assert "No such option" not in ran.stderr
