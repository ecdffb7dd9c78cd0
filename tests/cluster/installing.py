"""`deploy/` as it stands, on the node: only the image is another, which runs this machine's Python, and the disk."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from tools.cluster.cluster import Cluster
from tools.cluster.images import IMAGE, host_mounts
from tools.cluster.kubectl import Kubectl
from tools.cluster.processes import wait_until
from tools.cluster.runtime import ROOT

__all__ = ["installed"]

_ROLES = ("operator", "engine", "notifier", "bridge")
_WEBHOOKS = ("validatingwebhookconfiguration", "mutatingwebhookconfiguration")
_PATH = f"{ROOT / '.venv/bin'}:/usr/bin:/bin"


@contextmanager
def installed(cluster: Cluster, folder: Path) -> Iterator[subprocess.CompletedProcess[str]]:
    """Run `deploy/install.sh`, with the roles that run as processes stopped meanwhile."""
    kubectl, processes = cluster.kubectl, cluster.processes
    webhooks = [kubectl.get(kind, "trainwarden") for kind in _WEBHOOKS]
    for each in webhooks:
        each["metadata"] = {"name": each["metadata"]["name"]}
    for role in _ROLES:
        processes.kill(role)
    _forget_webhooks(kubectl)
    try:
        shutil.copytree(ROOT / "deploy", folder / "deploy")
        for name in ("namespace", "nats", "roles"):
            path = folder / f"deploy/manifests/{name}.yaml"
            documents = [_for_the_node(each) for each in yaml.safe_load_all(path.read_text())]
            path.write_text(yaml.safe_dump_all(documents))
        yield subprocess.run(
            [folder / "deploy/install.sh", IMAGE],
            env={**os.environ, "KUBECONFIG": str(kubectl.config), "PATH": f"{Path(kubectl.path).parent}:{_PATH}"},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        for kind in ("deployments", "statefulsets", "services"):
            kubectl.run("delete", kind, "--all", "-n", "trainwarden", check=False)
        _forget_webhooks(kubectl)
        kubectl.apply(webhooks)
        for role in reversed(_ROLES):
            processes.restart(role)
        wait_until(cluster.product.refuses, "the webhooks answer again")


def _forget_webhooks(kubectl: Kubectl) -> None:
    """One that is led to an address can't be led to a Service by an update."""
    for kind in _WEBHOOKS:
        kubectl.run("delete", kind, "trainwarden", "--ignore-not-found")


def _for_the_node(document: dict[str, Any]) -> dict[str, Any]:
    if document["kind"] == "Namespace":
        document["metadata"].pop("labels")  # which forbid to mount this machine's folders
    if document["kind"] not in ("Deployment", "StatefulSet"):
        return document
    pod = document["spec"]["template"]["spec"]
    container = pod["containers"][0]
    volumes, mounts = host_mounts(ROOT)
    pod.setdefault("volumes", []).extend(volumes)
    container["volumeMounts"].extend(mounts)
    container.setdefault("env", []).append({"name": "PATH", "value": _PATH})
    if document["spec"].pop("volumeClaimTemplates", None):
        container["image"] = IMAGE
        pod["volumes"].append({"name": "data", "emptyDir": {}})
    return document
