"""Run every benchmark and print its table: `make bench`, or `python -m benchmarks NAME…` for some."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
_APART = ("reporter_import", "reporter_overhead")  # run in an environment of their own; see the Makefile


def main(names: list[str]) -> int:
    """Run the benchmarks of the given names, or all; the number that failed."""
    known = sorted(path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("_"))
    unknown = sorted(set(names) - set(known))
    if unknown:
        print(f"unknown benchmark {', '.join(unknown)}; known are {', '.join(known)}", file=sys.stderr)
        return 2
    failed = 0
    for name in names or [name for name in known if name not in _APART]:
        print(f"\n## {name}\n", flush=True)
        failed += subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode != 0
    return failed


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
