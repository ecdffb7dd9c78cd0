"""In a terminal the command's own lines stand above a live panel; without one there are plain lines."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.controller.local.running import TRAINING, policy

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="there are no terminals as these")]

_CODES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def in_a_terminal(folder: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    """Run trainwarden on a terminal of its own; exit code, and all that was drawn, without colours."""
    mine, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "trainwarden.controller.cli", *arguments],
        cwd=folder,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30", **environment},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    drawn = b""
    while True:
        try:
            data = os.read(mine, 65_536)
        except OSError:
            break
        if not data:
            break
        drawn += data
    os.close(mine)
    return process.wait(timeout=30), _CODES.sub("", drawn.decode(errors="replace"))


def test_a_terminal_shows_progress_rules_and_the_commands_own_lines(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    (tmp_path / "policy.yaml").write_text(policy('plateau("loss", duration("1h"))', "{type: Notify}"))

    code, drawn = in_a_terminal(
        tmp_path, "run", "--policy", "policy.yaml", "--", sys.executable, "train.py", STEPS="400"
    )

    assert code == 0, drawn
    assert re.search(r"step \d+/400 \(\d+ %\)", drawn)
    assert "loss " in drawn
    assert "local/watch/rule  Unknown: " in drawn
    assert "completed at 400" in drawn
    assert "complete after" in drawn
