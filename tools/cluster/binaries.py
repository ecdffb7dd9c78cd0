"""The programs of the cluster, built from the Go module proxy and kept between runs."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

__all__ = ["TRAINER_OLD", "Binaries", "BuildError", "binaries", "module_folder"]

HERE = Path(__file__).parent
TRAINER_OLD = "v2.1.0"
"""The oldest Trainer that tests run with."""
_KUBERNETES = "v1.36.3"
_VERSION = "k8s.io/component-base/version"
_NAMES = {"server": "etcd", "trainer-controller-manager": "trainer"}


class BuildError(Exception):
    """A program can't be had here."""


class Binaries:
    """Where the programs are.

    Args:
        folder: That holds them; one file each, and `trainer-v2.1.0`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        """One program, such as `kube-apiserver`, `etcd`, `trainer`, `jobset`, `kueue`, `kwok` or `coredns`."""
        return self.folder / name


@cache
def binaries() -> Binaries:
    """Build what is not there yet: some ten minutes on two cores the first time, nothing afterwards.

    Raises:
        BuildError: Go is not installed, or a module can't be had.
    """
    key = hashlib.sha256()
    for path in (HERE / "go.mod", HERE / "go.sum", HERE / "coredns/go.mod", HERE / "coredns/go.sum"):
        key.update(path.read_bytes())
    key.update(TRAINER_OLD.encode())
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainwarden/cluster"
    folder = root / key.hexdigest()[:16]
    if not (folder / ".complete").exists():
        if shutil.which("go") is None:
            raise BuildError("the cluster's programs are built with Go 1.26, and there is no `go` on the path")
        folder.mkdir(parents=True, exist_ok=True)
        _build(folder)
        (folder / ".complete").touch()
    return Binaries(folder)


def _build(folder: Path) -> None:
    stamps = f"-X {_VERSION}.gitVersion={_KUBERNETES} -X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor=36"
    _install(folder, HERE, "tool", stamps)
    _install(folder, HERE / "coredns", "tool", "")
    old = folder / "old"
    _install(old, folder, f"github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager@{TRAINER_OLD}", "")
    (old / "trainer-controller-manager").rename(folder / f"trainer-{TRAINER_OLD}")
    old.rmdir()
    for made, name in _NAMES.items():
        (folder / made).rename(folder / name)


def _install(into: Path, module: Path, what: str, stamps: str) -> None:
    into.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "CGO_ENABLED": "0", "GOBIN": str(into)}
    command = ["go", "install", "-trimpath", f"-ldflags=-s -w {stamps}", what]
    made = subprocess.run(command, cwd=module, env=environment, capture_output=True, text=True, check=False)
    if made.returncode:
        raise BuildError(f"{' '.join(command)} in {module} failed:\n{made.stderr[-2000:]}")


@cache
def module_folder(module: str, version: str = "") -> Path:
    """Where the Go module cache holds a module's files; read-only.

    Args:
        module: Its path.
        version: Another than the one that go.mod names.

    Raises:
        BuildError: It can't be had.
    """
    if version:
        command = ["go", "mod", "download", "-json", f"{module}@{version}"]
    else:
        command = ["go", "list", "-m", "-json", module]
        subprocess.run(["go", "mod", "download", module], cwd=HERE, check=False, capture_output=True)
    found = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    folder = json.loads(found.stdout or "{}").get("Dir")
    if found.returncode or not folder:
        raise BuildError(f"{' '.join(command)} failed: {found.stderr[-500:]}")
    return Path(folder)
