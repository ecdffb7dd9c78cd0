"""A cluster that is there already, such as kind: trainwarden's roles run beside it as processes of this machine."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tools.cluster.certificates import Certificates
from tools.cluster.cluster import Cluster
from tools.cluster.control_plane import ControlPlane
from tools.cluster.kubectl import Kubectl, kubeconfig
from tools.cluster.processes import ClusterError, Processes
from tools.cluster.product import NAMESPACE, Product
from tools.cluster.runtime import ROOT

__all__ = ["joined"]

_WEBHOOKS = ("validatingwebhookconfiguration", "mutatingwebhookconfiguration")
_NEEDED = "trainjobs.trainer.kubeflow.org"


class _Existing(ControlPlane):
    """What a kubeconfig leads to; nothing is started, and the certificates are those of our webhooks."""

    def __init__(self, config: Path, folder: Path) -> None:
        self.folder = folder
        self.certificates = Certificates(folder / "certificates")
        self.kubectl = Kubectl(config)
        told = json.loads(self.kubectl.run("config", "view", "--raw", "--minify", "--flatten", "-o", "json"))
        cluster = told["clusters"][0]["cluster"]
        self.url = cluster["server"]
        self._authority = cluster.get("certificate-authority-data", "")

    def kubeconfig(self, name: str, *, certificate: tuple[Path, Path] | None = None, token: str = "") -> Path:
        path = self.folder / f"{name}.kubeconfig"
        return kubeconfig(path, server=self.url, authority=self._authority, certificate=certificate, token=token)


@contextmanager
def joined(config: Path, folder: Path) -> Iterator[Cluster]:
    """Install CRDs, rights and webhooks, run the roles, and take all of it away again.

    Args:
        config: Kubeconfig of an admin. Trainer and JobSet must be installed; Kueue may be.
        folder: For logs and certificates; made here.

    Raises:
        ClusterError: trainwarden is installed there already, or what it needs is not.
    """
    folder.mkdir(parents=True)
    cluster = Cluster.__new__(Cluster)
    cluster.folder, cluster.node, cluster.processes = folder, None, Processes(folder / "logs")
    cluster.plane = plane = _Existing(config, folder)
    cluster.kubectl = plane.kubectl
    if _NEEDED not in plane.kubectl.run("get", "crds", "-o", "name"):
        raise ClusterError(f"the cluster of {config} has no {_NEEDED}; install Kubeflow Trainer in it")
    if plane.kubectl.run("get", "namespace", NAMESPACE, "--ignore-not-found"):
        raise ClusterError(f"the cluster of {config} has a namespace {NAMESPACE}; tests would take its place")
    cluster.product = Product(plane, cluster.processes, address=os.environ.get("ADDRESS") or _address(plane.url))
    try:
        cluster.product.start()
        yield cluster
    finally:
        for name in reversed(cluster.processes.names()):
            cluster.processes.stop(name)
        for kind in _WEBHOOKS:
            plane.kubectl.run("delete", kind, "trainwarden", "--ignore-not-found", check=False)
        plane.kubectl.run("delete", "-f", str(ROOT / "deploy/manifests/rbac.yaml"), "--ignore-not-found", check=False)
        plane.kubectl.run("delete", "-f", str(ROOT / "deploy/crds"), "--ignore-not-found", check=False)
        plane.kubectl.run("delete", "namespace", NAMESPACE, "--ignore-not-found", check=False)
        shutil.rmtree(folder, ignore_errors=True)


def _address(url: str) -> str:
    """The address of this machine by which it reaches an API server, and so may be reached from it."""
    found = urlsplit(url)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((found.hostname or "127.0.0.1", found.port or 443))
        return str(probe.getsockname()[0])
