"""The processes of a backtest end with it, however it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.controller.local.running import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")]

POLICY = """apiVersion: trainwarden.dev/v1alpha1
kind: TrainingPolicy
metadata: {name: flat}
spec:
  selector: {}
  rules:
  - {name: flat, when: 'plateau("loss", 500)', actions: [{type: Suspend}]}
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=["KILL", "TERM", "Ctrl-C"])
def test_no_process_works_on_for_a_backtest_that_was_ended(tmp_path: Path, number: int) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    for run in range(40):
        rows = (f'{{"step": {step}, "time": {step}, "loss": {1 + 1 / step}}}\n' for step in range(1, 20_001))
        (tmp_path / f"run-{run}.jsonl").write_text("".join(rows))
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "trainwarden.controller.cli", "policy", "backtest", "--policy", "policy.yaml",
         "--every-report", "--processes", "2", *(f"run-{run}.jsonl" for run in range(40))],
        cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert wait_until(lambda: len(children(process.pid)) >= 2)
    workers = children(process.pid)

    process.send_signal(number)
    process.wait(30)

    assert process.returncode != 0
    assert wait_until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))


def children(pid: int) -> list[int]:
    """Processes of a pool that this one has started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if parent == pid and b"spawn_main" in command:
            found.append(int(folder.name))
    return found
