"""Sources of progress other than our reporter: what stands on the TrainJob itself."""

from __future__ import annotations

import json

import pytest
from tests.cluster.world import World

SLEEPER = "tests/cluster/sleeper.py"


@pytest.mark.usefixtures("node")
def test_progress_in_trainer_status_is_shown_and_judged(world: World) -> None:
    world.policy(rules=[{"name": "high", "when": "metrics.loss > 2", "actions": [{"type": "Notify"}]}])
    world.trainjob(program=SLEEPER)
    world.wait(lambda: world.status()["state"] == "Running", "running")

    for step in (100, 110):
        status = {
            "progressPercentage": step // 10,
            "lastUpdatedTime": "2026-01-01T00:00:00Z",
            "metrics": [
                {"name": "loss", "value": "2.5"},
                {"name": "current_step", "value": str(step)},
                {"name": "total_steps", "value": "1000"},
            ],
        }
        patch = json.dumps({"status": {"trainerStatus": status}})
        world.kubectl.run(
            "patch", "trainjob", "job", "-n", world.namespace, "--subresource=status", "--type=merge", "-p", patch
        )
        world.wait(lambda step=step: world.status().get("step") == step, f"at step {step}")  # type: ignore[misc]

    shown = world.status()
    assert shown["source"] == "bridge"
    assert shown["progress"] == "11 %"
    assert shown["loss"] == "2.5"
    world.wait(lambda: world.status()["rules"][0]["verdict"] == "Firing", "firing")


@pytest.mark.usefixtures("node")
def test_progress_in_open_data_hubs_annotation_is_shown(world: World) -> None:
    said = {"progressPercentage": 42, "currentStep": 420, "totalSteps": 1000, "trainMetrics": {"loss": 1.25}}
    world.trainjob(program=SLEEPER)
    world.wait(lambda: world.status()["state"] == "Running", "running")

    world.kubectl.run(
        "annotate", "trainjob", "job", "-n", world.namespace, f"trainer.opendatahub.io/trainerStatus={json.dumps(said)}"
    )

    world.wait(lambda: world.status().get("step") == 420, "at step 420")
    assert world.status()["loss"] == "1.25"
