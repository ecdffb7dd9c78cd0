"""Build both wheels, install each into a clean environment, and try it there as a user would.

`python -m tests.house.wheels` (what `make wheels` runs). The product's environment must hold neither torch nor
transformers and stay under its size; the reporter's environment holds the reporter and its test tools alone, and its
tests run in it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
UV = ROOT / ".venv-uv" / "bin" / "uv"
PRODUCT_LIMIT_MB = 150.0


def run(command: Sequence[str | Path], *, cwd: Path = ROOT) -> None:
    """Run a command and let it speak for itself; stop when it fails."""
    print("+", " ".join(str(part) for part in command), flush=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("VIRTUAL_ENV", "PYTHON"))}
    result = subprocess.run([str(part) for part in command], cwd=cwd, env=environment, check=False)
    if result.returncode:
        raise SystemExit(f"wheels: {command[0]} ended with exit code {result.returncode}")


def build(out: Path) -> tuple[Path, Path]:
    """Build the product's and the reporter's wheel; gives their paths in this order."""
    shutil.rmtree(out, ignore_errors=True)
    for source in (ROOT, ROOT / "reporters"):
        run([UV, "build", "-q", "--wheel", "--no-build-isolation", "--python", sys.executable, "-o", out, source])
    (product,) = out.glob("trainwarden-*.whl")
    (reporters,) = out.glob("trainwarden_reporters-*.whl")
    return product, reporters


def environment(path: Path, locked: Path, wheels: Sequence[Path]) -> Path:
    """Make a clean environment with locked requirements and our wheels; gives its python."""
    run([UV, "venv", "-q", "--python", sys.executable, path])
    python = path / "bin" / "python"
    run([UV, "pip", "install", "-q", "--python", python, "--require-hashes", "-r", locked])
    run([UV, "pip", "install", "-q", "--python", python, "--no-deps", "--no-index", *wheels])
    run([UV, "pip", "check", "-q", "--python", python])
    return python


def size_mb(path: Path) -> float:
    """Size of all files below a folder, in MB of 1,000,000 bytes."""
    return sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir()) / 1e6


def try_product(python: Path, work: Path) -> None:
    """Use the product where no source tree is near."""
    program = python.with_name("trainwarden")
    run([program, "--version"], cwd=work)
    shutil.copytree(ROOT / "examples", work / "examples")
    policies = sorted((work / "examples").rglob("*policy*.yaml"))
    if not policies:
        raise SystemExit("wheels: no policy under examples/")
    run([program, "policy", "check", *policies], cwd=work)
    absent = "import importlib.util as u, sys; sys.exit(any(map(u.find_spec, ('torch', 'transformers', 'lightning'))))"
    run([python, "-c", absent], cwd=work)
    run([program, "demo", "--training", "plain"], cwd=work)
    size = size_mb(python.parents[1])
    print(f"wheels: the product's environment has {size:.0f} MB; at most {PRODUCT_LIMIT_MB:.0f} MB are right")
    if size > PRODUCT_LIMIT_MB:
        raise SystemExit("wheels: the product has grown too large")


def try_reporter(python: Path) -> None:
    """Run the reporter's tests where nothing else of ours is installed."""
    absent = "import importlib.util as u, sys; sys.exit(u.find_spec('trainwarden.policies') is not None)"
    run([python, "-c", absent])
    run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/reporters"])


def main() -> None:
    """Build, install, try."""
    product, reporters = build(ROOT / "dist")
    with TemporaryDirectory(prefix="trainwarden-wheels-") as folder:
        work = Path(folder)
        try_product(environment(work / "product", ROOT / "requirements" / "product.txt", [product, reporters]), work)
        try_reporter(environment(work / "reporter", ROOT / "requirements" / "reporters.txt", [reporters]))
    print("wheels: both are right")


if __name__ == "__main__":
    main()
