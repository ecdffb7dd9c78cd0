"""Tells the story with the real parts: `trainwarden run`, a real training, a real message, `trainwarden resume`."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from trainwarden.controller.demo.receiver import Received, Receiver
from trainwarden.controller.exit_codes import ExitCode

__all__ = ["tell"]

_HERE = Path(__file__).parent
_LONGEST = 300.0  # seconds that either half may take


def tell(*, training: str, keep: bool) -> int:
    """Run the demo in a folder of its own; 0 when all went as told.

    Args:
        training: "plain", "transformers", or "auto" for transformers where it is installed.
        keep: Leave the folder where it is, with the run in it.
    """
    able = all(importlib.util.find_spec(name) is not None for name in ("torch", "transformers", "accelerate"))
    if training == "transformers" and not able:
        click.echo(
            "trainwarden: transformers is not installed; `pip install trainwarden[examples]` brings it", err=True
        )
        return ExitCode.WRONG_INPUT
    which = "transformers" if able and training != "plain" else "plain"
    folder = Path(tempfile.mkdtemp(prefix="trainwarden-demo-"))
    try:
        with Receiver() as receiver:
            return _tell(which, folder, receiver)
    finally:
        if keep:
            click.echo(f"the run is in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _tell(which: str, folder: Path, receiver: Receiver) -> int:
    policy = folder / "flat-loss.yaml"
    shutil.copy(_HERE / "policy.yaml", policy)
    what = "a small GPT-2 in transformers" if which == "transformers" else "a classifier in plain Python"
    _say(f"A training starts: {what}. This policy watches it:")
    click.echo(policy.read_text())
    command = [sys.executable, "-u", str(_HERE / f"{which}_training.py")]
    log = folder / "decisions.jsonl"
    options = ["--policy", policy.name, "--notify", receiver.url, "--log", log.name, "--price-per-hour", "12.50"]
    code = _trainwarden(folder, "run", "--plain", "--name", "demo", *options, "--", *command)
    if code != ExitCode.SUSPENDED:
        _say(f"That was not to happen: the run ended with exit code {code}, not {int(ExitCode.SUSPENDED)} (suspended).")
        return code or 1
    if len(receiver.messages) != 1:
        _say(f"That was not to happen: {len(receiver.messages)} messages came, not one.")
        return 1
    _show(receiver.messages[0])
    decisions = [json.loads(line) for line in log.read_text().splitlines()]
    _say(f"The decision log has {len(decisions)} lines; this is why it was suspended:")
    fired = next(each for each in decisions if each["verdict"] == "Firing")
    click.echo(json.dumps({key: fired[key] for key in ("time", "rule", "verdict", "reason", "message")}, indent=2))
    click.echo(f"  evidence: {json.dumps(fired['evidence']['values'])}\n")
    _say("One command resumes it from its checkpoint; a rule that has suspended a run lets whoever resumes it go on.")
    code = _trainwarden(folder, "resume", "--plain")
    _say("That was the whole story." if code == 0 else f"The resumed run ended with exit code {code}.")
    return code


def _trainwarden(folder: Path, *arguments: str) -> int:
    shown = " ".join("python train.py" if each.endswith("_training.py") else each for each in arguments)
    click.echo(click.style(f"$ trainwarden {shown.replace(f'{sys.executable} -u ', '')}", bold=True))
    command = [sys.executable, "-m", "trainwarden.controller.cli", *arguments]
    try:
        code = subprocess.run(command, cwd=folder, timeout=_LONGEST, check=False).returncode
    except subprocess.TimeoutExpired:
        click.echo(f"trainwarden: the demo took longer than {_LONGEST:g} s", err=True)
        return 1
    click.echo("")
    return code


def _show(message: Received) -> None:
    """The message as a person gets it; kept, with its picture, where it can be opened."""
    kept = Path.cwd() / "trainwarden-demo"
    kept.mkdir(exist_ok=True)
    (kept / "message.md").write_text(f"# {message.title}\n\n{message.text}\n")
    _say("One message was delivered (here to a receiver on this machine):")
    click.echo(f"  {message.title}\n")
    for line in message.text.splitlines():
        click.echo(f"  {line}")
    for picture in message.pictures:
        (kept / "curve.png").write_bytes(picture)
    click.echo("")
    _say(f"The message and its picture of the curve are in {kept.name}/ (message.md, curve.png).")


def _say(text: str) -> None:
    click.echo(click.style(f"── {text}", fg="cyan"))
    click.echo("")
