"""`trainwarden policy backtest`: replay recorded runs under policies, and say what that would have been worth."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

import click

from trainwarden.controller.cli_values import ChangesError, Finite, changed_preset
from trainwarden.controller.exit_codes import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

    from trainwarden.controller.backtesting.results import Results
    from trainwarden.controller.backtesting.working import Job
    from trainwarden.controller.histories.recording import Reading, Recording
    from trainwarden.policies.models import Policy

__all__ = ["READERS", "policy_backtest", "replay_histories", "steps_planned"]

READERS = (
    "csv", "curves", "decisions", "dicts", "json", "jsonl", "megatron", "megatron-log", "mlflow", "mllog", "nanogpt",
    "tensorboard", "trainer_state", "verl",
)  # fmt: skip
_MOST_COUNTED = 1 << 31  # bytes of histories that are counted before they are replayed
_FEW, _SMALL = 8, 1 << 21  # runs, and bytes, for which starting processes takes longer than it saves
_MOST_SHOWN = 25  # runs in the table, without --all
_WIDEST = 200


def _fail(*lines: str) -> NoReturn:
    for line in lines:
        click.echo(f"trainwarden: {line}", err=True)
    sys.exit(ExitCode.WRONG_INPUT)


@click.command("backtest")
@click.option(
    "--policy", "files", multiple=True, type=click.Path(path_type=Path), metavar="FILE", help="Policies to judge by."
)
@click.option("--preset", "presets", multiple=True, metavar="NAME", help="Built-in policies to judge by.")
@click.option(
    "--set", "changes", multiple=True, metavar="PARAMETER=CEL", help="As in --set metric=eval/wer; of presets."
)
@click.option("--gpus", type=click.IntRange(min=0), default=1, show_default=True, help="GPUs of each run.")
@click.option("--price-per-hour", type=Finite(min=0), help="Money for an hour of one run.")
@click.option("--price-per-gpu-hour", type=Finite(min=0), help="Money for an hour of one GPU.")
@click.option("--deadline", metavar="DURATION", help="When each run must be done, after its beginning, such as 36h.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Labels of the runs; selectors then count.")
@click.option("--total-steps", metavar="N|last", help="Steps planned, where a history does not say; last: as recorded.")
@click.option(
    "--seconds-per-step",
    type=Finite(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="Time of a step in histories without a clock.",
)
@click.option("--since", metavar="DURATION", help="Only runs that went on within this time, such as 24h.")
@click.option("--reader", type=click.Choice(READERS), help="Format of the histories; without it each is found out.")
@click.option("--skip-malformed", is_flag=True, help="Leave out lines that can't be read, and say how many.")
@click.option("--every-report", is_flag=True, help="Look after every report; without it some 1,000 times a run.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="What to print.")
@click.option("--html", type=click.Path(path_type=Path), metavar="FILE", help="Write a page with curves as well.")
@click.option("--all", "show_all", is_flag=True, help=f"List all runs, not only {_MOST_SHOWN}.")
@click.option("--processes", type=click.IntRange(min=1), help="How many work; without it one for each core.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
@click.argument("histories", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="HISTORY…")
def policy_backtest(
    files: tuple[Path, ...],
    presets: tuple[str, ...],
    changes: tuple[str, ...],
    gpus: int,
    price_per_hour: float | None,
    price_per_gpu_hour: float | None,
    deadline: str | None,
    labels: tuple[str, ...],
    total_steps: str | None,
    seconds_per_step: float,
    since: str | None,
    reader: str | None,
    skip_malformed: bool,
    every_report: bool,
    form: Literal["text", "json"],
    html: Path | None,
    show_all: bool,
    processes: int | None,
    quiet: bool,
    histories: tuple[Path, ...],
) -> None:
    """Replay recorded runs, and say what policies would have done and saved.

    HISTORY is a file or folder: transformers' trainer_state.json, TensorBoard, W&B, Lightning, MLflow, MLLOG,
    Megatron, verl, TRL, modded-nanoGPT, CSV, JSON Lines or a decision log.

    \b
    trainwarden policy backtest --policy flat-loss.yaml --gpus 8 --html report.html runs/
    """
    import math
    from dataclasses import replace
    from datetime import UTC, datetime

    from trainwarden.controller.backtesting.results import as_json
    from trainwarden.controller.backtesting.working import Job, priced
    from trainwarden.controller.histories.recording import HistoryError
    from trainwarden.policies.backtest.recording import Setting

    if price_per_hour is not None and price_per_gpu_hour is not None:
        _fail("--price-per-hour and --price-per-gpu-hour; give one of them")
    policies = _policies(files, presets, changes, by_labels=bool(labels))
    setting = Setting(
        gpus=gpus,
        price_per_hour=price_per_hour,
        labels=_labels(labels),
        deadline=_duration("--deadline", deadline),
        seconds_per_step=seconds_per_step,
    )
    if every_report:
        setting = replace(setting, fineness=math.inf)
    within = _duration("--since", since)
    job = Job(
        policies=tuple(policies),
        setting=priced(setting, price_per_gpu_hour),
        skip=skip_malformed,
        curves=html is not None,
        total=steps_planned(total_steps),
        since=datetime.now(UTC) - within if within is not None else None,
    )
    try:
        results = replay_histories(histories, job, reader, processes, quiet=quiet)
        if not results.totals.runs:
            _fail(f"{', '.join(map(str, histories))}: no run with a metric; see docs/backtest.md for what can be read")
    except HistoryError as error:
        _fail(str(error))
    if html is not None:
        _write_page(html, results)
    for told in results.told:
        click.echo(f"trainwarden: {told}", err=True)
    if results.totals.skipped > len(results.told):
        click.echo(f"trainwarden: {results.totals.skipped:,} malformed places were left out in all", err=True)
    if form == "json":
        sys.stdout.buffer.write(as_json(results))
        sys.stdout.buffer.flush()
    else:
        _print_text(results, None if show_all else _MOST_SHOWN)
    sys.exit(ExitCode.DONE)


def replay_histories(
    histories: tuple[Path, ...], job: Job, reader: str | None, processes: int | None, *, quiet: bool
) -> Results:
    """Replay all runs of some files and folders, with progress on standard error.

    Raises:
        HistoryError: A history can't be read.
    """
    import os

    from trainwarden.controller.backtesting.progress import Counted, progress
    from trainwarden.controller.backtesting.results import Results
    from trainwarden.controller.backtesting.working import replay_all
    from trainwarden.controller.histories.recording import Reading

    histories = _once(histories)
    results = Results([policy.metadata.name for policy in job.policies], job.setting)
    reading = Reading(skip=job.skip)
    total, size = None, sum(_size(path) for path in histories)
    if size <= _MOST_COUNTED:
        total = sum(1 for _ in _recordings(histories, Reading(skip=job.skip), reader))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    few = total == 1 or (total is not None and total <= _FEW and size < _SMALL)
    workers = processes or (1 if few else cores)
    with progress(total, quiet=quiet) as shown:
        recordings: Iterator[Recording] = _recordings(histories, reading, reader)
        if workers == 1:
            recordings = (Counted(each, shown) for each in recordings)
        for batch in replay_all(recordings, job, processes=workers):
            results.take(batch)
            shown.advance(batch.done)
    results.totals.skipped += reading.skipped
    results.told += reading.told[: 20 - len(results.told)]
    return results


def _once(histories: tuple[Path, ...]) -> tuple[Path, ...]:
    """Each file and folder once, however often and in whatever way it was named; what lies in a named folder, there."""
    named = {path.resolve(): path for path in reversed(histories)}
    folders = {where for where in named if where.is_dir()}
    return tuple(path for where, path in reversed(named.items()) if folders.isdisjoint(where.parents))


def _recordings(histories: tuple[Path, ...], reading: Reading, reader: str | None) -> Iterator[Recording]:
    from trainwarden.controller.histories.formats import recordings_in

    for path in histories:
        yield from recordings_in(path, reading, reader=reader)


def _size(path: Path) -> int:
    try:
        if path.is_dir():
            return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
        return path.stat().st_size
    except OSError:
        return 0


def _policies(
    files: tuple[Path, ...], presets: tuple[str, ...], changes: tuple[str, ...], *, by_labels: bool
) -> list[Policy]:
    from trainwarden.controller.backtesting.judges import RepeatedNameError, as_judges
    from trainwarden.controller.policy_files import check_files

    if not files and not presets:
        _fail("no policy; give at least one with --policy FILE or --preset NAME")
    if changes and not presets:
        _fail("--set changes parameters of a preset; give one with --preset NAME")
    checked = check_files(files)
    if checked.problems:
        for problem in checked.problems:
            click.echo(str(problem), err=True)
        sys.exit(ExitCode.WRONG_INPUT)
    try:
        return as_judges([*checked.policies, *_presets(presets, changes)], by_labels=by_labels)
    except RepeatedNameError as error:
        _fail(str(error))


def _presets(names: tuple[str, ...], changes: tuple[str, ...]) -> list[Policy]:
    from trainwarden.policies.loading import load_policies
    from trainwarden.policies.presets import PresetError

    found: list[Policy] = []
    for name in names:
        try:
            changed = changed_preset(name, changes)
        except PresetError as error:
            _fail(f"--preset: {error}")
        except ChangesError as error:
            _fail(*str(error).splitlines())
        for note in changed.notes:
            click.echo(f"trainwarden: {note}", err=True)
        found += load_policies(changed.text, source=f"preset {name}").policies
    return found


def _labels(given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for label in given:
        key, equals, value = label.partition("=")
        if not equals or not key:
            _fail(f"--label {label!r}; write KEY=VALUE, such as tier=dev")
        found[key] = value
    return found


def _duration(option: str, text: str | None) -> timedelta | None:
    from trainwarden.policies.durations import parse_duration

    if text is None:
        return None
    try:
        return parse_duration(text)
    except ValueError as error:
        _fail(f"{option} {text!r}: {error}")


def steps_planned(text: str | None) -> int | Literal["last"] | None:
    """What `--total-steps` says; ends the command when it is wrong."""
    if text is None:
        return None
    if text == "last":
        return "last"
    if not text.isdecimal() or int(text) == 0:
        _fail(f"--total-steps {text!r}; write a number of steps, or last")
    return int(text)


def _write_page(path: Path, results: Results) -> None:
    from trainwarden.controller.backtesting.page import as_html

    try:
        path.write_text(as_html(results), encoding="utf-8")
    except OSError as error:
        _fail(f"--html: {path} can't be written: {error.strerror}")


def _print_text(results: Results, most: int | None) -> None:
    import shutil

    from trainwarden.controller.backtesting.text import as_text

    terminal = sys.stdout.isatty()
    width = min(shutil.get_terminal_size((120, 40)).columns, _WIDEST)
    click.echo(as_text(results, most=most, width=max(width, 80), color=terminal), nl=False)
