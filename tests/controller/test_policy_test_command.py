"""`trainwarden policy test`: exit codes, what it prints, and that the docs' and examples' test files pass."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from trainwarden.controller.cli import main

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "policy_tests"
PAGE = (ROOT / "docs" / "policy-tests.md").read_text(encoding="utf-8")
TESTS = """policies: [policy.yaml]
job: {labels: {tier: dev}}
tests:
- name: a loss that is high <for long> & told
  series: {loss: 3-0.05x20 6x40}
  expect:
  - {rule: tooHigh, at: 25m, verdict: Firing}
- name: a loss that is low
  series: {loss: 2x60}
  expect:
  - {rule: tooHigh, fires: 0}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(EXAMPLE / "policy.yaml", tmp_path)
    (tmp_path / "some-test.yaml").write_text(TESTS)
    return tmp_path


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["policy", "test", *map(str, arguments)])


def test_the_example_passes() -> None:
    done = run(EXAMPLE / "guard-test.yaml")

    assert done.exit_code == 0, done.output
    assert done.output.endswith("7 passed, 0 failed\n")


def test_both_engines_say_the_same(folder: Path) -> None:
    file = folder / "some-test.yaml"

    assert run(file, "--engine", "cpp", "--timeline").output == run(file, "--engine", "python", "--timeline").output


def test_the_docs_example_passes(folder: Path) -> None:
    (text,) = re.findall(r"^```yaml\n(policies: .*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (folder / "docs-test.yaml").write_text(text)

    done = run(folder / "docs-test.yaml")

    assert done.exit_code == 0, done.output


def test_a_failure_looks_as_the_docs_show(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (shown,) = re.findall(r"^```\n(FAIL .*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    lines = ["policies: [policy.yaml]", "job: {labels: {tier: dev}}", "tests:", ""]
    lines += ["- name: a loss that is high for long", "  length: 25m", "  series: {loss: 3-0.05x20 6x*}", "  expect:"]
    lines += ["  - {rule: tooHigh, at: 25m, verdict: Firing}"]
    (folder / "guard-test.yaml").write_text("\n".join(lines))
    monkeypatch.chdir(folder)

    done = run("guard-test.yaml")

    assert done.exit_code == 1
    assert done.output == f"{shown}0 passed, 1 failed\n"


def test_built_in_policies_are_tested_by_their_names(folder: Path) -> None:
    file = folder / "presets-test.yaml"
    text = """presets: [balanced, conservative]
tests:
- name: a loss that is not finite
  series: {loss: 1x5 NaNx10}
  expect:
  - {policy: balanced, rule: nonFinite, at: 10m, verdict: Firing}
  - {policy: conservative, rule: nonFinite, at: 4m, verdict: Inactive}
"""
    file.write_text(text)
    assert run(file).output == f"pass  {file}:3: a loss that is not finite\n1 passed, 0 failed\n"

    file.write_text(text.replace("balanced, c", "balance, c"))
    assert f"{file}:1:11: presets[0]: the preset 'balance'; there are conservative, balanced, eager" in run(file).output


def test_text_tells_what_failed_and_where(folder: Path) -> None:
    file = folder / "some-test.yaml"

    done = run(file)

    assert done.exit_code == 1
    first, place, expected, found, *_ = done.output.splitlines()
    assert first == f"FAIL  {file}:4: a loss that is high <for long> & told"
    assert place.strip() == f"{file}:7:30: guard/tooHigh, at 25m: unexpected verdict"
    assert (expected.split(), found.split()) == (["expected", "Firing"], ["found", "Pending"])
    assert done.output.endswith(f"pass  {file}:8: a loss that is low\n1 passed, 1 failed\n")


def test_the_timeline_is_shown_for_tests_that_pass_when_asked_for(folder: Path) -> None:
    file = EXAMPLE / "guard-test.yaml"

    assert "what happened" not in run(file).output
    assert "40m  guard/tooHigh  Suspend WouldAct Audit" in run(file, "--timeline").output


def test_json_has_each_failure_with_its_values(folder: Path) -> None:
    done = run(folder / "some-test.yaml", "--format", "json")

    assert done.exit_code == 1
    body = json.loads(done.stdout)
    assert (body["passed"], body["failed"]) == (1, 1)
    (failure,) = body["files"][0]["tests"][0]["failures"]
    assert (failure["line"], failure["key"], failure["expected"], failure["found"]) == (
        7,
        "verdict",
        "Firing",
        "Pending",
    )
    assert (failure["values"], failure["step"]) == ({"metrics.loss": 6}, 26)


def test_junit_is_printed_or_written_and_counts(folder: Path) -> None:
    (folder / "wrong.yaml").write_text("policies: [policy.yaml]\ntest: []\n")
    report = folder / "report.xml"

    done = run(folder / "some-test.yaml", folder / "wrong.yaml", "--junit", report)
    printed = run(folder / "some-test.yaml", folder / "wrong.yaml", "--format", "junit")

    assert (done.exit_code, printed.exit_code) == (2, 2)
    assert printed.stdout == report.read_text()
    suites = ElementTree.fromstring(report.read_text().partition("\n")[2])
    assert [(s.get("tests"), s.get("failures"), s.get("errors")) for s in suites] == [("2", "1", "0"), ("1", "0", "1")]
    failed, passed = suites[0]
    assert failed.get("name") == "a loss that is high <for long> & told"
    assert failed.get("line") == "4"
    assert [child.tag for child in failed] == ["failure"]
    assert list(passed) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("policies: [policy.yaml]\ntest: []\n", ":2:1: test: an unknown key; did you mean tests?"),
        (TESTS.replace("policy.yaml", "no.yaml"), ":1:12: policies[0]: no file no.yaml; paths count from "),
        (TESTS.replace("policy.yaml", "broken.yaml"), "broken.yaml:1:1: kind: no kind"),
        (TESTS.replace("[policy.yaml]", "[policy.yaml, policy.yaml]"), "a second policy of the name 'guard'"),
        (TESTS.replace("tooHigh", "toHigh"), "did you mean tooHigh?"),
    ],
    ids=["unknown key", "missing policy", "broken policy", "policy twice", "unknown rule"],
)
def test_a_file_that_can_not_be_used_is_told_and_the_others_are_run(folder: Path, text: str, says: str) -> None:
    (folder / "broken.yaml").write_text("spec: {}\n")
    (folder / "wrong.yaml").write_text(text)

    done = run(folder / "wrong.yaml", EXAMPLE / "guard-test.yaml")

    assert done.exit_code == 2
    assert says in done.stderr
    assert done.stdout.endswith("7 passed, 0 failed, 1 file wrong\n")


def test_files_that_can_not_be_read_or_written_are_told(folder: Path) -> None:
    (folder / "binary.yaml").write_bytes(b"\xff\xfe\x00")

    missing, binary = run(folder / "no.yaml"), run(folder / "binary.yaml")
    unwritable = run(EXAMPLE / "guard-test.yaml", "--junit", folder / "no" / "report.xml")

    assert (missing.exit_code, "No such file" in missing.stderr) == (2, True)
    assert (binary.exit_code, "not UTF-8" in binary.stderr) == (2, True)
    assert (unwritable.exit_code, "--junit: " in unwritable.stderr) == (2, True)


def test_the_same_files_give_the_same_output(folder: Path) -> None:
    for form in ("text", "json", "junit"):
        first, second = (run(folder / "some-test.yaml", "--format", form) for _ in range(2))
        assert first.output == second.output
