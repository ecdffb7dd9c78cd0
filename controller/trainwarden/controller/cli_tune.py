"""`trainwarden policy tune`: try parameters of a policy on recorded runs, show the trade-off, and write the best."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

import click

from trainwarden.controller.cli_backtest import READERS, replay_histories, steps_planned
from trainwarden.controller.cli_values import Finite
from trainwarden.controller.exit_codes import ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainwarden.controller.backtesting.results import Results
    from trainwarden.policies.models import Policy

__all__ = ["policy_tune"]


def _fail(*lines: str) -> NoReturn:
    for line in lines:
        click.echo(f"trainwarden: {line}", err=True)
    sys.exit(ExitCode.WRONG_INPUT)


@click.command("tune")
@click.option(
    "--policy", "file", type=click.Path(path_type=Path), metavar="FILE", help="The policy, alone in its file."
)
@click.option("--preset", "preset_name", metavar="NAME", help="A built-in policy instead.")
@click.option("--vary", "varied", multiple=True, required=True, metavar="PARAMETER=V1,V2,…", help="Values to try, CEL.")
@click.option("--most-wrong", default="1%", show_default=True, metavar="SHARE", help="Most wrong stops, of all runs.")
@click.option("--confidence", default="95%", show_default=True, metavar="SHARE", help="Of the intervals.")
@click.option("--folds", type=click.IntRange(min=2), default=5, show_default=True, help="Parts for cross-validation.")
@click.option("--group", "group", metavar="REGEX", help="What of a run's id names its group; else up to the first /.")
@click.option("--labels", type=click.Path(path_type=Path), metavar="FILE", help="CSV: run,usefulUntilStep.")
@click.option("--write", "target", type=click.Path(path_type=Path), metavar="FILE", help="Write the chosen policy.")
@click.option("--gpus", type=click.IntRange(min=1), default=1, show_default=True, help="GPUs of each run.")
@click.option("--total-steps", metavar="N|last", help="Steps planned, where a history does not say; last: as recorded.")
@click.option(
    "--seconds-per-step",
    type=Finite(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="Time of a step in histories without a clock.",
)
@click.option("--reader", type=click.Choice(READERS), help="Format of the histories; without it each is found out.")
@click.option("--skip-malformed", is_flag=True, help="Leave out lines that can't be read, and say how many.")
@click.option("--every-report", is_flag=True, help="Look after every report; without it some 1,000 times a run.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="What to print.")
@click.option("--processes", type=click.IntRange(min=1), help="How many work; without it one for each core.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
@click.argument("histories", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="HISTORY…")
def policy_tune(
    file: Path | None,
    preset_name: str | None,
    varied: tuple[str, ...],
    most_wrong: str,
    confidence: str,
    folds: int,
    group: str | None,
    labels: Path | None,
    target: Path | None,
    gpus: int,
    total_steps: str | None,
    seconds_per_step: float,
    reader: str | None,
    skip_malformed: bool,
    every_report: bool,
    form: Literal["text", "json"],
    processes: int | None,
    quiet: bool,
    histories: tuple[Path, ...],
) -> None:
    """Try values of a policy's parameters on recorded runs, and choose.

    The chosen candidate saves most among those whose upper bound of wrong stops is within --most-wrong.

    \b
    trainwarden policy tune --preset balanced --vary tolerance=0.002,0.005 --vary share=0.5,0.6 runs/
    """
    from trainwarden.controller.backtesting.working import Job
    from trainwarden.controller.histories.recording import HistoryError
    from trainwarden.controller.tuning import LabelError, Tuning, as_json, as_text, read_labels
    from trainwarden.policies.backtest.recording import Setting
    from trainwarden.policies.tuning.choosing import groups_of

    allowed, sure = _share("--most-wrong", most_wrong), _share("--confidence", confidence)
    if not 0 < sure < 1:
        _fail(f"--confidence {confidence!r}; a share between 0% and 100%, such as 95%, is right")
    pattern = _pattern(group)
    try:
        useful = read_labels(labels) if labels is not None else {}
    except LabelError as error:
        _fail(f"--labels: {error}")
    source, text = _source(file, preset_name)
    tried, texts, policies = _candidates(source, text, varied)
    setting = Setting(gpus=gpus, seconds_per_step=seconds_per_step, fineness=math.inf if every_report else 128.0)
    job = Job(policies=tuple(policies), setting=setting, skip=skip_malformed, total=steps_planned(total_steps))
    try:
        results = replay_histories(histories, job, reader, processes, quiet=quiet)
    except HistoryError as error:
        _fail(str(error))
    if not results.totals.runs:
        _fail(f"{', '.join(map(str, histories))}: no run with a metric; see docs/backtest.md for what can be read")
    ids = [each.id for each in results.replays]
    unknown = [id_ for id_ in useful if id_ not in set(ids)]
    if unknown:
        _fail(
            f"--labels: no run {unknown[0]!r} in the histories ({len(unknown)} such); runs such as {ids[0]!r} are there"
        )
    groups = [_group(pattern, id_) for id_ in ids] if pattern is not None else groups_of(ids)
    tuning = Tuning.of(
        results.replays, tried, groups, useful, gpus=gpus, most_wrong=allowed, confidence=sure, folds=folds
    )
    _tell_malformed(results)
    for values, total in zip(tried, results.totals.policies, strict=True):
        for each in total.without_value:
            if each.runs == total.runs:
                name = ", ".join(f"{key}={value}" for key, value in values.items())
                click.echo(f"trainwarden: {name}: {each.rule} had no value in any run: {each.reason}", err=True)
    if form == "json":
        sys.stdout.buffer.write(as_json(tuning))
        sys.stdout.buffer.flush()
    else:
        click.echo(as_text(tuning, color=sys.stdout.isatty()), nl=False)
    if target is not None:
        if tuning.chosen is None:
            _fail(f"--write: no candidate fits, and {target} was not written; give more runs, or a higher --most-wrong")
        try:
            target.write_text(texts[tuning.chosen], encoding="utf-8")
        except OSError as error:
            _fail(f"--write: {target} can't be written: {error.strerror}")
        click.echo(f"trainwarden: {target} written", err=True)
    sys.exit(ExitCode.DONE)


def _tell_malformed(results: Results) -> None:
    for told in results.told:
        click.echo(f"trainwarden: {told}", err=True)
    if results.totals.skipped > len(results.told):
        click.echo(f"trainwarden: {results.totals.skipped:,} malformed places were left out in all", err=True)


def _share(option: str, text: str) -> float:
    number, per_cent = text.strip().removesuffix("%"), text.strip().endswith("%")
    try:
        share = float(number) / (100 if per_cent else 1)
    except ValueError:
        share = math.nan
    if not 0 <= share <= 1:
        _fail(f"{option} {text!r}; write a share such as 1% or 0.01")
    return share


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return re.compile(text) if text is not None else None
    except re.error as error:
        _fail(f"--group {text!r}: {error}; write a regular expression, such as '^([^/]+)/'")


def _group(pattern: re.Pattern[str], id_: str) -> str:
    """What the expression finds in an id; a run in which it finds nothing is a group of its own."""
    found = pattern.search(id_)
    if found is None:
        return id_
    return "/".join(each or "" for each in found.groups()) if pattern.groups else found[0]


def _source(file: Path | None, preset_name: str | None) -> tuple[str, str]:
    from trainwarden.controller.policy_files import check_files
    from trainwarden.policies.presets import PresetError, preset

    if (file is None) == (preset_name is None):
        _fail("give either --policy FILE or --preset NAME")
    if preset_name is not None:
        try:
            return f"preset {preset_name}", preset(preset_name)
        except PresetError as error:
            _fail(f"--preset: {error}")
    assert file is not None  # noqa: S101 - for the type checker
    checked = check_files([file])
    if checked.problems:
        for problem in checked.problems:
            click.echo(str(problem), err=True)
        sys.exit(ExitCode.WRONG_INPUT)
    if len(checked.policies) != 1:
        _fail(f"{file}: {len(checked.policies)} policies; exactly one can be tuned at a time")
    try:
        return str(file), file.read_text("utf-8-sig")
    except OSError as error:
        _fail(f"{file}: {error.strerror}; name a file that can be read twice")


def _candidates(source: str, text: str, varied: Sequence[str]) -> tuple[list[dict[str, str]], list[str], list[Policy]]:
    """The parameters, the YAML, and the policy of each candidate as it is replayed."""
    from trainwarden.controller.backtesting.judges import as_judges
    from trainwarden.policies.compiling import compile_loaded
    from trainwarden.policies.expressions.engines import engine
    from trainwarden.policies.ladder import is_disruptive
    from trainwarden.policies.loading import load_policies
    from trainwarden.policies.tuning.grid import GridError, combinations, parse_variation, with_parameters

    (policy,) = load_policies(text, source=source).policies
    rules = tuple(
        rule for rule in policy.spec.rules if any(is_disruptive(step.type) for step in rule.actions)
    )  # those which only tell can be neither right nor wrong
    if not rules:
        _fail(f"{source}: no rule suspends, stops or deletes, so that there is nothing to tune")
    try:
        tried = combinations([parse_variation(each) for each in varied], [each.name for each in policy.spec.variables])
        texts = [with_parameters(text, values) for values in tried]
    except GridError as error:
        _fail(f"--vary: {error}")
    cel = engine(None)
    policies: list[Policy] = []
    for number, (values, each) in enumerate(zip(tried, texts, strict=True)):
        name = ", ".join(f"{key}={value}" for key, value in values.items())
        loaded = load_policies(each, source=f"{source} with {name}")
        _, problems = compile_loaded(loaded, cel, source=f"{source} with {name}")
        if problems:
            _fail(*map(str, problems))
        (found,) = loaded.policies
        policies.append(
            found.model_copy(
                update={
                    "metadata": found.metadata.model_copy(update={"name": f"candidate-{number}"}),
                    "spec": found.spec.model_copy(update={"rules": rules}),
                }
            )
        )
    return tried, texts, as_judges(policies, by_labels=False)
