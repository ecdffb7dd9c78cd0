"""`trainwarden policy tune`: try parameters of a policy on recorded runs, show the trade-off, and write the best."""

from __future__ import annotations

import math
import re
import sys
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

import click

from trainwarden.controller.cli_backtest import READERS, replay_histories, steps_planned
from trainwarden.controller.cli_values import Finite
from trainwarden.controller.exit_codes import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence, Set

    from trainwarden.controller.backtesting.results import Results
    from trainwarden.controller.tuning import Conditional
    from trainwarden.policies.compiling import CompiledPolicy, CompiledRule
    from trainwarden.policies.models import Policy, Rule
    from trainwarden.policies.tuning.branches import Branch

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
@click.option("--group", "group", metavar="REGEX", help="What of a run's id names its group; else its folder.")
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
    from trainwarden.controller.tuning import LabelError, Tuning, as_json, as_text, head, read_labels
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
    grid = _grid(source, text, varied)
    try:
        conditionals = _conditionals(grid, histories, reader, skip_malformed=skip_malformed)
    except HistoryError as error:
        _fail(str(error))
    texts, policies = _candidates(grid, conditionals)
    tried = grid.tried
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
        results.replays,
        tried,
        groups,
        useful,
        gpus=gpus,
        most_wrong=allowed,
        confidence=sure,
        folds=folds,
        conditionals=[each for each, _ in conditionals.values()],
    )
    _tell_malformed(results)
    for values, total in zip(tried, results.totals.policies, strict=True):
        for each in total.without_value:
            if each.runs == total.runs:
                click.echo(
                    f"trainwarden: {_named(values)}: {each.rule} had no value in any run: {each.reason}", err=True
                )
    if form == "json":
        sys.stdout.buffer.write(as_json(tuning))
        sys.stdout.buffer.flush()
    else:
        click.echo(as_text(tuning, color=sys.stdout.isatty()), nl=False)
    if target is not None:
        if tuning.chosen is None:
            _fail(f"--write: no candidate fits, and {target} was not written; give more runs, or a higher --most-wrong")
        _write(target, texts[tuning.chosen], head(tuning, source), grid, file)
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


@dataclass(frozen=True, slots=True)
class _Grid:
    """What is tried on which policy."""

    source: str  # preset balanced, or a file
    text: str  # YAML
    compiled: CompiledPolicy
    tried: list[dict[str, str]]  # CEL of each parameter, for each candidate
    rules: tuple[Rule, ...]  # those that stop a run; those which only tell can be neither right nor wrong


def _grid(source: str, text: str, varied: Sequence[str]) -> _Grid:
    """The combinations of values, each of which fits its parameter, and which some rule that stops reads."""
    from trainwarden.policies.compiling import compile_policy
    from trainwarden.policies.expressions.engines import engine
    from trainwarden.policies.ladder import is_disruptive
    from trainwarden.policies.loading import load_policies
    from trainwarden.policies.tuning.grid import GridError, combinations, parse_variation
    from trainwarden.policies.tuning.parameters import ParameterError, check_value

    cel = engine(None)
    (policy,) = load_policies(text, source=source).policies
    compiled = compile_policy(policy, cel)
    stopping = [rule for rule in compiled.rules if any(is_disruptive(step.type) for step in rule.spec.actions)]
    if not stopping:
        told = " and ".join(rule.spec.name for rule in compiled.rules)
        only = f"{told} only tell{'s' * (len(compiled.rules) == 1)} people"
        _fail(f"{source}: no rule suspends, stops or deletes, so that there is nothing to tune; {only}")
    try:
        given = [parse_variation(each) for each in varied]
        combinations(given, [each.name for each in policy.spec.variables])
        faults = [*_unread(source, compiled, stopping, [name for name, _ in given])]
        checked: list[tuple[str, tuple[str, ...]]] = []
        for name, values in given:
            fitting = []
            for value in values:
                try:
                    fitting.append(check_value(compiled, cel, name, value))
                except ParameterError as error:
                    faults.append(f"{name}={value}: {error}")
            checked.append((name, tuple(dict.fromkeys(fitting))))
        if faults:
            _fail(*(f"--vary {fault}" for fault in faults))
        tried = combinations(checked, [each.name for each in policy.spec.variables])
    except GridError as error:
        _fail(f"--vary: {error}")
    return _Grid(source, text, compiled, tried, tuple(rule.spec for rule in stopping))


def _unread(
    source: str, policy: CompiledPolicy, stopping: Sequence[CompiledRule], names: Sequence[str]
) -> Iterator[str]:
    """What is said of each parameter on which it does not depend whether a run is stopped."""
    from trainwarden.policies.tuning.parameters import parameters_read

    read = parameters_read(policy, stopping)
    for name in names:
        if name in read:
            continue
        telling = [rule.spec.name for rule in policy.rules if rule not in stopping and name in rule.variables]
        by = f"only {' and '.join(telling)}, which only tell{'s' * (len(telling) == 1)} people" if telling else "none"
        stop = ", ".join(f"{rule.spec.name} reads {_listed(parameters_read(policy, [rule]))}" for rule in stopping)
        yield f"{name}: no rule of {source} that suspends, stops or deletes reads it ({by}); {stop}"


def _listed(names: Set[str]) -> str:
    return " and ".join(sorted(names)) or "no parameter"


def _conditionals(
    grid: _Grid, histories: tuple[Path, ...], reader: str | None, *, skip_malformed: bool
) -> dict[str, tuple[Conditional, Branch]]:
    """Of parameters that depend on the run, the branch that applies to most of the runs, and which is varied.

    Raises:
        HistoryError: A history can't be read.
    """
    from collections import Counter

    from trainwarden.controller.tuning import Conditional
    from trainwarden.policies.expressions.engines import engine
    from trainwarden.policies.tuning.branches import Branch, applying, branches_of

    cel, own = engine(None), {each.name: each.expression for each in grid.compiled.policy.spec.variables}
    found: dict[str, tuple[Conditional, Branch]] = {}
    reported: Counter[frozenset[str]] | None = None
    for name in grid.tried[0]:
        branches = branches_of(own[name])
        whole = any(len(branches_of(values[name])) > 1 for values in grid.tried)
        if len(branches) < 2 or whole:
            continue
        if reported is None:
            reported = Counter(_names_in(histories, reader, skip_malformed=skip_malformed))
        applied: Counter[int | None] = Counter()
        for metrics, runs in reported.items():
            applied[applying(grid.compiled, cel, branches, metrics)] += runs
        of = reported.total()
        best = max(range(len(branches)), key=lambda index: applied[index])
        if applied[best]:
            where = branches[best].condition
            found[name] = Conditional(name, where, applied[best], of, own[name]), branches[best]
        else:
            found[name] = Conditional(name, "", 0, of, own[name]), Branch("", own[name], 0, len(own[name]))
    return found


def _names_in(histories: tuple[Path, ...], reader: str | None, *, skip_malformed: bool) -> Iterator[frozenset[str]]:
    """The names of all metrics of each run that has some."""
    from trainwarden.controller.histories.formats import recordings_in
    from trainwarden.controller.histories.recording import Reading

    reading = Reading(skip=skip_malformed)
    for path in {each.resolve(): each for each in histories}.values():
        for recording in recordings_in(path, reading, reader=reader):
            rows = recording.open(reading).rows
            names = frozenset(chain.from_iterable((*row.metrics, *row.nonfinite) for row in rows))
            if names:
                yield names


def _candidates(grid: _Grid, conditionals: Mapping[str, tuple[Conditional, Branch]]) -> tuple[list[str], list[Policy]]:
    """The YAML, and the policy of each candidate as it is replayed."""
    from trainwarden.controller.backtesting.judges import as_judges
    from trainwarden.policies.compiling import compile_loaded
    from trainwarden.policies.expressions.engines import engine
    from trainwarden.policies.loading import load_policies
    from trainwarden.policies.tuning.branches import with_branch
    from trainwarden.policies.tuning.grid import GridError, with_parameters

    def placed(name: str, value: str) -> str:
        known = conditionals.get(name)
        return value if known is None else with_branch(known[0].was, known[1], value)

    try:
        texts = [
            with_parameters(grid.text, {name: placed(name, value) for name, value in values.items()})
            for values in grid.tried
        ]
    except GridError as error:
        _fail(f"--vary: {error}")
    cel = engine(None)
    policies: list[Policy] = []
    for number, (values, each) in enumerate(zip(grid.tried, texts, strict=True)):
        source = f"{grid.source} with {_named(values)}"
        loaded = load_policies(each, source=source)
        _, problems = compile_loaded(loaded, cel, source=source)
        if problems:
            _fail(str(problems[0]))
        (found,) = loaded.policies
        policies.append(
            found.model_copy(
                update={
                    "metadata": found.metadata.model_copy(update={"name": f"candidate-{number}"}),
                    "spec": found.spec.model_copy(update={"rules": grid.rules}),
                }
            )
        )
    return texts, as_judges(policies, by_labels=False)


def _named(values: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items())


def _write(target: Path, text: str, head_: Sequence[str], grid: _Grid, file: Path | None) -> None:
    """Write the chosen policy, under a name of its own unless it takes the place of what was tuned."""
    from trainwarden.policies.tuning.grid import GridError, tuned_name, with_head, with_name

    before = grid.compiled.ref.name
    in_place = file is not None and target.resolve() == file.resolve()
    name = before if in_place else tuned_name(before)
    try:
        text = with_head(with_name(text, name), head_, others=file is not None)
        target.write_text(text, encoding="utf-8")
    except GridError as error:
        _fail(f"--write: {target} was not written: {error}")
    except OSError as error:
        _fail(f"--write: {target} can't be written: {error.strerror}")
    beside = "" if in_place else f"; its policy is named {name}, so that one backtest takes it and {before}"
    click.echo(f"trainwarden: {target} written{beside}", err=True)
