"""Two real processes agree on the step after which both save; and none hangs when the other is slow, silent or dead."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainwarden.reporters.proof import measure

pytest.importorskip("torch")

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROGRAM = str(ROOT / "tests" / "reporters" / "ranks_program.py")
TRAINER_PROGRAM = str(ROOT / "tests" / "reporters" / "trainer_ranks_program.py")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def torchrun(folder: Path, what: str, program: str = PROGRAM) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TORCHRUN, "--master-addr", "127.0.0.1", "--master-port", str(free_port()), program, str(folder), what],
        env=ENVIRONMENT,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


def seen(folder: Path) -> list[dict[str, Any]]:
    return [json.loads((folder / f"seen-{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.parametrize("what", ["even", "slow"])
def test_both_ranks_save_at_the_same_step_hold_and_stop(tmp_path: Path, what: str) -> None:
    ended = torchrun(tmp_path, what)

    assert ended.returncode == 0, ended.stderr
    first, second = seen(tmp_path)
    assert first["saved"] == second["saved"]
    assert len(first["saved"]) == 2
    assert first["steps"] == second["steps"] == first["saved"][-1]
    for step, (state, reason, digest) in zip(first["saved"], first["replies"], strict=True):
        assert (state, reason) == ("saved", "")
        assert digest == measure(tmp_path / f"step-{step}").digest  # proven once both ranks had written
    assert first["phases"][-1] == "done"


@pytest.mark.parametrize("what", ["even", "slow"])
def test_a_trainer_on_two_ranks_saves_and_stops_at_the_same_step(tmp_path: Path, what: str) -> None:
    pytest.importorskip("transformers")
    ended = torchrun(tmp_path, what, TRAINER_PROGRAM)

    assert ended.returncode == 0, ended.stderr
    first, second = seen(tmp_path)
    (step,) = first["saved"]
    assert second["saved"] == [step]
    assert first["step"] == second["step"] == step < 100_000
    folder = tmp_path / "out" / f"checkpoint-{step}"
    assert {"rng_state_0.pth", "rng_state_1.pth"} <= {path.name for path in folder.iterdir()}
    assert first["replies"] == [["saved", measure(folder).digest]]
    assert first["end"] == ["done"]


def test_under_torchrun_all_ends_when_a_rank_dies_during_the_hand_shake(tmp_path: Path) -> None:
    ended = torchrun(tmp_path, "dies")

    assert ended.returncode != 0
    assert not (tmp_path / "seen-1.json").exists()


@pytest.mark.parametrize("what", ["dies alone", "silent"])
def test_a_rank_goes_on_when_the_other_never_answers(tmp_path: Path, what: str) -> None:
    environment = {**ENVIRONMENT, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen([sys.executable, PROGRAM, str(tmp_path), what], env={**environment, "RANK": str(rank)})
        for rank in (0, 1)
    ]
    try:
        codes = [rank.wait(timeout=120) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()

    assert codes == ([0, 9] if what == "dies alone" else [0, 0])
    first = json.loads((tmp_path / "seen-0.json").read_text())
    assert first["saved"] == []
    assert first["steps"] == 400
    (state, reason, _), *more = first["replies"]
    assert (state, "no answer of rank 1" in reason, more) == ("failed", True, [])
