"""A runtime whose containers run this machine's Python: what examples and tests train with on the real node."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.cluster.images import IMAGE, host_mounts

__all__ = ["ROOT", "host_runtime"]

ROOT = Path(__file__).parents[2]
_LABEL = "jobset.sigs.k8s.io/jobset-name"


def host_runtime(
    name: str, data: Path, environment: Mapping[str, str], *, namespace: str = "", nowhere: bool = False
) -> dict[str, Any]:
    """A TrainingRuntime, or without a namespace a ClusterTrainingRuntime.

    Args:
        name: Of the runtime.
        data: Folder of this machine that containers see as `/data`, and may write to.
        environment: Of the training.
        namespace: Of the runtime.
        nowhere: Let no node take the pods: those of other machines don't have this one's Python.
    """
    volumes, mounts = host_mounts(ROOT)
    volumes.append({"name": "data", "hostPath": {"path": str(data), "type": "DirectoryOrCreate"}})
    mounts.append({"name": "data", "mountPath": "/data"})
    environment = {
        "PATH": f"{Path(sys.prefix) / 'bin'}:/usr/bin:/bin",
        "PYTHONUNBUFFERED": "1",
        **environment,
    }
    told: list[dict[str, Any]] = [{"name": key, "value": value} for key, value in environment.items()]
    told.append({"name": "TRAINWARDEN_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}})
    told.append({"name": "TRAINWARDEN_JOB", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{_LABEL}']"}}})
    container = {
        "name": "node",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "workingDir": str(ROOT),
        "env": told,
        "volumeMounts": mounts,
    }
    pod = {
        "terminationGracePeriodSeconds": 5,
        "restartPolicy": "Never",
        "volumes": volumes,
        "containers": [container],
        **({"nodeSelector": {"trainwarden.dev/node": "none"}} if nowhere else {}),
    }
    job = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"backoffLimit": 0, "template": {"spec": pod}},
        },
    }
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime" if namespace else "ClusterTrainingRuntime",
        "metadata": metadata,
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [job]}}},
    }
