"""Trainer with its gate `TrainJobStatus` on, so that pods report to its own status server."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from tools.cluster.cluster import Cluster
from tools.cluster.managers import TRAINER
from tools.cluster.node import ADDRESS
from tools.cluster.processes import answers, free_port

__all__ = ["status_server"]

_SPACE = "kubeflow-system"
_SECRET = "kubeflow-trainer-webhook-cert"
_CERTIFICATES = "k8s-webhook-server/serving-certs"  # under /tmp: its status server passes over TMPDIR
_TOKENS = "secrets/kubernetes.io/serviceaccount"  # under /run, and can't be told otherwise


@contextmanager
def status_server(cluster: Cluster) -> Iterator[None]:
    """Start Trainer anew with the gate on, and at the end without."""
    processes = cluster.processes
    command, environment = processes.command("trainer"), processes.environment("trainer")
    config = yaml.safe_load((cluster.folder / "trainer.yaml").read_text())
    webhook, port = config["webhook"]["port"], free_port()
    _publish(cluster, port)
    with_gate = {**config, "statusServer": {"port": port}, "featureGates": {"TrainJobStatus": True}}
    path = cluster.folder / "trainer-status.yaml"
    path.write_text(yaml.safe_dump(with_gate))
    token = cluster.kubectl.run("create", "token", TRAINER, "-n", _SPACE, "--duration=24h").strip()

    def start(how: list[str], ready: int) -> None:
        processes.kill("trainer")
        processes.start("trainer", how, environment=environment)
        processes.need("trainer", lambda: answers(webhook) and answers(ready), "answering")

    certificates = Path(environment["TMPDIR"]) / _CERTIFICATES
    start(_as_in_a_pod([command[0], f"--config={path}", *command[2:]], token, certificates, cluster.folder), port)
    try:
        yield
    finally:
        start(command, webhook)


def _publish(cluster: Cluster, port: int) -> None:
    """Lead the Service that pods are told of here, and say whose certificates are to be trusted."""
    kubectl = cluster.kubectl
    authority = kubectl.get("configmap", "kube-root-ca.crt", "-n", _SPACE)["data"]["ca.crt"]
    meta = {"name": TRAINER, "namespace": _SPACE}
    kubectl.apply(
        [
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": _SECRET, "namespace": _SPACE},
                "stringData": {"ca.crt": authority},
            },
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": meta,
                "spec": {"ports": [{"name": "status-server", "port": port}]},  # pods are told of this very port
            },
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {**meta, "labels": {"kubernetes.io/service-name": TRAINER}},
                "addressType": "IPv4",
                "endpoints": [{"addresses": [ADDRESS], "conditions": {"ready": True}}],
                "ports": [{"name": "status-server", "port": port}],
            },
        ]
    )


def _as_in_a_pod(program: list[str], token: str, certificates: Path, folder: Path) -> list[str]:
    """Run a program that sees a token and certificates where a pod of Trainer has them, which nobody else does."""
    kept = folder / "trainer-token"
    kept.write_text(token)
    script = (
        f"mount -t tmpfs tmpfs /run && mkdir -p /run/{_TOKENS} /run/upper/{_CERTIFICATES} /run/work"
        f" && cp {kept} /run/{_TOKENS}/token && cp {certificates}/tls.* /run/upper/{_CERTIFICATES}/"
        f" && mount -t overlay overlay -o lowerdir=/tmp,upperdir=/run/upper,workdir=/run/work /tmp"
        f" && exec {shlex.join(program)}"
    )
    return ["unshare", "--mount", "--", "sh", "-c", script]
