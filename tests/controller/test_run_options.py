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


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--grace", "nan"], "'nan' is not a finite number"),
        (["--grace", "inf"], "'inf' is not a finite number"),
        (["--price-per-hour", "nan"], "'nan' is not a finite number"),
        (["--price-per-hour", "inf"], "'inf' is not a finite number"),
        (["--deadline", "2020-01-01T00:00"], "--deadline '2020-01-01T00:00' is over; give a time that is still"),
        (["--deadline", "0s"], "--deadline '0s'"),
        (["--deadline", "soon"], "--deadline 'soon'; write 2h30m from now, or a time such as"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_values_that_mean_nothing_are_refused(
    given: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("right.yaml").write_text(RIGHT)

    ran = CliRunner().invoke(main, ["run", "--policy", "right.yaml", *given, "python", "train.py"])

    assert ran.exit_code == 2
    assert said in ran.stderr
    assert not Path(".trainwarden").exists()


def test_two_policies_of_one_name_are_refused_by_check_as_by_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("one.yaml").write_text(RIGHT)
    Path("two.yaml").write_text(f"{policy('metrics.loss > 3', name='other')}---\n{RIGHT}")

    checked = CliRunner().invoke(main, ["policy", "check", "one.yaml", "two.yaml"])
    same = CliRunner().invoke(main, ["policy", "check", "one.yaml", "one.yaml"])
    apart = CliRunner().invoke(main, ["policy", "check", "two.yaml"])

    assert checked.exit_code == same.exit_code == 2
    assert "two policies of the name 'watch', the other in one.yaml:3; give each its own" in checked.stderr
    assert checked.stderr.startswith("two.yaml:")
    assert "two policies of the name 'watch'" in same.stderr
    assert apart.exit_code == 0, apart.stderr
