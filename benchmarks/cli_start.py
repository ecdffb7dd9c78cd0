"""How long `trainwarden --help` takes, beside a bare interpreter and click alone, in one run."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

ROUNDS = 15


def milliseconds(command: Sequence[str]) -> float:
    """Median wall time of a command over the rounds."""
    taken = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        taken.append((time.perf_counter() - begin) * 1000)
    return statistics.median(taken)


def main() -> None:
    """Measure and print a table."""
    commands = {
        "`python -c pass`": [sys.executable, "-c", "pass"],
        "`python -c 'import click'`": [sys.executable, "-c", "import click"],
        "`trainwarden --help`": [sys.executable, "-m", "trainwarden.controller.cli", "--help"],
        "`trainwarden run --help`": [sys.executable, "-m", "trainwarden.controller.cli", "run", "--help"],
    }
    measured = {name: milliseconds(command) for name, command in commands.items()}
    bare = measured["`python -c pass`"]
    print("| command | ms (median) | times a bare interpreter |")
    print("| --- | ---: | ---: |")
    for name, taken in measured.items():
        print(f"| {name} | {taken:.0f} | {taken / bare:.1f} |")


if __name__ == "__main__":
    main()
