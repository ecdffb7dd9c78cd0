"""The product's story on real parts: a TrainJob goes flat, is checkpointed, suspended, and resumed by one command."""

from __future__ import annotations

import pytest
import yaml
from tests.cluster.world import World
from tools.cluster.runtime import ROOT

EXAMPLE = ROOT / "examples/kubernetes/story.yaml"


def applied(world: World) -> None:
    """The example, in the test's namespace and with its runtime."""
    for document in yaml.safe_load_all(EXAMPLE.read_text()):
        if document["kind"] == "Namespace":
            continue
        document["metadata"]["namespace"] = world.namespace
        if document["kind"] == "TrainJob":
            document["spec"]["runtimeRef"] = {"name": "host", "kind": "TrainingRuntime"}
        world.kubectl.apply([document])


@pytest.mark.usefixtures("node")
def test_a_flat_trainjob_is_checkpointed_suspended_and_resumed_by_one_command(world: World) -> None:
    applied(world)

    running = world.wait(lambda: world.status("flat").get("step") and world.status("flat"), "reporting", name="flat")
    assert running["state"] == "Running"
    assert running["gpus"] == 2
    assert running["source"] == "reporter"

    world.wait(
        lambda: world.status("flat")["state"] == "Suspended" and world.status("flat")["suspendedBy"],
        "suspended by us",
        name="flat",
    )
    world.wait(lambda: world.actions("flat", "Suspend")[0]["state"] == "Done", "told as done", name="flat")
    assert world.get("trainjob", "flat")["spec"]["suspend"] is True
    assert world.pods("flat") == []
    saved = sorted((world.folder / "flat").glob("step-*.json"))
    assert saved, "a checkpoint was written before the suspension"
    events = world.kubectl.run("get", "events", "-n", world.namespace, "-o", "jsonpath={.items[*].reason}")
    assert {"Firing", "SuspendDone"} <= set(events.split())

    world.kubectl.run("delete", "trainingpolicy", "flat-loss", "-n", world.namespace)
    resumed = world.trainwarden("resume", "flat", "--namespace", world.namespace)
    assert resumed.returncode == 0, resumed.stderr

    world.wait(lambda: world.status("flat")["state"] == "Running", "running again", name="flat")
    step = int(saved[-1].stem.split("-")[1])
    world.wait(lambda: (world.status("flat").get("step") or 0) > step, "beyond its checkpoint", name="flat")
    assert world.status("flat")["suspendedBy"] == ""
    assert "going on at step" in world.kubectl.run(
        "logs", "-n", world.namespace, "-l", "jobset.sigs.k8s.io/jobset-name=flat"
    )
