"""A small training, policies for it, and `trainwarden run` around it, for the tests of local mode."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_WITHIN = 60.0  # seconds that a run may take

__all__ = ["TRAINING", "Run", "alive", "policy", "start", "start_under_nohup", "trainwarden", "wait_until"]

TRAINING = '''
"""Counts steps, saves when asked; its loss falls to a level and stays there."""
import json, os, random, sys, time
from pathlib import Path
from trainwarden.reporters.loop import TrainingLoop

steps = int(os.environ.get("STEPS", "100000"))
folder = Path("checkpoints"); folder.mkdir(exist_ok=True)
chance = random.Random(1)

def save(step):
    path = folder / f"step-{step}.json"
    path.write_text(json.dumps({"step": step}))
    return path

with TrainingLoop(total=steps, save=None if os.environ.get("NO_SAVE") else save) as loop:
    if loop.resume_path:
        loop.step = json.loads(Path(loop.resume_path).read_text())["step"]
        print("resumed at", loop.step, flush=True)
    while not loop.over:
        for step, _ in loop.steps(range(100)):
            time.sleep(0.01)
            loop.log(loss=float(os.environ.get("LOSS", "1.0")) + chance.gauss(0, 0.001))
print("completed at", loop.step, flush=True)
sys.exit(int(os.environ.get("CODE", "0")))
'''


def policy(when: str, *actions: str, mode: str = "Enforce", name: str = "watch") -> str:
    """A policy of one rule."""
    steps = "".join(f"    - {action}\n" for action in actions)
    return (
        "apiVersion: trainwarden.dev/v1alpha1\nkind: TrainingPolicy\n"
        f"metadata: {{name: {name}}}\nspec:\n  mode: {mode}\n  selector: {{}}\n  rules:\n  - name: rule\n"
        f"    when: {json.dumps(when)}\n" + (f"    actions:\n{steps}" if steps else "")
    )


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a run."""

    code: int
    output: str
    decisions: list[dict[str, Any]]

    def acted(self, action: str, state: str) -> list[dict[str, Any]]:
        """Decisions of one kind of action in one state."""
        return [
            d for d in self.decisions if d["action"] and d["action"]["type"] == action and d["actionState"] == state
        ]


def start(folder: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Start `trainwarden` in a folder."""
    return _start(folder, arguments, environment, None)


def start_under_nohup(folder: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Start `trainwarden` as `nohup` does."""
    return _start(folder, arguments, environment, _ignore_hangup)


def _ignore_hangup() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _start(
    folder: Path, arguments: Sequence[str], environment: Mapping[str, str], prepared: Callable[[], None] | None
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "trainwarden.controller.cli", *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=prepared,
    )


def trainwarden(folder: Path, *arguments: str, **environment: str) -> Run:
    """Run `trainwarden` to its end; `--log decisions.jsonl` is read when it was given."""
    process = start(folder, *arguments, **environment)
    try:
        output, _ = process.communicate(timeout=_WITHIN)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        raise AssertionError(f"trainwarden did not end within {_WITHIN:g} s:\n{output}") from None
    log = folder / "decisions.jsonl"
    decisions = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return Run(process.returncode, output, decisions)


def alive(marker: str) -> list[int]:
    """Processes that have a marker in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if marker.encode() in entry.read_bytes():
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def wait_until(condition: Any, within: float = 30.0) -> bool:
    """Wait for a condition, within bounds; whether it came true."""
    until = time.monotonic() + within
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.05)
    return bool(condition())
