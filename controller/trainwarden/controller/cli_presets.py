"""`trainwarden policy presets`: the ready policies, listed, or printed as YAML with a team's own parameters."""

from __future__ import annotations

import sys
from typing import NoReturn

import click

from trainwarden.controller.exit_codes import ExitCode

__all__ = ["policy_presets"]


@click.command("presets")
@click.argument("name", required=False)
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="PARAMETER=CEL",
    help="As in --set metric=eval/wer --set tolerance=0.003.",
)
def policy_presets(name: str | None, changes: tuple[str, ...]) -> None:
    """List ready policies, or print the one of NAME as YAML. Their figures are in docs/presets.md."""
    from trainwarden.controller.cli_values import ChangesError, changed_preset
    from trainwarden.policies.presets import PRESETS, PresetError, parameters, preset

    if name is None:
        if changes:
            _fail("--set needs the NAME of a preset before it")
        for each in PRESETS:
            first = preset(each).splitlines()[0].removeprefix("# ")
            click.echo(f"{each:16}{first}\n{'':16}parameters: {', '.join(parameters(each))}")
        return
    try:
        changed = changed_preset(name, changes)
    except (ChangesError, PresetError) as error:
        _fail(*str(error).splitlines())
    for note in changed.notes:
        click.echo(f"trainwarden: {note}", err=True)
    click.echo(changed.text, nl=False)


def _fail(*lines: str) -> NoReturn:
    for line in lines:
        click.echo(f"trainwarden: {line}", err=True)
    sys.exit(ExitCode.WRONG_INPUT)
