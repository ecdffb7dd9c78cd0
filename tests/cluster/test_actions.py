"""Actions on a real API server, with the real Kueue, Trainer and node: done where they last, or refused and said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cluster.world import World

SLEEPER = "tests/cluster/sleeper.py"
QUEUE = {"kueue.x-k8s.io/queue-name": "queue"}


def act(
    world: World, type_: str, *, name: str = "watch", mode: str = "Enforce", selector: Any = None, **step: Any
) -> None:
    """A policy whose only rule is always true and asks for one action."""
    rule = {"name": "now", "when": 'job.phase == "Running"', "actions": [{"type": type_, "timeout": "10s", **step}]}
    world.policy(name, mode=mode, rules=[rule], selector=selector or {})


def ended(world: World, type_: str) -> dict[str, Any]:
    """The action, once nothing more will become of it."""
    final = ("Done", "Failed", "Refused", "WouldAct")
    return dict(
        world.wait(lambda: [each for each in world.actions(type_=type_) if each.get("state") in final], "ended")[0]
    )


def running(world: World) -> None:
    world.wait(lambda: world.status().get("state") == "Running", "running")


def suspended_by(world: World) -> str:
    return str(world.status().get("suspendedBy", ""))


def ask_resume(world: World) -> None:
    """Ask for a resume as jane, and wait until the question was taken."""
    world.kubectl.run(
        *("annotate", "trainingrun", "job", "-n", world.namespace, "trainwarden.dev/resume=now"),
        *("--as=jane", "--as-group=system:masters"),
    )
    world.wait(
        lambda: "trainwarden.dev/resume" not in (world.get("trainingrun")["metadata"].get("annotations") or {}), "taken"
    )


def events(world: World, uid: str) -> list[dict[str, Any]]:
    """Our Events about one TrainJob or policy."""
    found = world.kubectl.get("events", "-n", world.namespace)["items"]
    return [each for each in found if each["involvedObject"].get("uid") == uid]


def told_as(world: World, uid: str, reason: str) -> list[dict[str, Any]]:
    """The Events with a reason about one TrainJob or policy, once there are some."""
    return list(world.wait(lambda: [each for each in events(world, uid) if each["reason"] == reason], "told"))


def forget_policy(world: World) -> None:
    world.kubectl.run("delete", "trainingpolicy", "watch", "-n", world.namespace)


@pytest.fixture
def queue(world: World) -> Iterator[None]:
    """A queue of Kueue with room for two GPUs."""
    api = "kueue.x-k8s.io/v1beta1"
    name = world.namespace
    near = {"matchLabels": {"kubernetes.io/metadata.name": name}}
    resources = [{"name": "nvidia.com/gpu", "nominalQuota": 2}]
    group = {"coveredResources": ["nvidia.com/gpu"], "flavors": [{"name": name, "resources": resources}]}
    spec = {"namespaceSelector": near, "resourceGroups": [group]}
    world.kubectl.apply(
        [
            {"apiVersion": api, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": {}},
            {"apiVersion": api, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec},
            {
                "apiVersion": api,
                "kind": "LocalQueue",
                "metadata": {"name": "queue", "namespace": name},
                "spec": {"clusterQueue": name},
            },
        ]
    )
    yield
    world.remove()
    world.kubectl.run("delete", "clusterqueue,resourceflavor", name, "--wait=false", check=False)


def workload(world: World) -> dict[str, Any]:
    """The Workload of the job."""
    uid = world.get("trainjob")["metadata"]["uid"]
    found = world.kubectl.get("workloads.kueue.x-k8s.io", "-n", world.namespace)["items"]
    return next(dict(each) for each in found if each["metadata"]["ownerReferences"][0]["uid"] == uid)


@pytest.mark.usefixtures("node", "queue")
def test_a_job_of_a_queue_is_suspended_in_its_workload_and_put_back_into_the_queue(world: World) -> None:
    act(world, "Suspend", checkpoint="Skip")
    world.trainjob(program=SLEEPER, labels=QUEUE)
    told = ended(world, "Suspend")
    assert (told["state"], told["reason"]) == ("Done", "Suspended")
    assert workload(world)["spec"]["active"] is False
    world.wait(lambda: world.get("trainjob")["spec"]["suspend"] is True, "suspended by Kueue")
    assert world.pods() == []
    world.wait(lambda: world.status()["state"] == "Suspended" and suspended_by(world) == told["id"], "ours")

    forget_policy(world)
    full = {"spec": {"stopPolicy": "Hold"}}
    name = world.namespace
    world.kubectl.run("patch", "clusterqueue", name, "--type=merge", f"--patch={json.dumps(full)}")
    ask_resume(world)
    world.wait(lambda: world.status()["state"] == "Queued", "queued")
    assert workload(world)["spec"]["active"] is True
    assert world.get("trainjob")["spec"]["suspend"] is True, "only Kueue lets it go on"

    full["spec"]["stopPolicy"] = "None"
    world.kubectl.run("patch", "clusterqueue", name, "--type=merge", f"--patch={json.dumps(full)}")
    running(world)
    world.wait(lambda: suspended_by(world) == "", "no longer ours")


@pytest.mark.usefixtures("node")
def test_a_suspension_without_a_reporter_is_refused(world: World) -> None:
    act(world, "Suspend")
    uid = world.trainjob(program=SLEEPER)
    told = ended(world, "Suspend")
    assert (told["state"], told["reason"]) == ("Refused", "NoCheckpoint")
    assert "the training has no trainwarden reporter that could be asked" in told["message"]
    assert not world.get("trainjob")["spec"].get("suspend")
    assert len(world.pods()) == 1
    (event,) = world.wait(
        lambda: [each for each in events(world, uid) if each["reason"] == "SuspendRefused"], "told in an Event"
    )
    assert event["type"] == "Warning"


@pytest.mark.usefixtures("node")
def test_only_what_we_suspended_is_resumed(world: World) -> None:
    act(world, "Suspend", checkpoint="Skip")
    uid = world.trainjob(program=SLEEPER)
    told = ended(world, "Suspend")
    assert told["state"] == "Done"
    assert told["message"] == "suspended without a checkpoint; all its processes are gone"
    assert world.pods() == []
    world.wait(lambda: suspended_by(world) == told["id"], "ours")
    forget_policy(world)
    ask_resume(world)
    running(world)
    world.wait(lambda: suspended_by(world) == "", "no longer ours")

    suspend(world)
    world.wait(lambda: world.status()["state"] == "Suspended", "suspended by a person")
    assert suspended_by(world) == ""
    ask_resume(world)
    assert world.get("trainjob")["spec"]["suspend"] is True
    told_of_resumes = [each for each in events(world, uid) if each["reason"].startswith("Resume")]
    assert {each["reason"]: each["message"] for each in told_of_resumes} == {
        "ResumeRequested": "resume was asked for by jane: its pods are made anew",
        "ResumeRefused": "not resumed for jane: trainwarden has not suspended it",
    }


def suspend(world: World) -> None:
    """Suspend the job as a person does."""
    world.kubectl.run(
        "patch", "trainjob", "job", "-n", world.namespace, "--type=merge", '--patch={"spec":{"suspend":true}}'
    )


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize("type_", ["Suspend", "Delete"])
def test_audit_says_what_it_would_do_and_does_nothing(world: World, type_: str) -> None:
    act(world, type_, mode="Audit", checkpoint="Skip")
    uid = world.trainjob(program=SLEEPER)
    assert ended(world, type_)["state"] == "WouldAct"
    policy = world.get("trainingpolicy", "watch")["metadata"]["uid"]
    for subject, about in ((uid, f"{world.namespace}/watch/now: "), (policy, f"{world.namespace}/job: now: ")):
        told = told_as(world, subject, f"{type_}WouldAct")
        assert told[0]["message"].startswith(about)
    job = world.get("trainjob")
    assert (job["metadata"]["uid"], bool(job["spec"].get("suspend"))) == (uid, False)
    assert "deletionTimestamp" not in job["metadata"]
    assert len(world.pods()) == 1


@pytest.mark.usefixtures("node")
def test_a_switch_puts_the_whole_cluster_into_audit_and_what_was_only_said_is_done_once_it_is_lifted(
    world: World,
) -> None:
    product, processes = world.cluster.product, world.cluster.processes
    processes.stop("operator")
    product.start_operator("--audit")
    try:
        act(world, "Suspend", checkpoint="Skip")
        world.trainjob(program=SLEEPER)
        said = ended(world, "Suspend")
        assert (said["state"], said["reason"]) == ("WouldAct", "Audit")
        ready = world.get("trainingpolicy", "watch")["status"]["conditions"][0]
        assert ready["message"] == "it is judged by the engine, in Audit mode: the operator runs with --audit"
        assert len(world.pods()) == 1
    finally:
        processes.stop("operator")
        product.start_operator()

    world.wait(lambda: suspended_by(world), "suspended")
    assert not world.pods()


@pytest.mark.usefixtures("node")
def test_a_deletion_is_of_one_uid_and_leaves_the_rest_to_the_background(world: World) -> None:
    uid = world.trainjob(program=SLEEPER, labels={"tier": "dev"})
    running(world)
    hold(world, ["example.org/hold"])
    act(world, "Delete", checkpoint="Skip", selector={"matchLabels": {"tier": "dev"}})
    world.wait(lambda: "deletionTimestamp" in world.get("trainjob")["metadata"], "deleted")
    assert world.get("trainjob")["metadata"]["finalizers"] == ["example.org/hold"], "neither foreground nor orphan"

    hold(world, [])
    world.wait(lambda: not world.kubectl.run("get", "trainjob", "-n", world.namespace, "-o", "name"), "gone")
    other = world.trainjob(program=SLEEPER)
    done = world.wait(
        lambda: [each for each in events(world, uid) if each["reason"].startswith("Delete")], "told", within=150
    )
    assert [each["reason"] for each in done] == ["DeleteDone"]
    running(world)
    assert world.get("trainjob")["metadata"]["uid"] == other
    assert world.get("trainingrun")["spec"]["uid"] == other


def hold(world: World, finalizers: list[str]) -> None:
    patch = json.dumps({"metadata": {"finalizers": finalizers}})
    world.kubectl.run("patch", "trainjob", "job", "-n", world.namespace, "--type=merge", f"--patch={patch}")


@pytest.mark.usefixtures("node")
def test_a_job_of_another_controller_is_deleted_only_where_the_policy_says_so(world: World) -> None:
    metadata = {"name": "trial", "namespace": world.namespace}
    world.kubectl.apply([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}])
    owner = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "trial",
        "uid": world.get("configmap", "trial")["metadata"]["uid"],
        "controller": True,
    }
    uid = world.trainjob(program=SLEEPER)
    patch = json.dumps({"metadata": {"ownerReferences": [owner]}})
    world.kubectl.run("patch", "trainjob", "job", "-n", world.namespace, "--type=merge", f"--patch={patch}")
    act(world, "Delete", checkpoint="Skip")
    told = ended(world, "Delete")
    assert (told["state"], told["reason"]) == ("Refused", "Owned")
    assert told["message"].startswith("it belongs to ConfigMap trial, which may make it again; delete that")
    job = world.get("trainjob")
    assert job["metadata"]["uid"] == uid
    assert "deletionTimestamp" not in job["metadata"]

    act(world, "Delete", name="all", checkpoint="Skip", includeOwned=True)
    world.wait(lambda: not world.kubectl.run("get", "trainjob", "-n", world.namespace, "-o", "name"), "gone")
