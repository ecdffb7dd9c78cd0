"""The commands for runs of a cluster: `jobs`, `explain`, `decisions`, `approve`, `deny`, `resume`, `silence`.

All of them work with the caller's own kubeconfig and rights. Imports what a command needs when it runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from trainwarden.controller.exit_codes import ExitCode

if TYPE_CHECKING:
    from datetime import timedelta

    from trainwarden.controller.cluster.console.reaching import Cluster

__all__ = ["COMMANDS", "with_cluster"]

_FORMS = ["wide", "json", "yaml"]


def _reaching(command: Any) -> Any:
    """Options that say which cluster and namespace."""
    options = [
        click.option("--namespace", "-n", metavar="NAME", help="Namespace of the job; without it the context's own."),
        click.option("--context", metavar="NAME", help="Context of the kubeconfig; without it the current one."),
        click.option(
            "--kubeconfig",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Without it KUBECONFIG, else ~/.kube/config.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _output(forms: list[str]) -> Callable[[Any], Any]:
    return click.option("--output", "-o", type=click.Choice(forms), help="Without it a text for people.")


class _Duration(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        from trainwarden.policies.durations import parse_duration

        try:
            return parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


_WAIT = click.option(
    "--wait", type=_Duration(), default="5s", metavar="TIME", help="How long to wait until it is taken (5s)."
)


@contextmanager
def _cluster(kubeconfig: Path | None, context: str | None, namespace: str | None) -> Iterator[Cluster]:
    """The cluster; what goes wrong is said, and ends the command."""
    from trainwarden.controller.cluster.console.errors import ConsoleError
    from trainwarden.controller.cluster.console.reaching import connect

    try:
        cluster = connect(kubeconfig, context, namespace)
        try:
            yield cluster
        finally:
            cluster.close()
    except ConsoleError as error:
        click.echo(f"trainwarden: {error}", err=True)
        sys.exit(error.code)


def _placed(job: str, namespace: str | None) -> tuple[str, str | None]:
    """Name and namespace of NAME or NAMESPACE/NAME."""
    before, slash, name = job.rpartition("/")
    if not slash:
        return job, namespace
    if not before or not name or (namespace is not None and namespace != before):
        raise click.UsageError(f"{job!r} with --namespace {namespace}; write the job's name, or NAMESPACE/NAME alone")
    return name, before


@click.command("jobs")
@_reaching
@click.option("--all-namespaces", "-A", "everywhere", is_flag=True, help="Runs of all namespaces.")
@click.option("--selector", "-l", default="", metavar="LABELS", help="Such as team=nlp,stage in (dev,test),!frozen.")
@click.option("--watch", "-w", is_flag=True, help="Go on, and keep it true.")
@_output(_FORMS)
def jobs(
    namespace: str | None,
    context: str | None,
    kubeconfig: Path | None,
    everywhere: bool,
    selector: str,
    watch: bool,
    output: str | None,
) -> None:
    """List runs of a cluster, with progress and alerts.

    \b
    trainwarden jobs -A --watch
    """
    from datetime import UTC, datetime

    from trainwarden.controller.cluster.console import live
    from trainwarden.controller.cluster.console.output import as_list, console_for, look_for, print_data, print_lines
    from trainwarden.controller.cluster.console.reaching import ALL
    from trainwarden.controller.cluster.console.selectors import parse_selector
    from trainwarden.controller.cluster.console.table import jobs_table

    wide = output == "wide"
    with _cluster(kubeconfig, context, ALL if everywhere else namespace) as cluster:
        labels, console = parse_selector(selector), console_for(sys.stdout, endless=wide and not watch)
        if watch:
            try:
                if output in ("json", "yaml"):
                    live.watch_data(cluster, labels, output)
                else:
                    show = live.watch_picture if console.is_terminal else live.watch_lines
                    show(cluster, labels, console, wide=wide, namespaces=everywhere)
            except KeyboardInterrupt:
                sys.exit(ExitCode.DONE)
        runs, _ = cluster.runs(labels)
    if output in ("json", "yaml"):
        print_data(as_list(runs), output)
    elif not runs:
        where = "in any namespace" if everywhere else f"in namespace {cluster.namespace}; -A looks in all"
        click.echo(f"trainwarden: no runs{' with these labels' if labels else ''} {where}", err=True)
    else:
        look = look_for(console, wide=wide, namespaces=everywhere)
        print_lines(console, jobs_table(runs, datetime.now(UTC), look))


@click.command("explain")
@click.argument("job", metavar="JOB")
@_reaching
@_output(["json", "yaml"])
def explain(job: str, namespace: str | None, context: str | None, kubeconfig: Path | None, output: str | None) -> None:
    """Say how policies judge a run.

    Which ones are for JOB, where their rules stand, what was done, and why nothing more happens.

    \b
    trainwarden explain flat-run -n team-a
    """
    from datetime import UTC, datetime

    from trainwarden.controller.cluster.console.asking import explained
    from trainwarden.controller.cluster.console.drawing import explanation
    from trainwarden.controller.cluster.console.output import console_for, look_for, print_data, print_lines

    job, namespace = _placed(job, namespace)
    now = datetime.now(UTC)
    with _cluster(kubeconfig, context, namespace) as cluster:
        run, found = explained(cluster, job, now)
    if output is not None:
        print_data(found, output)
    else:
        console = console_for(sys.stdout)
        print_lines(console, explanation(found, run, now, look_for(console)))


@click.command("decisions")
@click.argument("job", metavar="JOB")
@_reaching
@_output(_FORMS)
def decisions(
    job: str, namespace: str | None, context: str | None, kubeconfig: Path | None, output: str | None
) -> None:
    """List what was decided about a run.

    Verdicts on JOB, its actions and what became of them, the oldest first.
    """
    from datetime import UTC, datetime

    from trainwarden.controller.cluster.console.asking import decided
    from trainwarden.controller.cluster.console.drawing import decision_table
    from trainwarden.controller.cluster.console.output import console_for, print_data, print_lines

    job, namespace = _placed(job, namespace)
    with _cluster(kubeconfig, context, namespace) as cluster:
        entries, unread = decided(cluster, job)
        where = f"{cluster.namespace}/{job}"
    if output in ("json", "yaml"):
        print_data(entries, output)
    elif entries:
        print_lines(console_for(sys.stdout), decision_table(entries, datetime.now(UTC), wide=output == "wide"))
    else:
        click.echo(f"trainwarden: nothing was decided about {where}; `trainwarden explain` says why", err=True)
    for each in unread:
        click.echo(f"trainwarden: {each}", err=True)


def _answering(name: str, annotation: str, told: str, text: str) -> click.Command:
    """`approve` or `deny`."""

    @click.command(name, help=text)
    @click.argument("job", metavar="JOB")
    @click.argument("action", metavar="[ACTION]", required=False)
    @_reaching
    @_WAIT
    def command(
        job: str,
        action: str | None,
        namespace: str | None,
        context: str | None,
        kubeconfig: Path | None,
        wait: timedelta,
    ) -> None:
        from trainwarden.controller.cluster.console.asking import answer

        job, namespace = _placed(job, namespace)
        with _cluster(kubeconfig, context, namespace) as cluster:
            given = answer(cluster, job, action, annotation, wait)
        click.echo(f"{told} {given.question} for {given.job}{'; trainwarden has taken it' if given.taken else ''}")
        _say_untaken(given.taken, wait)

    return command


def _say_untaken(taken: bool, wait: timedelta) -> None:
    if not taken and wait:
        click.echo("trainwarden: it stands, but is not taken yet; if it stays so, the operator does not run", err=True)


@click.command("silence")
@click.argument("job", metavar="JOB")
@_reaching
@click.option("--for", "length", type=_Duration(), metavar="TIME", help="How long, such as 2h or 1d.")
@click.option("--end", is_flag=True, help="End the silence now.")
def silence(
    job: str,
    namespace: str | None,
    context: str | None,
    kubeconfig: Path | None,
    length: timedelta | None,
    end: bool,
) -> None:
    """Keep policies from a job for a while.

    Nothing is told or done about JOB until then, unless a cluster policy overrules it.

    \b
    trainwarden silence flat-run --for 2h
    """
    from trainwarden.controller.cluster.console.asking import silence as silenced

    if end == (length is not None) or (length is not None and not length):
        raise click.UsageError("give --for with a time such as 2h, or --end")
    job, namespace = _placed(job, namespace)
    with _cluster(kubeconfig, context, namespace) as cluster:
        until = silenced(cluster, job, length)
        where = f"{cluster.namespace}/{job}"
    click.echo(f"{where} is silent until {until}" if until else f"{where} is not silent any more")


def _resume(job: str, namespace: str | None, context: str | None, kubeconfig: Path | None, wait: timedelta) -> None:
    from trainwarden.controller.cluster.console.asking import resume as asked

    with _cluster(kubeconfig, context, namespace) as cluster:
        given = asked(cluster, job, wait)
    click.echo(f"asked to resume {given.job}{'; trainwarden has taken it' if given.taken else ''}")
    _say_untaken(given.taken, wait)


def with_cluster(local: click.Command) -> click.Command:
    """The `resume` of this machine's runs, made to resume those of a cluster as well.

    A name that is known here is a run of this machine, unless a cluster, context or namespace is given.
    """
    go_on, own = local.callback, {parameter.name for parameter in local.params}
    assert go_on is not None  # noqa: S101 - it is a command of ours

    @click.pass_context
    def resume(
        context_: click.Context,
        /,
        namespace: str | None,
        context: str | None,
        kubeconfig: Path | None,
        wait: timedelta,
        **given: Any,
    ) -> None:
        name = given["run_name"]
        sources = {each: context_.get_parameter_source(each) for each in own if each and each != "run_name"}
        local_only = sorted(each for each, source in sources.items() if source is ParameterSource.COMMANDLINE)
        if namespace is not None or context is not None or kubeconfig is not None:
            if name is None:
                raise click.UsageError("name the job that is to be resumed in the cluster")
            if local_only:
                raise click.UsageError(f"{_flags(local, local_only)}: for runs of this machine, not for a cluster's")
            name, namespace = _placed(name, namespace)
        elif name is None or local_only or _known_here(name) or not _has_config():
            go_on(**given)
            return
        else:
            click.echo(f"trainwarden: no run {name!r} of this folder, so it is looked for in the cluster", err=True)
            name, namespace = _placed(name, None)
        _resume(name, namespace, context, kubeconfig, wait)

    local.callback = resume
    of_cluster = _reaching(_WAIT(click.Command("resume")))
    local.params += of_cluster.params
    local.help = (
        f"{local.help}\n\nA RUN that is not known here is a TrainJob of the cluster that trainwarden has suspended; "
        "so is one that is given with --namespace, --context or --kubeconfig."
    )
    return local


def _flags(command: click.Command, names: list[str]) -> str:
    return ", ".join(parameter.opts[0] for parameter in command.params if parameter.name in names)


def _known_here(name: str) -> bool:
    from trainwarden.controller.local.workspace import RunFolder, Workspace, WorkspaceError

    for path in (Workspace().home / "runs").glob("*/run.json"):
        try:
            record = RunFolder(path.parent).load()
        except WorkspaceError:
            continue
        if name in (record.name, record.id, f"{record.name}-{record.id}"):
            return True
    return False


def _has_config() -> bool:
    from trainwarden.controller.cluster.console.kubeconfig import has_config

    return has_config(os.environ)


COMMANDS: tuple[click.Command, ...] = (
    jobs,
    explain,
    decisions,
    _answering(
        "approve",
        "trainwarden.dev/approve",
        "approved",
        "Approve an action that waits for it.\n\nACTION is its id, the beginning of it, or its type such as delete; "
        "without it the only one of JOB that waits.",
    ),
    _answering(
        "deny",
        "trainwarden.dev/deny",
        "denied",
        "Deny an action that waits for an approval.\n\nACTION is its id, the beginning of it, or its type such as "
        "delete; without it the only one of JOB that waits.",
    ),
    silence,
)
