"""kubectl from its wheel, with one kubeconfig."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from tools.cluster.processes import ClusterError

__all__ = ["Kubectl", "kubeconfig"]


class Kubectl:
    """Runs kubectl.

    Args:
        config: Path of the kubeconfig.
    """

    def __init__(self, config: Path) -> None:
        self.config = config
        beside = Path(sys.executable).with_name("kubectl")
        found = str(beside) if beside.exists() else shutil.which("kubectl")
        if found is None:
            raise ClusterError("there is no kubectl; `make setup` installs it")
        self.path = found

    def run(self, *arguments: str, stdin: str = "", check: bool = True) -> str:
        """Run a command; gives what it printed.

        Raises:
            ClusterError: It failed, and `check` is on.
        """
        command = [self.path, f"--kubeconfig={self.config}", *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        if done.returncode and check:
            raise ClusterError(f"kubectl {' '.join(arguments)} failed: {done.stderr.strip()}")
        return done.stdout

    def apply(self, objects: Iterable[Mapping[str, Any]]) -> None:
        """Server-side apply, by force."""
        text = yaml.safe_dump_all(objects)
        if text:
            self.run("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)

    def get(self, *arguments: str) -> dict[str, Any]:
        """One object, or a list of them."""
        got: dict[str, Any] = json.loads(self.run("get", *arguments, "-o", "json"))
        return got

    def kustomize(self, folder: Path) -> list[dict[str, Any]]:
        """The objects that a kustomization makes."""
        return [each for each in yaml.safe_load_all(self.run("kustomize", str(folder))) if each]


def kubeconfig(
    path: Path, *, server: str, authority: str, certificate: tuple[Path, Path] | None = None, token: str = ""
) -> Path:
    """Write a kubeconfig that holds all it needs; gives its path."""
    user: dict[str, str] = {}
    if certificate is not None:
        user = {"client-certificate": str(certificate[0]), "client-key": str(certificate[1])}
    if token:
        user = {"token": token}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "trainwarden",
        "contexts": [{"name": "trainwarden", "context": {"cluster": "trainwarden", "user": "trainwarden"}}],
        "clusters": [{"name": "trainwarden", "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": "trainwarden", "user": user}],
    }
    path.write_text(yaml.safe_dump(config))
    path.chmod(0o600)
    return path
