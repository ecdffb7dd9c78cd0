"""`python -m tools.cluster.keeper FOLDER`: takes a cluster down once the process that holds our stdin open is gone.

A test run that is killed can't do so itself, and would leave programs, mounts and a bridge behind.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.cluster.cluster import stop

__all__ = ["kept"]


@contextmanager
def kept(folder: Path) -> Iterator[None]:
    """Have the cluster of a folder taken down at the end, however this process ends."""
    command = [sys.executable, "-m", "tools.cluster.keeper", str(folder)]
    keeper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        yield
    finally:
        stop(folder)
        keeper.communicate()


if __name__ == "__main__":
    sys.stdin.read()
    stop(Path(sys.argv[1]))
