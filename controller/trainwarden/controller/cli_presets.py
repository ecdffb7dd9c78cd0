"""`trainwarden policy presets`: the ready policies, listed, or printed as YAML with a team's own parameters."""

from __future__ import annotations

import sys
from typing import NoReturn

import click

from trainwarden.controller.exit_codes import ExitCode

__all__ = ["policy_presets"]


@click.command("presets")
@click.argument("name", required=False)
@click.option("--set", "changes", multiple=True, metavar="PARAMETER=CEL", help="As in --set metric='\"eval/wer\"'.")
def policy_presets(name: str | None, changes: tuple[str, ...]) -> None:
    """List ready policies, or print the one of NAME as YAML. Their figures are in docs/presets.md."""
    from trainwarden.policies.compiling import compile_loaded
    from trainwarden.policies.expressions.engines import engine
    from trainwarden.policies.loading import load_policies
    from trainwarden.policies.presets import PRESETS, PresetError, parameters, preset

    if name is None:
        if changes:
            _fail("--set needs the NAME of a preset before it")
        for each in PRESETS:
            first = preset(each).splitlines()[0].removeprefix("# ")
            click.echo(f"{each:16}{first}\n{'':16}parameters: {', '.join(parameters(each))}")
        return
    try:
        given = dict(_parted(change) for change in changes)
        text = preset(name, given)
    except PresetError as error:
        _fail(str(error))
    source = f"preset {name}"
    _, problems = compile_loaded(load_policies(text, source=source), engine(), source=source)
    if problems:
        _fail(*map(str, problems))
    click.echo(text, nl=False)


def _parted(change: str) -> tuple[str, str]:
    parameter, equals, value = change.partition("=")
    if not equals or not value.strip():
        _fail(f"--set {change!r}; write PARAMETER=CEL, such as tolerance=0.01")
    return parameter.strip(), value.strip()


def _fail(*lines: str) -> NoReturn:
    for line in lines:
        click.echo(f"trainwarden: {line}", err=True)
    sys.exit(ExitCode.WRONG_INPUT)
