"""The command line: `trainwarden run`, `resume`, `policy …`, `demo`. Imports what a command needs when it runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from trainwarden.controller.cli_backtest import policy_backtest
from trainwarden.controller.cli_cluster import COMMANDS, with_cluster
from trainwarden.controller.cli_policy_test import policy_test
from trainwarden.controller.cli_presets import policy_presets
from trainwarden.controller.cli_roles import bridge, engine, notifier, operator
from trainwarden.controller.cli_tune import policy_tune
from trainwarden.controller.cli_values import Finite, moment_of
from trainwarden.controller.exit_codes import ExitCode

if TYPE_CHECKING:
    from trainwarden.controller.local.session import Ending

__all__ = ["main"]

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("trainwarden")
    except PackageNotFoundError:
        return "unknown"


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        click.echo(f"trainwarden {_version()}")
        context.exit()


@click.group(context_settings=_CONTEXT)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Say which.")
def main() -> None:
    """Watch trainings by policies: tell people, checkpoint, suspend, resume."""


def _fail(code: ExitCode, *lines: str) -> NoReturn:
    for line in lines:
        click.echo(f"trainwarden: {line}", err=True)
    sys.exit(code)


def _shared(command: Any) -> Any:
    """Options of both `run` and `resume`."""
    options = [
        click.option("--notify", multiple=True, metavar="URL", help="Where to send messages: any Apprise URL."),
        click.option(
            "--notify-file", type=click.Path(path_type=Path), metavar="FILE", help="The same, one a line, from a file."
        ),
        click.option(
            "--log", type=click.Path(path_type=Path), metavar="FILE", help="Append every decision as a line of JSON."
        ),
        click.option("--plain", is_flag=True, help="Plain lines instead of the live panel."),
        click.option("--grace", type=Finite(min=0), default=30.0, help="Seconds to end in (30)."),
        click.option("--nats-port", type=click.IntRange(0, 65_535), default=0, help="Port of nats-server (any)."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@main.command(context_settings={"allow_interspersed_args": False})  # what follows COMMAND is its own
@click.option(
    "--policy",
    "policy_files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Policies to judge by.",
)
@click.option("--price-per-hour", type=Finite(min=0), help="Money for an hour of the job.")
@click.option("--deadline", metavar="T", help="When it must be done: 2h30m from now, or 2026-12-24T18:00.")
@click.option("--name", help="Name of the job; without it after the script.")
@click.option("--namespace", default="local", show_default=True, help="Namespace of the job.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Label that policies select by.")
@click.option("--gpus", type=click.IntRange(min=0), default=0, help="GPUs that the job uses, for GPU-hours.")
@_shared
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def run(
    policy_files: tuple[Path, ...],
    price_per_hour: float | None,
    deadline: str | None,
    name: str | None,
    namespace: str,
    labels: tuple[str, ...],
    gpus: int,
    notify: tuple[str, ...],
    notify_file: Path | None,
    log: Path | None,
    plain: bool,
    grace: float,
    nats_port: int,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND as a training, and judge it by policies.

    \b
    trainwarden run --policy flat-loss.yaml -- python train.py --epochs 3
    """
    from trainwarden.controller.local.workspace import UnwritableTextError, Workspace, WorkspaceError, job_name
    from trainwarden.reporters.wire import WireError, subject_token

    if not command:
        _fail(ExitCode.WRONG_INPUT, "no command; write it after --, such as: -- python train.py")
    if not policy_files:
        _fail(ExitCode.WRONG_INPUT, "no policy; give at least one with --policy FILE")
    policies = _policies(policy_files, namespace)
    channels = _channels(notify, notify_file)
    name = name or job_name(list(command))
    try:
        subject_token(name)
        subject_token(namespace)
    except WireError as error:
        _fail(ExitCode.WRONG_INPUT, str(error))
    try:
        until = moment_of(deadline) if deadline is not None else None
    except ValueError as error:
        _fail(ExitCode.WRONG_INPUT, f"--deadline {deadline!r}{error}")
    _check_log(log)
    try:
        folder, record = Workspace().create(
            name,
            namespace=namespace,
            command=list(command),
            folder=str(Path.cwd()),
            labels=_labels(labels),
            gpus=gpus,
            price_per_hour=price_per_hour,
            deadline=until,
            notify_file=str(notify_file.absolute()) if notify_file is not None else "",
            log=str(log.absolute()) if log is not None else "",
        )
    except UnwritableTextError as error:
        _fail(ExitCode.WRONG_INPUT, str(error))
    except WorkspaceError as error:
        _fail(ExitCode.FAILED, str(error))
    try:
        _keep_policies(folder, policy_files)
        _log_into(folder)
    except SystemExit:
        folder.discard()
        raise
    _run_session(folder, record, policies, channels, log, plain, grace, nats_port)


@main.command()
@click.argument("run_name", metavar="[RUN]", required=False)
@click.option(
    "--policy", "policy_files", multiple=True, type=click.Path(path_type=Path), metavar="FILE", help="Other policies."
)
@click.option(
    "--dir",
    "place",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="Folder that the run was started in, or its TRAINWARDEN_HOME; without it this one.",
)
@click.option("--force", is_flag=True, help="Go on although the checkpoint's files have changed.")
@_shared
def resume(
    run_name: str | None,
    policy_files: tuple[Path, ...],
    place: Path | None,
    force: bool,
    notify: tuple[str, ...],
    notify_file: Path | None,
    log: Path | None,
    plain: bool,
    grace: float,
    nats_port: int,
) -> None:
    """Go on with a suspended run from its checkpoint; without RUN the newest suspended one of the folder."""
    import asyncio

    from trainwarden.controller.local.checkpoint import problem_of_checkpoint
    from trainwarden.controller.local.workspace import Workspace, WorkspaceError

    try:
        folder, record = Workspace(place).find(run_name)
    except WorkspaceError as error:
        _fail(ExitCode.WRONG_INPUT, str(error))
    if not record.resumable:
        ended = record.state in ("complete", "deleted")
        why = f"is {record.state}; there is nothing to resume" if ended else "has no complete checkpoint; run it anew"
        _fail(ExitCode.WRONG_INPUT, f"{record.name}-{record.id} {why}")
    if record.checkpoint is not None and not force:
        problem = asyncio.run(problem_of_checkpoint(record.checkpoint, Path(record.folder)))
        if problem:
            _fail(ExitCode.WRONG_INPUT, f"{problem}; put them back, or go on anyway with --force")
    if not Path(record.folder).is_dir():
        _fail(ExitCode.WRONG_INPUT, f"the folder {record.folder}, where the run began, is gone")
    if not notify and notify_file is None and record.notify_file:
        notify_file = Path(record.notify_file)
    if log is None and record.log:
        log = Path(record.log)
    files = policy_files or tuple(sorted(folder.policies.iterdir()))
    policies = _policies(files, record.namespace)
    _check_log(log)
    if policy_files:
        _keep_policies(folder, policy_files)
    _log_into(folder)
    _run_session(folder, record, policies, _channels(notify, notify_file), log, plain, grace, nats_port)


def _keep_policies(folder: Any, files: tuple[Path, ...]) -> None:
    """Put copies into the run's folder, which `resume` goes by."""
    try:
        texts = [(path.name, path.read_bytes()) for path in files]
        for old in folder.policies.iterdir():
            old.unlink()
        for index, (name, text) in enumerate(texts):
            (folder.policies / f"{index:02}-{name}").write_bytes(text)
    except OSError as error:
        place = error.filename or folder.policies
        _fail(ExitCode.FAILED, f"{place} can't be kept: {error.strerror}; free space, or set TRAINWARDEN_HOME")


def _check_log(log: Path | None) -> None:
    """Fail before anything is begun when the decision log can't be written."""
    if log is not None:
        try:
            log.open("ab").close()
        except (OSError, ValueError) as error:
            _fail(ExitCode.WRONG_INPUT, f"--log: {log} can't be written: {getattr(error, 'strerror', None) or error}")


def _log_into(folder: Any) -> None:
    """Keep what trainwarden says of itself in the run's folder."""
    import logging

    logging.raiseExceptions = False  # a full disk is said once, not with each line
    try:
        logging.basicConfig(filename=folder.path / "trainwarden.log", format="%(asctime)s %(levelname)s %(message)s")
    except OSError as error:
        _fail(ExitCode.FAILED, f"{folder.path} can't be written: {error.strerror}; free space, or set TRAINWARDEN_HOME")


def _run_session(
    folder: Any,
    record: Any,
    policies: Any,
    channels: Any,
    log: Path | None,
    plain: bool,
    grace: float,
    nats_port: int,
) -> NoReturn:
    import asyncio
    import contextlib
    import logging

    from trainwarden.controller.local.display import display_for
    from trainwarden.controller.local.session import Options, Session
    from trainwarden.controller.local.summary import summary

    options = Options(channels, log, nats_port, grace, _version())
    try:
        ending: Ending = asyncio.run(Session(folder, record, policies, options, display_for(plain=plain)).run())
    except Exception as error:
        logging.getLogger(__name__).exception("trainwarden has failed")
        _fail(ExitCode.FAILED, f"a fault of trainwarden: {type(error).__name__}: {error}; see {folder.path}")
    finally:
        folder.release()
    with contextlib.suppress(OSError):  # nobody reads it any more
        for line in summary(ending):
            print(f"trainwarden: {line}", file=sys.stderr)
    sys.exit(int(ending.code))


def _policies(files: tuple[Path, ...], namespace: str) -> list[Any]:
    """Load policies and put those of a namespace into the job's: here all given policies are for the one job."""
    from trainwarden.controller.policy_files import check_files
    from trainwarden.policies.models import TrainingPolicy

    if Path("-") in files:
        _fail(ExitCode.WRONG_INPUT, "--policy -: give a file, since `resume` needs a copy of it")
    checked = check_files(files)
    if checked.problems:
        _fail(ExitCode.WRONG_INPUT, *(str(problem) for problem in checked.problems))
    placed = []
    names: set[tuple[str, str]] = set()
    for policy in checked.policies:
        meta = policy.metadata
        update = {"uid": meta.uid or f"{policy.kind}/{meta.name}"}
        if isinstance(policy, TrainingPolicy):
            update["namespace"] = namespace
        if (policy.kind, meta.name) in names:
            _fail(ExitCode.WRONG_INPUT, f"two policies of the name {meta.name!r}; give each its own")
        names.add((policy.kind, meta.name))
        placed.append(policy.model_copy(update={"metadata": meta.model_copy(update=update)}))
    return placed


def _channels(notify: tuple[str, ...], file: Path | None) -> dict[str, tuple[str, ...]]:
    import os

    from trainwarden.notifiers.urls import ChannelUrlError, read_urls

    try:
        return {"default": read_urls(notify, file=file, environment=os.environ)}
    except ChannelUrlError as error:
        _fail(ExitCode.WRONG_INPUT, str(error))


def _labels(given: tuple[str, ...]) -> dict[str, str]:
    labels = {}
    for label in given:
        key, equals, value = label.partition("=")
        if not equals or not key:
            _fail(ExitCode.WRONG_INPUT, f"--label {label!r}; write KEY=VALUE, such as tier=dev")
        labels[key] = value
    return labels


@main.group()
def policy() -> None:
    """Work on policies without running anything."""


@policy.command("check")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE…")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="json is for editors.")
@click.option("--engine", type=click.Choice(["cpp", "python"]), help="CEL engine; without it the faster one.")
def policy_check(files: tuple[Path, ...], form: str, engine: Any) -> None:
    """Check policies; exit code 0 when all are right, 2 when not. `-` reads standard input."""
    import json
    from dataclasses import asdict

    from trainwarden.controller.policy_files import check_files

    try:
        checked = check_files(files, engine=engine)
    except ImportError:
        _fail(ExitCode.WRONG_INPUT, f"--engine {engine}: it is not installed here; leave the option out")
    if form == "json":
        found = []
        for problem in checked.problems:
            fields = asdict(problem)
            fields["file"] = fields.pop("source")
            found.append({**fields, "message": f"{problem.found}; {problem.remedy}", "severity": "error"})
        click.echo(json.dumps(found, indent=2))
    else:
        for problem in checked.problems:
            click.echo(str(problem), err=True)
        for policy_ in checked.policies if not checked.problems else ():
            rules = len(policy_.spec.rules)
            click.echo(f"{policy_.kind} {policy_.metadata.name}: {rules} rule{'s' if rules > 1 else ''}, right")
    sys.exit(ExitCode.WRONG_INPUT if checked.problems else ExitCode.DONE)


for _role in (engine, operator, notifier, bridge):
    main.add_command(_role)
policy.add_command(policy_test)
policy.add_command(policy_presets)
policy.add_command(policy_backtest)
policy.add_command(policy_tune)


@main.command()
@click.option("--keep", is_flag=True, help="Keep the folder of the demo.")
@click.option(
    "--training",
    type=click.Choice(["auto", "transformers", "plain"]),
    default="auto",
    help="What trains; auto: the best.",
)
def demo(keep: bool, training: str) -> None:
    """Watch a real training go flat, be checkpointed, suspended, told of and resumed. Takes about a minute."""
    from trainwarden.controller.demo.story import tell

    sys.exit(tell(training=training, keep=keep))


with_cluster(resume)
for _command in COMMANDS:
    main.add_command(_command)


def kubectl_main() -> None:
    """`kubectl trainwarden …`: kubectl runs `kubectl-trainwarden` from the PATH."""
    main(prog_name="kubectl trainwarden")


if __name__ == "__main__":
    main()
