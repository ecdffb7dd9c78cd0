"""Trainings that know nothing of us: transformers' own callback, over our bridge and over Trainer's status server."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cluster.world import World
from tools.cluster.runtime import ROOT, host_runtime
from tools.cluster.status_server import status_server

PROGRAM = "tests/cluster/transformers_training.py"
pytestmark = pytest.mark.usefixtures("node")


def _runtime_with_bridge(world: World) -> dict[str, Any]:
    """The runtime of docs/bridge.md, with this machine's Python in it."""
    product = world.cluster.product
    url = (
        f"https://{product.address}:{product.bridge_port}/apis/trainer.kubeflow.org/v1alpha1"
        "/namespaces/$(TRAINWARDEN_NAMESPACE)/trainjobs/$(TRAINWARDEN_JOB)/status"
    )
    folder = "/var/run/secrets/trainwarden"
    runtime = host_runtime("bridge", world.folder, {}, namespace=world.namespace)
    pod = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    container["env"] += [
        {"name": "KUBEFLOW_TRAINER_SERVER_URL", "value": url},
        {"name": "KUBEFLOW_TRAINER_SERVER_CA_CERT", "value": f"{folder}/ca.crt"},
        {"name": "KUBEFLOW_TRAINER_SERVER_TOKEN", "value": f"{folder}/token"},
    ]
    container["volumeMounts"].append({"name": "trainwarden", "mountPath": folder, "readOnly": True})
    token = {"audience": "trainwarden.dev/bridge", "expirationSeconds": 3600, "path": "token"}
    authority = {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    sources = [{"serviceAccountToken": token}, {"configMap": authority}]
    pod["volumes"].append({"name": "trainwarden", "projected": {"sources": sources}})
    return runtime


def _trains_and_is_judged(world: World) -> None:
    status = world.wait(lambda: (world.status().get("step") or 0) > 5 and world.status(), "reporting", within=180)
    assert status["source"] == "bridge"
    assert float(status["loss"]) > 1
    assert status["totalSteps"] == 120
    world.wait(lambda: world.status()["rules"][0]["verdict"] == "Firing", "firing")


def test_an_unmodified_transformers_training_reports_over_the_bridge_with_its_pods_token(world: World) -> None:
    world.kubectl.apply([_runtime_with_bridge(world)])
    world.policy(rules=[{"name": "high", "when": "metrics.loss > 1", "actions": [{"type": "Notify"}]}])
    world.trainjob(
        program=PROGRAM,
        environment={"PYTHONPATH": str(ROOT)},
        runtimeRef={"name": "bridge", "kind": "TrainingRuntime"},
    )
    _trains_and_is_judged(world)


def test_what_trainers_own_status_server_is_told_is_judged(world: World) -> None:
    world.policy(rules=[{"name": "high", "when": "metrics.loss > 1", "actions": [{"type": "Notify"}]}])
    with status_server(world.cluster):
        world.trainjob(program=PROGRAM, environment={"PYTHONPATH": str(ROOT)})
        _trains_and_is_judged(world)
        assert world.get("trainjob")["status"]["trainerStatus"]["metrics"]
