"""An older Trainer, a cluster without Kueue, Kueue that comes later: watched, acted on, and left as it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.cluster.local_node import LocalNode
from tests.cluster.starting import started
from tests.cluster.test_survival import SUSPEND, rule, suspended, train
from tests.cluster.world import World
from tools.cluster.binaries import TRAINER_OLD, module_folder
from tools.cluster.cluster import Cluster

OPERATOR = "trainwarden"


@pytest.fixture(scope="module")
def old() -> Iterator[Cluster]:
    """A control plane with Trainer 2.1, and without Kueue."""
    with started(trainer=TRAINER_OLD, kueue=False) as made:
        yield made


@pytest.fixture
def world(old: Cluster, request: pytest.FixtureRequest) -> Iterator[World]:
    made = World(old, request.node.name)
    yield made
    made.remove()


@pytest.fixture
def node(world: World) -> Iterator[LocalNode]:
    with LocalNode(world) as made:
        yield made


def test_a_job_of_trainer_2_1_is_suspended_and_resumed_and_carries_nothing_of_ours(
    world: World, node: LocalNode
) -> None:
    world.policy(rules=[rule(SUSPEND)], protections={"abovePercent": 100})
    train(world, "job", annotations={"owner": "somebody"})
    world.wait(lambda: suspended(world, "job"), "suspended")

    trainjob = world.kubectl.get("trainjob", "job", "-n", world.namespace, "--show-managed-fields")
    metadata = trainjob["metadata"]
    assert trainjob["spec"]["suspend"] is True
    assert "finalizers" not in metadata
    assert set(metadata["annotations"]) <= {"owner"}
    ours = [each for each in metadata["managedFields"] if each["manager"] == OPERATOR]
    assert [each["fieldsV1"] for each in ours] == [{"f:spec": {"f:suspend": {}}}]
    assert "subresource" not in ours[0]

    world.kubectl.run("delete", "trainingpolicy", "watch", "-n", world.namespace)
    world.kubectl.run("annotate", "trainingrun", "job", "-n", world.namespace, "trainwarden.dev/resume=now")
    world.wait(lambda: world.status("job")["state"] == "Running", "running again")
    assert world.get("trainjob")["spec"]["suspend"] is False
    assert len(node.started) == 2
    world.wait(lambda: world.status("job")["suspendedBy"] == "", "no longer shown as suspended by us")


def test_kueue_that_is_installed_later_is_picked_up_and_its_end_noticed(world: World, node: LocalNode) -> None:
    uid = train(world, "job")
    world.wait(lambda: world.status("job").get("step"), "reporting without Kueue")
    crds = str(module_folder("sigs.k8s.io/kueue") / "config/components/crd/bases")
    log = world.cluster.processes
    try:
        world.kubectl.run("apply", "--server-side", "-f", f"{crds}/kueue.x-k8s.io_workloads.yaml")
        world.wait(lambda: "is watched kind=Workload" in log.tail("operator", 1000), "watching Workloads")
        made = yaml.safe_dump(workload(world, uid))
        world.wait(lambda: world.kubectl.run("apply", "--server-side", "-f", "-", stdin=made), "a Workload")
        world.policy(rules=[rule(SUSPEND)], protections={"abovePercent": 100})
        world.wait(lambda: world.get("workload", "queued")["spec"]["active"] is False, "suspended in its queue")
    finally:
        world.kubectl.run("delete", "crd", "workloads.kueue.x-k8s.io", check=False)
    world.wait(lambda: "is no longer installed kind=Workload" in log.tail("operator", 1000), "the end of Kueue noticed")
    world.policy(rules=[rule(SUSPEND)], protections={"abovePercent": 100})
    train(world, "later")
    world.wait(lambda: suspended(world, "later"), "suspended without Kueue", name="later")


def workload(world: World, uid: str) -> dict[str, Any]:
    """A Workload as Kueue makes it for a TrainJob."""
    container = {"name": "node", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    pods = {"name": "node", "count": 1, "template": {"spec": {"containers": [container], "restartPolicy": "Never"}}}
    owner = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": "job", "uid": uid}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "queued", "namespace": world.namespace, "ownerReferences": [owner]},
        "spec": {"active": True, "podSets": [pods]},
    }
