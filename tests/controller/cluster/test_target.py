"""A TrainJob right before its end: what came since the request is seen, and nothing is written then."""

from __future__ import annotations

from typing import Any

import pytest
from tests.controller.cluster.test_trainjob import pod, trainjob
from tests.controller.test_executor import request

from trainwarden.controller.bridge.pending import Pending
from trainwarden.controller.bridge.training import Post
from trainwarden.controller.bus import Bus
from trainwarden.controller.cluster.brakes import Brakes, Limits
from trainwarden.controller.cluster.posted import PostedProgress
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


async def test_another_attempt_that_begins_between_two_tries_of_a_write_is_left_alone(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = watcher_of(bus)
    writes = []

    class Refusing:
        async def patch(self, *arguments: object, **options: object) -> None:
            writes.append(arguments)
            again = pod(0, uid="another", resourceVersion="2")
            again["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] = "llama"
            watcher._pods._put(("team-a", again["metadata"]["name"]), again)
            raise ConnectionResetError

    client: Any = Refusing()
    run = RunRef(namespace="team-a", job="llama", uid="job-uid", attempt=target_of(watcher).attempt)
    target = Targets(client, watcher, Brakes(Limits()))(run)
    assert target is not None

    with pytest.raises(NotDoneError) as caught:
        await target.end(request("s-1", run), proof=None)

    assert (caught.value.reason, caught.value.refused, len(writes)) == ("AttemptOver", True, 1)


def test_a_workload_that_goes_when_another_has_its_place_takes_nothing_with_it(bus: Bus) -> None:
    watcher = watcher_of(bus)
    owner = {"kind": "TrainJob", "name": "llama", "uid": "job-uid"}
    old, new = ({"metadata": {"name": name, "namespace": "team-a", "ownerReferences": [owner]}} for name in ("a", "b"))
    watcher._workloads._put(("team-a", "a"), old)
    watcher._workloads._put(("team-a", "b"), new)

    watcher._workloads._put(("team-a", "a"), None)

    assert watcher.related(("team-a", "llama")).workload == new
    watcher._workloads._put(("team-a", "b"), None)
    assert watcher.related(("team-a", "llama")).workload is None


class Posts(Pending):
    """What was taken as news."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[Post] = []

    def offer(self, post: Post) -> None:
        self.taken.append(post)


def told(step: int, at: str) -> dict[str, Any]:
    job = trainjob()
    job["status"]["trainerStatus"] = {
        "lastUpdatedTime": at,
        "metrics": [{"name": "current_step", "value": f"{step}"}],
    }
    return job


def test_what_an_earlier_attempt_has_left_on_a_job_is_no_news_of_the_next(bus: Bus) -> None:
    watcher, posts = watcher_of(bus), Posts()
    running = dict(watcher.related(("team-a", "llama")).pods[0])
    running["metadata"]["creationTimestamp"] = "2026-05-01T09:00:00Z"
    reader = PostedProgress(watcher, posts)  # of an operator that has just been started

    reader.seen(("team-a", "llama"), told(420, "2026-05-01T08:30:00Z"))
    assert posts.taken == []
    reader.seen(("team-a", "llama"), told(421, "2026-05-01T09:01:00Z"))
    assert [post.sender.pod_uid for post in posts.taken] == ["pod-0-uid"]

    late = PostedProgress(watcher, posts)
    late.seen(("team-a", "llama"), told(422, "2026-05-01T09:02:00Z"))
    assert len(posts.taken) == 2

    watcher._pods._put(("team-a", running["metadata"]["name"]), None)  # suspended
    between = PostedProgress(watcher, posts)
    between.seen(("team-a", "llama"), told(423, "2026-05-01T09:03:00Z"))
    watcher._pods._put(("team-a", running["metadata"]["name"]), running)
    between.seen(("team-a", "llama"), told(423, "2026-05-01T09:03:00Z"))
    assert len(posts.taken) == 2


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
