"""Whatever of ours stands still or dies for a while: a healthy training is neither stalled nor silent by it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.controller.local.running import TRAINING, policy, start, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")]

AWAY = 9.0
"""Seconds of the outage; the rules take 6."""
STILL = policy('progress.sinceStep > duration("6s")', "{type: Suspend, checkpoint: Skip}", name="still")
SILENT = policy('progress.sinceReport > duration("6s")', "{type: Delete, checkpoint: Skip}", name="silent")


def processes(folder: Path) -> dict[str, int]:
    """Processes of a run by what they are: nats-server, the training, trainwarden, and their keepers."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().decode().split("\0")
            here = (entry / "cwd").readlink().is_relative_to(folder)
        except OSError:
            continue
        if here or any(str(folder) in word for word in words):
            keeper = "keeper " if any("keeper" in word for word in words) else ""
            names = [
                name for name in ("nats-server", "trainwarden.controller.cli", "train.py") if name in " ".join(words)
            ]
            found[keeper + (names or ["other"])[0]] = int(entry.name)
    return found


@pytest.fixture
def run(tmp_path: Path) -> subprocess.Popen[str]:
    (tmp_path / "train.py").write_text(TRAINING)
    (tmp_path / "still.yaml").write_text(STILL)
    (tmp_path / "silent.yaml").write_text(SILENT)
    process = start(
        tmp_path, "run", "--plain", "--policy", "still.yaml", "--policy", "silent.yaml", "--",
        sys.executable, "train.py", STEPS="2000", TRAINWARDEN_HOME=str(tmp_path / "home"),
    )  # fmt: skip
    assert wait_until((tmp_path / "checkpoints").exists)
    time.sleep(3)
    return process


def goes_on_to_its_end(process: subprocess.Popen[str]) -> None:
    output, _ = process.communicate(timeout=120)
    assert "completed at 2000" in output
    assert "fired    nothing" in output
    assert process.returncode == 0, output


@pytest.mark.parametrize(
    "stopped",
    [
        ("nats-server",),
        ("trainwarden.controller.cli",),
        ("nats-server", "trainwarden.controller.cli"),
        ("nats-server", "trainwarden.controller.cli", "train.py"),
    ],
    ids=["nats-server", "trainwarden", "both", "all, as on a machine that sleeps"],
)
def test_what_stood_still_for_a_while_ends_no_training(
    run: subprocess.Popen[str], tmp_path: Path, stopped: tuple[str, ...]
) -> None:
    found = processes(tmp_path)
    numbers = [found[name] for name in stopped]
    for number in numbers:
        os.kill(number, signal.SIGSTOP)
    time.sleep(AWAY)
    for number in numbers:
        os.kill(number, signal.SIGCONT)
    goes_on_to_its_end(run)


def test_a_server_that_dies_again_and_again_ends_no_training(run: subprocess.Popen[str], tmp_path: Path) -> None:
    for _ in range(8):
        if number := processes(tmp_path).get("nats-server"):
            os.kill(number, signal.SIGKILL)
        time.sleep(1.2)
    goes_on_to_its_end(run)
