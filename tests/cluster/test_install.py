"""What a platform admin does: `deploy/install.sh IMAGE`, and all four roles work as pods with their own rights."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from tests.cluster.installing import installed
from tests.cluster.world import World
from tools.cluster.processes import ClusterError
from tools.cluster.runtime import host_runtime

NAMESPACE = "trainwarden"


@pytest.mark.usefixtures("node")
def test_what_deploy_installs_suspends_a_flat_training_and_refuses_a_bad_policy(world: World, tmp_path: Path) -> None:
    kubectl = world.kubectl
    with installed(world.cluster, tmp_path) as done:
        pods = kubectl.run("get", "pods", "-n", NAMESPACE)
        logs = kubectl.run("logs", "-n", NAMESPACE, "-l", "app.kubernetes.io/part-of=trainwarden", check=False)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{pods}\n{logs}"

        secret = kubectl.get("secret", "trainwarden-nats-training", "-n", NAMESPACE)["data"]["token"]
        told = {
            "TRAINWARDEN_NATS_URL": f"nats://training@nats.{NAMESPACE}:4222",
            "TRAINWARDEN_NATS_TOKEN": base64.b64decode(secret).decode(),
        }
        kubectl.apply([host_runtime("host", world.folder, told, namespace=world.namespace)])
        rule = {"name": "long", "when": "progress.step > 20", "actions": [{"type": "Suspend"}]}
        world.policy(rules=[rule], protections={"minRunningFor": "0s"})
        world.trainjob()
        world.wait(lambda: world.status()["state"] == "Suspended", "suspended")
        world.wait(lambda: world.actions("job", "Suspend")[0]["state"] == "Done", "told as done")
        assert list((world.folder / "job").glob("step-*.json"))

        with pytest.raises(ClusterError, match=r"denied the request: spec\.rules\[0\]\.when: at 1:15 of"):
            world.policy("bad", rules=[{"name": "bad", "when": "metrics.loss >"}])
