"""Every example under its policy does what examples/README.md says, with nothing but what is installed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
SUSPENDED, STOPPED = 75, 76


def run(folder: Path, policy: str, *command: str) -> tuple[int, list[dict[str, Any]], str]:
    """Run a training under a policy; the exit code, the decision log, and all that was written."""
    log = folder / "decisions.jsonl"
    trainwarden = [sys.executable, "-m", "trainwarden.controller.cli", "run", "--plain", "--log", str(log)]
    ended = subprocess.run(
        [*trainwarden, "--policy", str(EXAMPLES / policy / "policy.yaml"), "--", sys.executable, *command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    decisions = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return ended.returncode, decisions, ended.stdout + ended.stderr


def done(decisions: list[dict[str, Any]], rule: str, action: str) -> list[dict[str, Any]]:
    """Decisions that say that an action of a rule is done."""
    return [
        each
        for each in decisions
        if each["rule"] == rule and each.get("actionState") == "Done" and each["action"]["type"] == action
    ]


@pytest.mark.parametrize(
    ("example", "rule", "action", "code", "proven"),
    [
        ("transformers_plateau", "plateau", "Suspend", SUSPENDED, True),
        ("transformers_nan", "not-finite", "Suspend", SUSPENDED, False),
        ("hang", "stall", "Suspend", SUSPENDED, False),
        ("torch_loop", "plateau", "Suspend", SUSPENDED, True),
        ("ddp", "plateau", "Suspend", SUSPENDED, True),
        ("plain_loop", "converged", "Stop", STOPPED, True),
    ],
)
def test_an_ill_training_is_acted_on(
    tmp_path: Path, example: str, rule: str, action: str, code: int, proven: bool
) -> None:
    launcher = TORCHRUN if example == "ddp" else []
    ended, decisions, output = run(tmp_path, example, *launcher, str(EXAMPLES / example / "train.py"))

    assert ended == code, output
    (acted,) = done(decisions, rule, action)
    assert bool((acted["proof"] or {}).get("digest")) is proven


@pytest.mark.parametrize("kind", ["warmup", "noisy", "cosine_restarts", "slow"])
def test_a_healthy_training_is_left_alone(tmp_path: Path, kind: str) -> None:
    ended, decisions, output = run(tmp_path, "healthy", str(EXAMPLES / "healthy" / "train.py"), kind)

    assert ended == 0, output
    assert [each for each in decisions if each["verdict"] == "Firing"] == []
