"""NotificationChannels of a real API server: their Secrets, what is wrong with them, and messages that arrive."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from tests.cluster.world import OURS, World
from tests.notifiers.conftest import Mailbox, Receiver, mailbox, receiver

__all__ = ["mailbox", "receiver"]  # fixtures of this file too

PNG = b"\x89PNG\r\n\x1a\n"
LOW = {"name": "low", "when": 'metrics["loss"] < 2.9 && progress.step >= 100', "severity": "warning"}
PRIVATE = "s3cr3t-t0k3n"


def secret(world: World, name: str, *lines: str, key: str = "urls") -> None:
    data = {key: "\n".join(lines)}
    metadata = {"name": name, "namespace": world.namespace}
    world.kubectl.apply([{"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data}])


def channel(world: World, name: str, *, kind: str = "NotificationChannel", **spec: Any) -> None:
    metadata = {"name": name} if kind.startswith("Cluster") else {"name": name, "namespace": world.namespace}
    world.kubectl.apply(
        [{"apiVersion": OURS, "kind": kind, "metadata": metadata, "spec": {"secretRef": {"name": name}, **spec}}]
    )


def ready(world: World, name: str, kind: str = "notificationchannel") -> dict[str, Any]:
    conditions = (world.get(kind, name).get("status") or {}).get("conditions") or [{}]
    return dict(conditions[0])


def usable(world: World, *names: str, kind: str = "notificationchannel") -> None:
    world.wait(
        lambda: all(ready(world, name, kind).get("status") == "True" for name in names), f"{', '.join(names)} ready"
    )


def notified(world: World) -> dict[str, Any]:
    """The Notify of the only rule, once it has ended."""
    return dict(
        world.wait(
            lambda: [each for each in world.actions(type_="Notify") if each.get("state") in ("Done", "Failed")],
            "told",
        )[0]
    )


@pytest.mark.usefixtures("node")
def test_hook_and_mail_get_one_message_with_the_curve(world: World, receiver: Receiver, mailbox: Mailbox) -> None:
    secret(world, "hook", f"json://127.0.0.1:{receiver.port}/hook")
    secret(world, "mail", f"mailto://127.0.0.1:{mailbox.port}?from=w@example.org&to=ann@example.org&mode=insecure")
    secret(world, "loud", f"json://127.0.0.1:{receiver.port}/loud")
    channel(world, "hook")
    channel(world, "mail", minimumSeverity="warning")
    channel(world, "loud", minimumSeverity="critical")
    usable(world, "hook", "mail", "loud")
    told = {"type": "Notify", "channels": ["hook", "mail", "loud"]}
    worse = {"name": "worse", "when": "progress.step >= 100", "severity": "critical"}
    world.policy(rules=[{**LOW, "actions": [told]}, {**worse, "actions": [{"type": "Notify", "channels": ["loud"]}]}])
    world.trainjob(environment={"STEPS": "100000"})

    done = world.wait(
        lambda: (
            [each for each in world.actions(type_="Notify") if each["state"] == "Done"][1:]
            and world.actions(type_="Notify")
        ),
        "told by both rules",
    )
    assert {each["rule"]: each["reason"] for each in done} == {"low": "Delivered", "worse": "Delivered"}
    assert sorted(receiver.paths) == ["/hook", "/loud"], "the loud channel takes no warning"

    hook = json.loads(receiver.bodies[receiver.paths.index("/hook")])
    assert f"{world.namespace}/job" in hook["title"] + hook["message"]
    assert [each["mimetype"] for each in hook["attachments"]] == ["image/png"]
    assert base64.b64decode(hook["attachments"][0]["base64"]).startswith(PNG)
    assert "worse" in json.dumps(json.loads(receiver.bodies[receiver.paths.index("/loud")]))

    (mail,) = mailbox.mails
    assert mail["To"] == "ann@example.org"
    pictures = [part.get_payload(decode=True) for part in mail.walk() if part.get_content_type() == "image/png"]
    assert [bytes(picture).startswith(PNG) for picture in pictures if isinstance(picture, bytes)] == [True]


def test_a_cluster_channel_takes_what_names_none(world: World, receiver: Receiver) -> None:
    name = world.namespace
    secret(world, name, f"json://127.0.0.1:{receiver.port}/cluster")
    near = {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}}
    reference = {"name": name, "namespace": world.namespace}
    channel(world, name, kind="ClusterNotificationChannel", secretRef=reference, default=True, namespaceSelector=near)
    far = f"{name}-far"
    other = {"matchLabels": {"kubernetes.io/metadata.name": "elsewhere"}}
    channel(world, far, kind="ClusterNotificationChannel", secretRef=reference, default=True, namespaceSelector=other)
    try:
        usable(world, name, far, kind="clusternotificationchannel")
        world.policy(rules=[{"name": "seen", "when": "true", "actions": [{"type": "Notify"}]}])
        world.trainjob(suspend=True)
        assert notified(world)["reason"] == "Delivered"
    finally:
        world.kubectl.run("delete", "clusternotificationchannel", name, far)
    assert receiver.paths == ["/cluster"]


def test_a_name_without_a_usable_channel_is_said_on_the_run(world: World, receiver: Receiver) -> None:
    channel(world, "broken")
    world.wait(lambda: ready(world, "broken").get("status") == "False", "marked")
    actions = [{"type": "Notify", "channels": ["broken"]}]
    world.policy(rules=[{"name": "seen", "when": "true", "actions": actions}])
    world.trainjob(suspend=True)
    told = notified(world)
    assert (told["state"], told["reason"]) == ("Failed", "NotDelivered")
    assert told["message"] == "broken: there is no usable channel of this name; see its Ready condition"
    assert receiver.bodies == []


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ((f"http://127.0.0.1/{PRIVATE}",), "write json:// or jsons:// in its place"),
        ((f"{PRIVATE}",), "has no scheme that could be read"),
        ((f"nosuch://{PRIVATE}@host",), "nosuch:// is no service that is known"),
        ((f"slack://{PRIVATE}",), "this slack:// URL is not complete"),
        ((f"file:///{PRIVATE}",), "file:// stays on this machine"),
        ((f"json://127.0.0.1/{PRIVATE}", f"nosuch://{PRIVATE}"), "address 2 of Secret "),
        ((" ", ""), "holds no address; put Apprise URLs there, one a line"),
    ],
)
def test_a_bad_address_is_told_and_never_shown(world: World, lines: tuple[str, ...], told: str) -> None:
    secret(world, "bad", *lines)
    channel(world, "bad")
    condition = world.wait(lambda: ready(world, "bad"), "marked")
    assert (condition["status"], condition["reason"]) == ("False", "Invalid")
    assert condition["message"].startswith("spec.secretRef")
    assert told in condition["message"]
    assert PRIVATE not in json.dumps(world.get("notificationchannel", "bad"))
    assert_no_log_holds(world, PRIVATE)


def test_a_wrong_key_is_told(world: World) -> None:
    secret(world, "hook", "json://127.0.0.1/x", key="addresses")
    channel(world, "hook")
    condition = world.wait(lambda: ready(world, "hook"), "marked")
    assert condition["status"] == "False"
    assert condition["message"] == f"spec.secretRef.key: Secret {world.namespace}/hook has addresses, not urls"

    channel(world, "hook", secretRef={"name": "hook", "key": "addresses"})
    fixed = world.wait(lambda: ready(world, "hook").get("status") == "True" and ready(world, "hook"), "ready")
    assert (fixed["reason"], fixed["message"], fixed["observedGeneration"]) == ("Accepted", "1 address", 2)


def test_an_edit_is_seen_where_nothing_else_changes(world: World) -> None:
    secret(world, "hook", "json://127.0.0.1/x", "json://127.0.0.1/y")
    channel(world, "hook")
    usable(world, "hook")
    before = ready(world, "hook")
    assert before["message"] == "2 addresses"
    channel(world, "hook", minimumSeverity="critical")
    world.wait(lambda: ready(world, "hook")["observedGeneration"] == 2, "seen")
    assert ready(world, "hook")["lastTransitionTime"] == before["lastTransitionTime"], "it was ready all along"


def test_a_secret_that_comes_later_is_found(world: World, receiver: Receiver) -> None:
    channel(world, "hook")
    condition = world.wait(lambda: ready(world, "hook"), "marked")
    assert condition["status"] == "False"
    assert condition["message"] == (
        f"spec.secretRef: Secret {world.namespace}/hook is not there; make it, with the key urls"
    )
    secret(world, "hook", f"json://user:{PRIVATE}@127.0.0.1:{receiver.port}/hook")
    usable(world, "hook")
    world.policy(rules=[{"name": "seen", "when": "true", "actions": [{"type": "Notify", "channels": ["hook"]}]}])
    receiver.answers[:] = ["403"]
    world.trainjob(suspend=True)
    told = notified(world)
    assert (told["state"], told["reason"]) == ("Failed", "NotDelivered")
    assert "HTTP 403 Forbidden" in told["message"]
    assert PRIVATE not in json.dumps([world.get("notificationchannel", "hook"), world.get("trainingrun")])
    assert_no_log_holds(world, PRIVATE)


def assert_no_log_holds(world: World, text: str) -> None:
    folder = world.cluster.processes.folder
    for role in ("operator", "notifier", "engine"):
        assert text not in (folder / f"{role}.log").read_text(errors="replace"), role
