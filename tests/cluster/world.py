"""What tests do in a cluster: TrainJobs that really train, policies, and what can be seen of them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.cluster.cluster import Cluster
from tools.cluster.processes import ClusterError
from tools.cluster.runtime import ROOT, host_runtime

GROUP = "trainer.kubeflow.org/v1alpha1"
OURS = "trainwarden.dev/v1alpha1"


class World:
    """One namespace, with a runtime whose containers run this machine's Python."""

    def __init__(self, cluster: Cluster, test: str) -> None:
        self.cluster, self.kubectl = cluster, cluster.kubectl
        name = re.sub(r"[^a-z0-9]+", "-", test.lower()).strip("-")[:30].strip("-")
        self.namespace = f"{name}-{uuid.uuid4().hex[:5]}"
        self.folder = Path(tempfile.mkdtemp(prefix="tw-data-"))
        self.kubectl.run("create", "namespace", self.namespace)
        product = cluster.product
        told = {"TRAINWARDEN_NATS_URL": product.nats_url, "TRAINWARDEN_NATS_TOKEN": product.token_file.read_text()}
        nowhere = cluster.node is None
        self.kubectl.apply([host_runtime("host", self.folder, told, namespace=self.namespace, nowhere=nowhere)])

    def remove(self) -> None:
        """Delete the namespace with all in it, and what its trainings wrote."""
        self.kubectl.run("delete", "namespace", self.namespace, "--wait=false", check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    # ------------------------------------------------------------------ what is made

    def policy(self, name: str = "watch", *, kind: str = "TrainingPolicy", **spec: Any) -> None:
        """Apply a policy of this namespace."""
        metadata = {"name": name} if kind.startswith("Cluster") else {"name": name, "namespace": self.namespace}
        spec = {"selector": {}, "mode": "Enforce", **spec}
        self.kubectl.apply([{"apiVersion": OURS, "kind": kind, "metadata": metadata, "spec": spec}])

    def trainjob(
        self,
        name: str = "job",
        *,
        program: str = "examples/kubernetes/train.py",
        environment: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        labels: dict[str, str] | None = None,
        gpus: int = 1,
        **spec: Any,
    ) -> str:
        """Make a TrainJob; gives its UID."""
        told = {"CHECKPOINTS": f"/data/{name}", **(environment or {})}
        self.kubectl.apply(
            [
                {
                    "apiVersion": GROUP,
                    "kind": "TrainJob",
                    "metadata": {
                        "name": name,
                        "namespace": self.namespace,
                        "annotations": annotations or {},
                        "labels": labels or {},
                    },
                    "spec": {
                        "runtimeRef": {"name": "host", "kind": "TrainingRuntime"},
                        "trainer": {
                            "command": ["python", str(ROOT / program)],
                            "numNodes": 1,
                            "env": [{"name": key, "value": value} for key, value in told.items()],
                            "resourcesPerNode": {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {},
                        },
                        **spec,
                    },
                }
            ]
        )
        return str(self.get("trainjob", name)["metadata"]["uid"])

    # ------------------------------------------------------------------ what is seen

    def get(self, kind: str, name: str = "job") -> dict[str, Any]:
        """One object of the namespace."""
        return self.kubectl.get(kind, name, "-n", self.namespace)

    def status(self, name: str = "job") -> dict[str, Any]:
        """Status of a TrainingRun; empty when there is none."""
        found = self.kubectl.run(
            "get", "trainingrun", name, "-n", self.namespace, "-o", "json", "--ignore-not-found", check=False
        )
        return dict(json.loads(found).get("status") or {}) if found.strip() else {}

    def actions(self, name: str = "job", type_: str = "") -> list[dict[str, Any]]:
        """Actions of all rules of a run, as its TrainingRun tells them."""
        rules = self.status(name).get("rules", [])
        listed = [action for rule in rules for action in rule.get("actions", [])]
        return [action for action in listed if not type_ or action["type"] == type_]

    def pods(self, name: str = "job") -> list[dict[str, Any]]:
        """Pods of a job."""
        selector = f"jobset.sigs.k8s.io/jobset-name={name}"
        return list(self.kubectl.get("pods", "-n", self.namespace, "-l", selector)["items"])

    def wait(self, ready: Callable[[], Any], what: str, *, within: float = 90.0, name: str = "job") -> Any:
        """Wait for something to be true, and give it.

        Raises:
            AssertionError: It takes too long; says what the run looks like.
        """
        until = time.monotonic() + within
        while True:
            try:
                found = ready()
            except (ClusterError, KeyError, IndexError):
                found = None
            if found:
                return found
            if time.monotonic() > until:
                logs = self.kubectl.run(
                    "logs", "-n", self.namespace, "-l", f"jobset.sigs.k8s.io/jobset-name={name}", check=False
                )
                raise AssertionError(
                    f"not {what} within {within:g} s; status: {json.dumps(self.status(name), indent=1)}\n"
                    f"operator: {self.cluster.processes.tail('operator')}\n"
                    f"engine: {self.cluster.processes.tail('engine')}\npod: {logs[-2000:]}"
                )
            time.sleep(0.3)

    def trainwarden(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command line as the cluster's admin."""
        command = [str(Path(sys.executable).with_name("trainwarden")), *arguments]
        environment = {"KUBECONFIG": str(self.kubectl.config), "PATH": "/usr/bin:/bin", "HOME": str(self.folder)}
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
