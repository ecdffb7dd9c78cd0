"""What is read of a TrainJob: phase, attempt, times and size, from objects as the API server gives them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from trainwarden.controller.cluster.posted import told_by
from trainwarden.controller.cluster.trainjob import Related, facts_of
from trainwarden.policies.facts import JobPhase, RunFacts

T0 = datetime(2026, 5, 1, 8, tzinfo=UTC)
READY = T0 + timedelta(minutes=5)


def trainjob(*conditions: tuple[str, str], suspend: bool = False, **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "llama",
            "namespace": "team-a",
            "uid": "job-uid",
            "creationTimestamp": "2026-05-01T08:00:00Z",
            **metadata,
        },
        "spec": {
            "suspend": suspend,
            "trainer": {"numNodes": 2, "resourcesPerNode": {"limits": {"nvidia.com/gpu": "4"}}},
        },
        "status": {"conditions": [{"type": type_, "status": status} for type_, status in conditions]},
    }


def pod(
    index: int, uid: str = "", *, phase: str = "Running", ready: bool = True, job: str = "node", **metadata: Any
) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"llama-{job}-0-{index}-xyz",
            "uid": uid or f"pod-{index}-uid",
            "labels": {
                "jobset.sigs.k8s.io/replicatedjob-name": job,
                "batch.kubernetes.io/job-completion-index": str(index),
            },
            **metadata,
        },
        "spec": {
            "hostname": f"llama-{job}-0-{index}",
            "containers": [{"resources": {"limits": {"nvidia.com/gpu": "4", "cpu": "8"}}}],
        },
        "status": {
            "phase": phase,
            "conditions": [
                {"type": "Ready", "status": str(ready), "lastTransitionTime": READY.isoformat().replace("+00:00", "Z")}
            ],
        },
    }


JOBSET = {"metadata": {"uid": "jobset-uid"}, "status": {"restarts": 3}}
PODS = (pod(1), pod(0))


def read(
    job: dict[str, Any], *pods: dict[str, Any], before: RunFacts | None = None, at: datetime = READY, **related: Any
) -> RunFacts:
    return facts_of(job, Related(jobset=JOBSET, pods=pods, **related), before, at)


@pytest.mark.parametrize(
    ("job", "pods", "workload", "phase"),
    [
        (trainjob(), PODS, None, JobPhase.RUNNING),
        (trainjob(("Suspended", "False")), PODS, None, JobPhase.RUNNING),  # what a resumed job says for ever
        (trainjob(), (), None, JobPhase.PENDING),
        (trainjob(), (pod(0), pod(1, phase="Pending", ready=False)), None, JobPhase.PENDING),
        (trainjob(("Suspended", "True"), suspend=True), (), None, JobPhase.SUSPENDED),
        (trainjob(suspend=True), (), {"spec": {"active": True}}, JobPhase.QUEUED),
        (trainjob(suspend=True), (), {"spec": {}}, JobPhase.QUEUED),
        (trainjob(suspend=True), (), {"spec": {"active": False}}, JobPhase.SUSPENDED),
        (trainjob(("Complete", "True")), (), None, JobPhase.COMPLETE),
        (trainjob(("Failed", "True")), PODS, None, JobPhase.FAILED),
        (trainjob(("Complete", "False")), PODS, None, JobPhase.RUNNING),
        (trainjob(deletionTimestamp="2026-05-01T09:00:00Z"), PODS, None, JobPhase.DELETING),
        (trainjob(), (pod(0, job="dataset-initializer"),), None, JobPhase.PENDING),
        (trainjob(), (pod(0, deletionTimestamp="2026-05-01T09:00:00Z"),), None, JobPhase.PENDING),
    ],
)
def test_the_phase_is_read_from_conditions_and_pods(
    job: dict[str, Any], pods: tuple[dict[str, Any], ...], workload: dict[str, Any] | None, phase: JobPhase
) -> None:
    assert read(job, *pods, workload=workload).phase is phase


def test_a_running_job_has_an_attempt_of_its_rank_0_and_counts_from_its_readiness() -> None:
    facts = read(trainjob(), *PODS)

    assert facts.attempt == "jobset-u-pod-0-ui"
    assert (facts.ready, facts.attempt_started_at, facts.running_seconds) == (True, READY, 0.0)
    assert facts.pods == ("llama-node-0-0", "llama-node-0-1")
    assert (facts.gpus, facts.nodes, facts.restarts) == (8, 2, 3)


def test_a_pod_that_is_not_ready_stops_no_clock_of_its_own_but_is_told() -> None:
    facts = read(trainjob(), pod(0), pod(1, ready=False))

    assert (facts.phase, facts.ready, facts.attempt_started_at) == (JobPhase.RUNNING, False, None)


def test_a_suspension_keeps_the_attempt_and_adds_what_it_ran_once() -> None:
    running = read(trainjob(), *PODS)
    stopped = read(trainjob(suspend=True), before=running, at=READY + timedelta(hours=2))
    later = read(trainjob(suspend=True), before=stopped, at=READY + timedelta(hours=9))

    assert stopped.attempt == running.attempt
    assert (stopped.attempt_started_at, stopped.running_seconds) == (None, 7200.0)
    assert later.running_seconds == 7200.0
    assert later.gpus == 8


def test_pods_that_go_one_by_one_are_still_of_the_attempt_that_ends() -> None:
    running = read(trainjob(), *PODS)
    going = "2026-05-01T09:00:00Z"

    for job in (trainjob(suspend=True), trainjob(deletionTimestamp=going), trainjob()):
        first_went = read(job, pod(0, deletionTimestamp=going), pod(1), before=running)
        none_left = read(job, before=first_went)
        assert [first_went.attempt, none_left.attempt] == [running.attempt, running.attempt]
        assert not first_went.ready

    half = read(trainjob(), pod(1, "new-1"), before=running)  # after a restart rank 1 is there first
    again = read(trainjob(), pod(1, "new-1"), pod(0, "new-0"), before=half)
    assert half.attempt == running.attempt
    assert not half.ready
    assert again.attempt == "jobset-u-new-0"


def test_pods_that_outlive_the_jobset_of_a_job_that_ends_are_still_of_its_attempt() -> None:
    running = read(trainjob(), *PODS)

    for job in (trainjob(suspend=True), trainjob(deletionTimestamp="2026-05-01T09:00:00Z")):
        left = facts_of(job, Related(jobset=None, pods=PODS), running, READY)
        assert left.attempt == running.attempt


def test_a_resume_is_another_attempt() -> None:
    running = read(trainjob(), *PODS)
    stopped = read(trainjob(suspend=True), before=running, at=READY + timedelta(hours=2))
    resumed = read(trainjob(), pod(0, "new-uid"), pod(1), before=stopped, at=READY + timedelta(hours=9))

    assert resumed.attempt != running.attempt
    assert resumed.running_seconds == 7200.0


def test_a_restart_that_was_not_seen_in_between_is_another_attempt_and_counts() -> None:
    running = read(trainjob(), *PODS)
    again = read(trainjob(), pod(0, "new-uid"), pod(1), before=running, at=READY + timedelta(hours=1))

    assert again.attempt != running.attempt
    assert again.running_seconds == 3600.0


def test_another_job_of_the_same_name_begins_anew() -> None:
    running = read(trainjob(), *PODS)
    stopped = read(trainjob(suspend=True), before=running, at=READY + timedelta(hours=2))
    other = read(trainjob(uid="other"), before=stopped, at=READY + timedelta(hours=3))

    assert (other.attempt, other.running_seconds) == ("none", 0.0)


def test_gpus_of_a_job_without_pods_are_those_that_it_asks_for() -> None:
    queued = {
        "spec": {
            "podSets": [
                {"count": 2, "template": {"spec": {"containers": [{"resources": {"limits": {"amd.com/gpu": "2"}}}]}}}
            ]
        }
    }

    assert read(trainjob()).gpus == 8
    assert read(trainjob(suspend=True), workload=queued).gpus == 4


@pytest.mark.parametrize(
    ("annotations", "deadline", "price"),
    [
        ({"trainwarden.dev/deadline": "2026-05-02T08:00:00Z"}, T0 + timedelta(days=1), None),
        ({"trainwarden.dev/deadline": "2026-05-02 08:00:00"}, T0 + timedelta(days=1), None),
        ({"trainwarden.dev/deadline": "tomorrow"}, None, None),
        ({"trainwarden.dev/price-per-hour": "12.5"}, None, 12.5),
        ({"trainwarden.dev/price-per-hour": "nan"}, None, None),
        ({"trainwarden.dev/price-per-hour": "-1"}, None, None),
    ],
)
def test_annotations_say_deadline_and_price(
    annotations: dict[str, str], deadline: datetime | None, price: float | None
) -> None:
    facts = read(trainjob(annotations=annotations), *PODS)

    assert (facts.deadline, facts.price_per_hour) == (deadline, price)


def test_a_job_without_a_price_costs_what_its_gpus_do() -> None:
    related = Related(jobset=JOBSET, pods=PODS)

    assert facts_of(trainjob(), related, None, READY, price_per_gpu_hour=2.0).price_per_hour == 16.0


@pytest.mark.parametrize("asked", ["1" + "0" * 400, "1e3", "\u0663", "-4"])
def test_gpus_that_nobody_has_are_bounded_and_can_be_reckoned_with(asked: str) -> None:
    odd = trainjob()
    odd["spec"]["trainer"]["resourcesPerNode"]["limits"]["nvidia.com/gpu"] = asked
    facts = facts_of(odd, Related(), None, T0, price_per_gpu_hour=2.0)
    assert facts.gpus == 0
    assert facts.price_per_hour is None


def test_of_annotations_by_the_hundred_kib_the_small_ones_and_an_owners_wishes_are_kept() -> None:
    stored = {f"tool/{number}": "\x01" * 10_000 for number in range(25)}
    wishes = {"trainwarden.dev/opt-out": "true", "trainwarden.dev/note": "x" * 20_000}
    facts = facts_of(trainjob(annotations={**stored, **wishes, "tier": "dev"}), Related(), None, T0)

    assert facts.annotations.items() >= {**wishes, "tier": "dev"}.items()
    assert "tool/24" not in facts.annotations
    assert len(msgspec.json.encode(facts)) < 500_000


def test_annotations_that_fit_are_all_kept() -> None:
    stored = {f"tool/{number}": "x" * 300 for number in range(200)}
    assert facts_of(trainjob(annotations=stored), Related(), None, T0).annotations == stored


def test_progress_that_stands_on_the_job_is_read_from_its_status_first() -> None:
    status = {"lastUpdatedTime": "2026-05-01T08:00:00Z", "metrics": [{"name": "current_step", "value": "7"}]}
    annotated = {
        "trainer.opendatahub.io/trainerStatus": '{"currentStep": 5, "trainMetrics": {"loss": null, "lr": 0.1}}'
    }
    job = trainjob(annotations=annotated)

    said, source = told_by(job)
    assert said is not None
    assert (source, said.texts()) == ("opendatahub", {"current_step": "5", "lr": "0.1"})
    job["status"]["trainerStatus"] = status
    said, source = told_by(job)
    assert said is not None
    assert (source, said.texts()) == ("trainerStatus", {"current_step": "7"})
    assert told_by(trainjob()) == (None, "")


@pytest.mark.parametrize("text", ["[]", "7", "not JSON", '{"trainMetrics": 3}'])
def test_progress_that_can_not_be_read_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - json's, msgspec's and ours are all of this kind
        told_by(trainjob(annotations={"trainer.opendatahub.io/trainerStatus": text}))
