"""How long importing the reporter takes in a fresh interpreter, beside the interpreter alone and what others import."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

RUNS = 15
LIMIT_MS = 100
ROWS = [
    ("nothing", ""),
    ("trainwarden.reporters", "import trainwarden.reporters"),
    ("tensorboard's writer, without torch", "import tensorboard.summary.writer.event_file_writer"),
    ("wandb", "import wandb"),
    ("mlflow", "import mlflow"),
]


def milliseconds(statement: str) -> float | None:
    """Time of a fresh interpreter with one statement; None when it fails."""
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", statement], capture_output=True, check=False)
    return None if done.returncode else (time.perf_counter() - begin) * 1000


def main() -> int:
    """Measure all rows in turns, so that a busy machine is as busy for each; 1 when ours is over its limit."""
    importable = [(name, statement) for name, statement in ROWS if milliseconds(statement) is not None]  # fills caches
    taken: dict[str, list[float]] = {name: [] for name, _ in importable}
    for _ in range(RUNS):
        for name, statement in importable:
            taken[name].append(milliseconds(statement) or 0.0)
    median = {name: statistics.median(times) for name, times in taken.items()}
    alone = median["nothing"]
    ours = median["trainwarden.reporters"] - alone
    print("| import | ms | ms more than nothing | times ours |\n| --- | ---: | ---: | ---: |")
    for name, _ in ROWS:
        if name not in median:
            print(f"| {name} | can't be imported here | | |")
        else:
            more = median[name] - alone
            print(f"| {name} | {median[name]:.0f} | {more:.0f} | {more / ours:.1f} |")
    if ours > LIMIT_MS:
        print(f"\nImporting the reporter takes {ours:.0f} ms; at most {LIMIT_MS} are right")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
