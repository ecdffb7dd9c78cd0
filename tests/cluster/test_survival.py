"""Whatever is killed or goes away: each run is suspended once, told once, and none is forgotten."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.cluster import pausing_operator
from tests.cluster.local_node import LocalNode
from tests.cluster.pausing_operator import POINTS
from tests.cluster.starting import CI, started
from tests.cluster.streams import report_again, stream
from tests.cluster.world import World
from tools.cluster.cluster import Cluster, attach

from trainwarden.policies.decision import ActionRequest, ActionResult, ActionState
from trainwarden.policies.facts import JobPhase, RunFacts

UNBRAKED = "--runs-per-hour=1000"  # the tests here end more runs than a cluster's brake lets pass
ROLES = ("operator", "engine", "notifier")


def rule(*actions: dict[str, Any]) -> dict[str, Any]:
    return {"name": "low", "when": "metrics.loss < 100.0", "for": "1s", "actions": list(actions)}


SUSPEND = {"type": "Suspend", "timeout": "30s"}
DELETE = {"type": "Delete", "timeout": "30s"}


@pytest.fixture(scope="module")
def own() -> Iterator[Cluster]:
    """A control plane of this module's own, whose parts may be killed."""
    if running := os.environ.get("TRAINWARDEN_OWN_CLUSTER"):
        yield attach(Path(running))
        return
    with started(up=unbraked) as made:
        yield made


def unbraked(cluster: Cluster) -> None:
    """Start it with brakes that let many runs end."""
    cluster.up(product=False)
    cluster.product.start(UNBRAKED)


@pytest.fixture
def world(own: Cluster, request: pytest.FixtureRequest) -> Iterator[World]:
    made = World(own, request.node.name)
    yield made
    for name in ("nats", "etcd", "kube-apiserver", *ROLES):
        if not own.processes.alive(name):
            own.processes.restart(name)
    made.remove()


@pytest.fixture
def node(world: World) -> Iterator[LocalNode]:
    with LocalNode(world) as made:
        yield made


class Messages:
    """Takes messages, and knows which job each is about."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.texts.append(f"{body['title']}\n{body['message']}")
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"json://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def end(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def messages(world: World) -> Iterator[Messages]:
    """A NotificationChannel `people` of the namespace, and what comes to it."""
    made = Messages()
    where = {"name": "people", "namespace": world.namespace}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": where, "stringData": {"urls": made.url}}
    spec = {"secretRef": {"name": "people"}}
    channel = {
        "apiVersion": "trainwarden.dev/v1alpha1",
        "kind": "NotificationChannel",
        "metadata": where,
        "spec": spec,
    }
    world.kubectl.apply([secret, channel])
    yield made
    made.end()


def train(world: World, name: str, **more: Any) -> str:
    checkpoints = {"CHECKPOINTS": str(world.folder / name), "STEP_SECONDS": "0.05"}
    return world.trainjob(name, environment=checkpoints, **more)


def all_results(world: World) -> dict[str, list[ActionResult]]:
    """Results of the effects on each job of the namespace, oldest first."""
    own, found = world.cluster, defaultdict[str, list[ActionResult]](list)
    asked = {each.action.id for each in stream(own, "TW_ACTIONS", ActionRequest)}
    for each in stream(own, "TW_RESULTS", ActionResult):
        if each.namespace == world.namespace and each.action_id in asked:
            found[each.job].append(each)
    return found


def results(world: World, name: str) -> list[ActionResult]:
    """Results of the effects on a job, oldest first."""
    return all_results(world)[name]


def all_final(world: World, names: Iterable[str]) -> bool:
    """Whether something has become of an effect on each of these jobs."""
    found = all_results(world)
    return all(any(each.state.final for each in found[name]) for name in names)


def told_of(world: World) -> set[str]:
    """Jobs of the namespace of which a message was delivered, and is known to be."""
    own = (each for each in stream(world.cluster, "TW_RESULTS", ActionResult) if each.namespace == world.namespace)
    return {each.job for each in own if each.reason == "Delivered"}


def suspended(world: World, name: str) -> bool:
    status = world.status(name)
    return bool(status.get("state") == "Suspended" and status["suspendedBy"])


def done_once(world: World, name: str, node: LocalNode) -> None:
    """A run was suspended by one action with one effect, and is told so."""
    (done,) = [each for each in results(world, name) if each.state.final]
    assert (done.state, done.reason) == (ActionState.DONE, "Suspended"), done
    trainjob = world.get("trainjob", name)
    assert trainjob["spec"]["suspend"] is True
    assert trainjob["metadata"]["generation"] == 2, "one change of its spec"
    assert len([pod for pod in node.started if pod.startswith(f"{name}-node")]) == 1, "it was never started again"
    # What the engine makes of the result is written later than what the operator has seen by itself.
    world.wait(lambda: [each["state"] for each in world.actions(name, "Suspend")] == ["Done"], "told", name=name)
    assert list((world.folder / name).glob("step-*.json")), "it was saved first"


def beyond(world: World, step: int) -> bool:
    """Whether the run `job` is seen beyond a step."""
    return int(world.status("job").get("step") or 0) > step


def verdicts(world: World) -> set[str]:
    """What the rules of the run `job` say, each kind once."""
    return {rule["verdict"] for rule in world.status("job")["rules"]}


def start_pausing(world: World, folder: Path) -> Callable[[], None]:
    """Start the operator anew so that it waits at the points; gives what starts it as it was."""
    processes = world.cluster.processes
    command, before = processes.command("operator"), processes.environment("operator")
    processes.kill("operator", signal.SIGTERM)
    environment = {**before, "TRAINWARDEN_PAUSES": str(folder)}
    options = command[1:]
    if command[0] == sys.executable:  # paused by an earlier test that failed
        options = command[2:]
    processes.start("operator", [sys.executable, pausing_operator.__file__, *options], environment=environment)
    program = str(Path(sys.executable).with_name("trainwarden"))

    def plain() -> None:
        processes.kill("operator")
        processes.start("operator", [program, *options], environment=before)

    return plain


@pytest.mark.parametrize("killed", ROLES)
def test_a_role_killed_between_any_two_steps(
    world: World, node: LocalNode, messages: Messages, killed: str, tmp_path: Path
) -> None:
    plain = start_pausing(world, tmp_path)
    for prefix, action in (("suspend", SUSPEND), ("delete", DELETE)):
        told = {"type": "Notify", "channels": ["people"]}
        world.policy(
            prefix,
            selector={"matchLabels": {"do": prefix}},
            rules=[rule(told, action)],
            protections={"abovePercent": 100},
        )
    jobs = {prefix: [f"{prefix}-{point}" for point in POINTS] for prefix in ("suspend", "delete")}
    for prefix, names in jobs.items():
        for name in names:
            train(world, name, labels={"do": prefix})
    every = {name for names in jobs.values() for name in names}
    world.wait(lambda: {path.stem for path in tmp_path.glob("*.met")} == every, "all at their points")

    # Of what is done already people are told by now; a message that is under way at the kill may be sent again.
    world.wait(lambda: told_of(world) >= {name for name in every if name.endswith("done")}, "told of what is done")
    if killed == "operator":
        plain()
    else:
        world.cluster.processes.kill(killed)
        world.cluster.processes.restart(killed)
    (tmp_path / "go").touch()

    world.wait(lambda: all_final(world, every), "all told")
    world.wait(lambda: all(suspended(world, name) for name in jobs["suspend"]), "shown as suspended")
    for name in jobs["suspend"]:
        done_once(world, name, node)
    left = world.kubectl.run("get", "trainjobs", "-n", world.namespace)
    for name in jobs["delete"]:
        (done,) = [each for each in results(world, name) if each.state.final]
        assert (done.state, done.reason) == (ActionState.DONE, "Deleted"), (name, done)
        assert name not in left
        assert len([pod for pod in node.started if pod.startswith(f"{name}-node")]) == 1
    world.wait(lambda: all(any(name in text for text in messages.texts) for name in every), "all told of")
    time.sleep(1)
    twice = {text: number for text, number in Counter(messages.texts).items() if number > 1}
    assert not twice


# ---------------------------------------------------------------------- what is away for a while


def suspends_after(world: World, node: LocalNode, outage: Callable[[], None]) -> None:
    """A training runs through an outage, and is suspended once when all is there again."""
    train(world, "before")
    world.wait(lambda: world.status("before").get("step"), "reporting", name="before")
    world.policy(rules=[rule({**SUSPEND, "after": "2s"})], protections={"abovePercent": 100})
    outage()
    train(world, "behind")
    for name in ("before", "behind"):
        world.wait(lambda name=name: revived(world) and suspended(world, name), "suspended", name=name)  # type: ignore[misc]
        done_once(world, name, node)


def revived(world: World) -> bool:
    """Start a role that has ended, as its Deployment does; an operator that can't renew its Lease ends."""
    for role in ROLES:
        if not world.cluster.processes.alive(role):
            world.cluster.processes.restart(role)
    return True


def test_nats_is_killed_and_comes_back(world: World, node: LocalNode) -> None:
    def outage() -> None:
        world.cluster.processes.kill("nats")
        time.sleep(20)
        world.cluster.processes.restart("nats")

    suspends_after(world, node, outage)


def test_the_api_server_is_killed_and_comes_back(world: World, node: LocalNode) -> None:
    def outage() -> None:
        world.cluster.processes.kill("kube-apiserver")
        time.sleep(5)
        world.cluster.processes.restart("kube-apiserver")
        world.wait(lambda: world.get("trainjob", "before"), "answering")

    suspends_after(world, node, outage)


def test_etcd_stands_still(world: World, node: LocalNode) -> None:
    def outage() -> None:
        world.cluster.processes.kill("etcd", signal.SIGSTOP)
        time.sleep(30)
        world.cluster.processes.kill("etcd", signal.SIGCONT)
        world.wait(lambda: world.get("trainjob", "before"), "answering")

    suspends_after(world, node, outage)


# ---------------------------------------------------------------------- what is told wrongly


def test_reports_that_come_again_in_any_order_change_nothing(world: World, node: LocalNode) -> None:
    train(world, "job")
    world.wait(lambda: world.status("job").get("step", 0) > 20, "well under way")
    back = {"name": "back", "when": "progress.step <= 10", "actions": [{"type": "Delete"}]}
    world.policy("back", rules=[back], protections={"abovePercent": 100, "minRunningFor": "0s"})
    world.wait(lambda: [each["verdict"] for each in world.status("job")["rules"]] == ["Inactive"], "judged")

    assert report_again(world.cluster, world.namespace, "job", 3, random.Random(1)) > 20
    step = world.status("job")["step"]
    world.wait(lambda: world.status("job").get("step", 0) > step + 20, "going on")
    assert world.actions("job") == []

    world.policy(rules=[rule(SUSPEND)], protections={"abovePercent": 100})
    world.wait(lambda: suspended(world, "job"), "suspended")
    done_once(world, "job", node)


FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")


@pytest.fixture
def clock(world: World, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Sets the clocks of all roles by a time, from +3h on; timers go on as they do when an admin sets a clock."""
    if not FAKETIME.exists():
        if CI:
            pytest.fail("CI must have faketime")
        pytest.skip("the clock of a program is set by faketime, which is not installed here")
    processes, setting = world.cluster.processes, tmp_path / "clock"
    setting.write_text("+3h")
    faked = {
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(setting),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    before = {role: (processes.command(role), processes.environment(role)) for role in ROLES}
    for role, (command, environment) in before.items():
        processes.kill(role, signal.SIGTERM)
        processes.start(role, command, environment={**environment, **faked})

    def set_by(text: str) -> None:
        setting.write_text(text)

    yield set_by
    for role, (command, environment) in before.items():
        processes.kill(role)
        processes.start(role, command, environment=environment)


def test_clocks_that_are_set_stop_nothing_and_hold_nothing_up(
    world: World, node: LocalNode, clock: Callable[[str], None]
) -> None:
    stands = {"name": "stands", "when": 'progress.sinceStep > duration("20m")', "actions": [{"type": "Suspend"}]}
    silent = {"name": "silent", "when": 'progress.sinceReport > duration("20m")', "actions": [{"type": "Delete"}]}
    old = {"name": "old", "when": 'job.age > duration("1h")', "actions": [{"type": "Delete"}]}
    world.policy("time", rules=[stands, silent, old], protections={"abovePercent": 100, "minRunningFor": "0s"})
    train(world, "job")
    for text in ("+3h", "-3h", "+3h", "+0"):
        clock(text)
        step = world.status("job").get("step") or 0
        world.wait(partial(beyond, world, step + 60), "going on")
        world.wait(lambda: verdicts(world) == {"Inactive"}, f"judged by the clocks at {text}")
        assert not world.actions("job"), text
    clock("+3h")
    world.policy(rules=[rule(SUSPEND)], protections={"abovePercent": 100})
    world.wait(lambda: suspended(world, "job"), "suspended")
    done_once(world, "job", node)


# ---------------------------------------------------------------------- two of each


def test_two_engines_ask_for_one_suspension(world: World, node: LocalNode) -> None:
    world.cluster.product.start_role("engine", as_="engine-2")
    try:
        world.policy(rules=[rule(SUSPEND)], protections={"abovePercent": 100})
        train(world, "job")
        world.wait(lambda: suspended(world, "job"), "suspended")
        time.sleep(2)
        done_once(world, "job", node)
        mine = [
            each
            for each in stream(world.cluster, "TW_ACTIONS", ActionRequest)
            if each.decision.run.namespace == world.namespace
        ]
        assert len(mine) == 1
    finally:
        world.cluster.processes.stop("engine-2")


def holder(world: World) -> str:
    lease = world.kubectl.get("lease", "trainwarden-operator", "-n", "trainwarden")
    return str(lease["spec"].get("holderIdentity") or "")


def test_of_two_operators_the_one_with_the_lease_writes_and_the_other_takes_over(world: World, node: LocalNode) -> None:
    processes = world.cluster.processes
    mine = f"-{processes.pid('operator')}-"
    processes.need("operator", lambda: mine in holder(world), "leading, if one was killed before")
    first = holder(world)
    account = Path(processes.environment("operator")["KUBECONFIG"])
    world.cluster.product.start_role("operator", UNBRAKED, kubeconfig=account, as_="operator-2")
    try:
        processes.need("operator-2", lambda: "another operator leads" in processes.tail("operator-2"), "waiting")
        train(world, "job")
        world.wait(lambda: world.status("job").get("step"), "reporting")
        assert holder(world) == first
        assert "works jobs=" not in processes.tail("operator-2", 1000)
        processes.kill("operator")
        world.policy(rules=[rule(SUSPEND)], protections={"abovePercent": 100})
        world.wait(lambda: suspended(world, "job"), "suspended by the other")
        assert holder(world) not in ("", first)
        processes.restart("operator")
        processes.need("operator", lambda: processes.tail("operator").endswith("this one waits"), "waiting")
        done_once(world, "job", node)
    finally:
        processes.stop("operator-2")


# ---------------------------------------------------------------------- deleted while nobody looks


def test_a_trainjob_deleted_while_the_operator_is_down_ends_what_was_asked(
    world: World, node: LocalNode, tmp_path: Path
) -> None:
    plain = start_pausing(world, tmp_path)
    world.policy(rules=[rule(DELETE)], protections={"abovePercent": 100})
    train(world, "delete-ending")
    train(world, "quiet", labels={"no": "report"}, program="tests/cluster/sleeper.py")
    world.wait(lambda: (tmp_path / "delete-ending.met").exists(), "about to be deleted", name="delete-ending")
    world.wait(lambda: newest_facts(world)["quiet"].phase is JobPhase.RUNNING, "running", name="quiet")
    world.cluster.processes.kill("operator")
    world.kubectl.run("delete", "trainjob", "delete-ending", "quiet", "-n", world.namespace)
    (tmp_path / "go").touch()
    plain()
    world.wait(lambda: newest_facts(world)["quiet"].phase is JobPhase.DELETING, "noticed", name="quiet")
    world.wait(lambda: all_final(world, ["delete-ending"]), "told", name="delete-ending")
    (done,) = [each for each in results(world, "delete-ending") if each.state.final]
    assert (done.state, done.reason) == (ActionState.DONE, "Deleted"), done


def newest_facts(world: World) -> dict[str, RunFacts]:
    """The newest facts of each job of the namespace."""
    told = stream(world.cluster, "TW_FACTS", RunFacts)
    return {each.job: each for each in told if each.namespace == world.namespace}
