"""The product's story on real parts: a TrainJob goes flat, is checkpointed, suspended, and resumed by one command."""

from __future__ import annotations

import pytest
from tests.cluster.world import World

FLAT = {
    "name": "plateau",
    "when": 'plateau("loss", 300)',
    "for": "1s",
    "severity": "warning",
    "actions": [{"type": "Notify"}, {"type": "Suspend", "after": "2s", "timeout": "30s"}],
}


@pytest.mark.usefixtures("node")
def test_a_flat_trainjob_is_checkpointed_suspended_and_resumed(world: World) -> None:
    world.policy(rules=[FLAT], protections={"abovePercent": 100})
    world.trainjob(environment={"STEPS": "8000"})

    running = world.wait(lambda: world.status().get("step") and world.status(), "reporting")
    assert running["state"] == "Running"
    assert running["gpus"] == 1

    world.wait(lambda: world.status()["state"] == "Suspended" and world.status()["suspendedBy"], "suspended by us")
    (suspend,) = world.actions(type_="Suspend")
    assert suspend["state"] == "Done", suspend
    assert world.get("trainjob")["spec"]["suspend"] is True
    assert world.pods() == []
    saved = sorted((world.folder / "job").glob("step-*.json"))
    assert saved, "a checkpoint was written before the suspension"

    world.kubectl.run("delete", "trainingpolicy", "watch", "-n", world.namespace)
    world.kubectl.run("annotate", "trainingrun", "job", "-n", world.namespace, "trainwarden.dev/resume=now")
    world.wait(lambda: world.status()["state"] == "Running" and world.status().get("step", 0), "running again")
    step = int(saved[-1].stem.split("-")[1])
    world.wait(lambda: (world.status().get("step") or 0) > step, "beyond its checkpoint")
    assert world.status()["suspendedBy"] == ""
