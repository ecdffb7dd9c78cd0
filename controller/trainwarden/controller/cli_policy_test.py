"""`trainwarden policy test`: run test files, and say what failed as text, JSON or JUnit XML."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from trainwarden.controller.exit_codes import ExitCode

if TYPE_CHECKING:
    from trainwarden.policies.compiling import CompiledPolicy
    from trainwarden.policies.models import Policy
    from trainwarden.policies.problems import Problem
    from trainwarden.policies.unittests.reading import PolicyTestFile
    from trainwarden.policies.unittests.running import Outcome

__all__ = ["FileOutcome", "policy_test", "run_file"]


@dataclass(frozen=True, slots=True)
class FileOutcome:
    """What became of one file: outcomes of its tests, or what keeps it from being run."""

    file: str
    outcomes: tuple[Outcome, ...] = ()
    problems: tuple[Problem, ...] = ()


@click.command("test")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE…")
@click.option("--format", "form", type=click.Choice(["text", "json", "junit"]), default="text", help="What to print.")
@click.option("--junit", type=click.Path(path_type=Path), metavar="FILE", help="Write JUnit XML as well, for CI.")
@click.option("--timeline", is_flag=True, help="Show what happened in tests that passed, too.")
@click.option("--engine", type=click.Choice(["cpp", "python"]), help="CEL engine; without it the faster one.")
def policy_test(
    files: tuple[Path, ...],
    form: Literal["text", "json", "junit"],
    junit: Path | None,
    timeline: bool,
    engine: Literal["cpp", "python"] | None,
) -> None:
    """Run unit tests of policies; exit code 0 when all pass, 1 when one fails, 2 when a file is wrong.

    \b
    trainwarden policy test tests/*.yaml --junit report.xml
    """
    from trainwarden.controller.policy_test_report import as_json, as_junit, as_text

    try:
        found = [run_file(file, engine=engine) for file in files]
    except ImportError:
        click.echo(f"trainwarden: --engine {engine}: it is not installed here; leave the option out", err=True)
        sys.exit(ExitCode.WRONG_INPUT)
    for problem in (problem for each in found for problem in each.problems):
        click.echo(str(problem), err=True)
    writers: dict[str, Callable[[Sequence[FileOutcome]], str]] = {
        "text": lambda each: as_text(each, timeline=timeline),
        "json": as_json,
        "junit": as_junit,
    }
    click.echo(writers[form](found), nl=False)
    if junit is not None:
        try:
            junit.write_text(as_junit(found), encoding="utf-8")
        except OSError as error:
            click.echo(f"trainwarden: --junit: {junit} can't be written: {error.strerror}", err=True)
            sys.exit(ExitCode.WRONG_INPUT)
    if any(each.problems for each in found):
        sys.exit(ExitCode.WRONG_INPUT)
    passed = all(outcome.passed for each in found for outcome in each.outcomes)
    sys.exit(ExitCode.DONE if passed else ExitCode.TESTS_FAILED)


def run_file(file: Path, *, engine: Literal["cpp", "python"] | None = None) -> FileOutcome:
    """Run one test file with the policies it names; what is wrong with either is among the problems.

    Raises:
        ImportError: The CEL engine is not installed.
    """
    from trainwarden.policies.problems import Problem
    from trainwarden.policies.unittests.reading import make_ready, read_tests
    from trainwarden.policies.unittests.running import run_test

    name = str(file)
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        wrong = Problem(name, 1, 1, "", f"byte {error.start} is not UTF-8", "save the file as UTF-8")
        return FileOutcome(name, problems=(wrong,))
    except OSError as error:
        wrong = Problem(name, 0, 0, "", error.strerror or str(error), "name a file with tests")
        return FileOutcome(name, problems=(wrong,))
    tests, problems = read_tests(text, source=name)
    if tests is None:
        return FileOutcome(name, problems=tuple(problems))
    policies, problems = _policies(tests, file.parent, engine)
    if problems:
        return FileOutcome(name, problems=tuple(problems))
    ready, problems = make_ready(tests, policies)
    if problems:
        return FileOutcome(name, problems=tuple(problems))
    return FileOutcome(name, tuple(run_test(each) for each in ready))


def _policies(
    tests: PolicyTestFile, folder: Path, engine: Literal["cpp", "python"] | None
) -> tuple[list[CompiledPolicy], list[Problem]]:
    """The policies that a test file names, compiled."""
    from trainwarden.controller.policy_files import check_files
    from trainwarden.policies.compiling import compile_policy
    from trainwarden.policies.expressions.engines import engine as cel_engine
    from trainwarden.policies.loading import load_policies
    from trainwarden.policies.presets import PRESETS, preset

    cel = cel_engine(engine)
    problems: list[Problem] = []
    compiled: dict[str, CompiledPolicy] = {}

    def take(policies: Iterable[Policy], place: tuple[str, int]) -> None:
        for policy in (compile_policy(each, cel) for each in policies):
            if policy.uid in compiled:
                found = f"a second policy of the name {policy.ref.name!r}"
                problems.append(tests.document.problem(place, found, "give each its own"))
            compiled[policy.uid] = policy

    for index, given in enumerate(tests.tests.policies):
        place = ("policies", index)
        if not (folder / given).is_file():
            problems.append(tests.document.problem(place, f"no file {given}", f"paths count from {folder}"))
            continue
        checked = check_files([folder / given], engine=engine)
        problems += checked.problems
        take(checked.policies, place)
    for index, name in enumerate(tests.tests.presets):
        place = ("presets", index)
        if name not in PRESETS:
            problems.append(tests.document.problem(place, f"the preset {name!r}", f"there are {', '.join(PRESETS)}"))
            continue
        take(load_policies(preset(name), source=f"preset {name}").policies, place)
    return list(compiled.values()), problems
