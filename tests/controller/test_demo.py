"""The README's story holds: flat, saved, suspended, told, resumed."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.timeout(330)
@pytest.mark.parametrize("training", ["plain", "transformers"])
def test_the_demo_goes_as_it_says(tmp_path: Path, training: str) -> None:
    if training == "transformers":
        pytest.importorskip("transformers")

    command = [sys.executable, "-m", "trainwarden.controller.cli", "demo", "--training", training]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)

    assert told.returncode == 0, told.stdout + told.stderr
    assert "That was the whole story." in told.stdout
    message = (tmp_path / "trainwarden-demo" / "message.md").read_text()
    assert "suspended" in message
    assert "trainwarden resume demo-" in message
    assert "sha256:" in message
    assert (tmp_path / "trainwarden-demo" / "curve.png").read_bytes().startswith(b"\x89PNG")
