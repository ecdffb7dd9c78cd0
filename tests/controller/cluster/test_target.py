"""A TrainJob right before its end: what came since the request is seen, and nothing is written then."""

from __future__ import annotations

from typing import Any

import pytest
from tests.controller.cluster.test_trainjob import pod, trainjob
from tests.controller.test_executor import request

from trainwarden.controller.bus import Bus
from trainwarden.controller.cluster.brakes import Brakes, Limits
from trainwarden.controller.cluster.target import Targets, TrainJobTarget
from trainwarden.controller.cluster.watching import Watcher
from trainwarden.controller.executor import NotDoneError
from trainwarden.policies.decision import ActionRequest, RunRef

NOBODY: Any = None  # who is asked to write: a write would be an error


def watcher_of(bus: Bus, *conditions: tuple[str, str]) -> Watcher:
    """What the operator has seen of one job with a pod that runs."""
    watcher = Watcher(NOBODY, bus)
    watcher.trainjobs._put(("team-a", "llama"), trainjob(*conditions))
    running = pod(0)
    running["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] = "llama"
    watcher._pods._put(("team-a", running["metadata"]["name"]), running)
    return watcher


def target_of(watcher: Watcher, limits: Limits | None = None) -> TrainJobTarget:
    run = RunRef(namespace="team-a", job="llama", uid="job-uid", attempt="")
    found = Targets(NOBODY, watcher, Brakes(limits or Limits()))(run)
    assert found is not None
    return found


def asked() -> ActionRequest:
    return request("s-1", RunRef(namespace="team-a", job="llama", uid="job-uid", attempt="a-1"))


@pytest.mark.parametrize("how", ["Complete", "Failed"])
async def test_a_job_that_has_ended_by_itself_is_not_ended_again(bus: Bus, how: str) -> None:
    watcher = watcher_of(bus, (how, "True"))

    with pytest.raises(NotDoneError, match="ended by itself") as caught:
        await target_of(watcher).end(asked(), proof=None)

    assert (caught.value.reason, caught.value.refused) == ("JobEnded", True)


@pytest.mark.parametrize(
    ("limits", "reason"), [(Limits(runs_per_hour=0), "Brake"), (Limits(audit=True), "AuditSwitch")]
)
async def test_the_brakes_are_asked_again_right_before_the_end(bus: Bus, limits: Limits, reason: str) -> None:
    watcher = watcher_of(bus)

    with pytest.raises(NotDoneError) as caught:
        await target_of(watcher, limits).end(asked(), proof=None)

    assert (caught.value.reason, caught.value.refused) == (reason, True)


async def test_what_is_known_of_a_job_is_what_is_there_now_not_what_was_told_last(bus: Bus) -> None:
    watcher = watcher_of(bus)
    target = target_of(watcher)
    before = target.attempt
    assert target.alive

    again = pod(0, uid="another", resourceVersion="2")
    again["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] = "llama"
    watcher._pods._put(("team-a", again["metadata"]["name"]), again)
    assert target.attempt != before

    watcher.trainjobs._put(("team-a", "llama"), trainjob(("Complete", "True"), resourceVersion="2"))
    assert not target.alive


async def test_while_pods_can_not_be_read_nobody_says_that_they_are_ready(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = watcher_of(bus)
    facts = watcher.current(("team-a", "llama"))
    assert facts is not None
    assert facts.ready

    watcher._pods._broken()
    monkeypatch.setattr("trainwarden.controller.cluster.watching._BROKEN", -1.0)

    blind = watcher.current(("team-a", "llama"))
    assert blind is not None
    assert not blind.ready
