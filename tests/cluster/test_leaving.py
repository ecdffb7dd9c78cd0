"""A cluster leaves nothing behind, however the process that has started it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tools.cluster.node import missing, sweep
from tools.cluster.processes import Processes, wait_until

_HOLDER = """
import sys, time
from pathlib import Path
from tools.cluster.keeper import kept
from tools.cluster.processes import Processes
folder = Path(sys.argv[1])
with kept(folder):
    Processes(folder / "logs").start("sleeper", ["sleep", "1000"])
    print("started", flush=True)
    time.sleep(1000)
"""


def test_a_killed_test_run_leaves_no_program(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    holder = subprocess.Popen([sys.executable, "-c", _HOLDER, str(folder)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"started\n"
    processes = Processes(folder / "logs")
    assert processes.alive("sleeper")

    holder.kill()
    holder.communicate()

    wait_until(lambda: not processes.alive("sleeper") and not folder.exists(), "all is gone")


def test_what_a_dead_cluster_has_left_is_swept_away_and_a_living_one_is_let_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bridge = "trainwarden9"
    monkeypatch.setattr("tools.cluster.node.BRIDGE", bridge)
    if lacking := missing():
        pytest.skip(lacking)
    processes = Processes(tmp_path / "logs")
    processes.start("sleeper", ["sleep", "1000"])
    try:
        subprocess.run(["ip", "link", "add", bridge, "type", "bridge"], check=True)
        subprocess.run(["ip", "link", "set", bridge, "alias", str(tmp_path)], check=True)
        assert missing() == f"the bridge {bridge} is there: another cluster has the node ({tmp_path})"
        sweep()
        assert Path(f"/sys/class/net/{bridge}").exists()

        processes.kill("sleeper")
        assert missing() == ""
        sweep()
        assert not Path(f"/sys/class/net/{bridge}").exists()
    finally:
        processes.stop("sleeper")
        subprocess.run(["ip", "link", "delete", bridge], check=False, capture_output=True)
