"""Which job this process trains for, as its environment tells. Reads what it is handed; does no look-up by network."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from trainwarden.reporters.wire import WireError, subject_token

__all__ = ["HOSTS", "NAMESPACE_MOUNT", "Identity", "UnknownJobError", "identify", "whole_from"]

HOSTS = "/etc/hosts"
NAMESPACE_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

_STATUS_PATH = re.compile(r"/namespaces/(?P<namespace>[^/]+)/trainjobs/(?P<job>[^/]+)(?:/|\Z)")
_HOST_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\Z")


class UnknownJobError(ValueError):
    """The environment doesn't tell the job, or tells a name that can't be one; the reporter stays inactive."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Which job, and which process of it."""

    namespace: str
    job: str
    pod: str  # host name
    rank: int
    world: int


def identify(
    environ: Mapping[str, str],
    *,
    pod: str,
    hosts: str = "",
    mounted_namespace: str = "",
    namespace: str | None = None,
    job: str | None = None,
    rank: int | None = None,
    world: int | None = None,
) -> Identity:
    """Tell the job from arguments, else from the environment.

    Each of namespace and job comes from the first that has it: the argument, `TRAINWARDEN_NAMESPACE` and
    `TRAINWARDEN_JOB`, the path of `KUBEFLOW_TRAINER_SERVER_URL`, `PET_MASTER_ADDR` after its first dot (job), the pod's
    full name in its hosts file; the namespace also from the service account's mount, else it is `default`.

    Args:
        environ: The environment.
        pod: This host's name.
        hosts: Text of the hosts file; Kubernetes writes the pod's full name there.
        mounted_namespace: Text of the service account's namespace file, empty when there is none.
        namespace: The namespace, when the caller knows it.
        job: The job, when the caller knows it.
        rank: This process among those of the training, else `RANK`, else 0.
        world: Their number, else `WORLD_SIZE`, else 1.

    Raises:
        UnknownJobError: No job is told, or a name can't be part of a subject.
    """
    found = [
        (namespace, job),
        (environ.get("TRAINWARDEN_NAMESPACE"), environ.get("TRAINWARDEN_JOB")),
        _from_status_url(environ.get("KUBEFLOW_TRAINER_SERVER_URL", "")),
        _from_master(environ.get("PET_MASTER_ADDR", "")),
        _from_full_name(pod, hosts),
        (mounted_namespace.strip() or None, None),
    ]
    in_namespace = next((space for space, _ in found if space), "default")
    name = next((name for _, name in found if name), None)
    if name is None:
        raise UnknownJobError("no job is known; set TRAINWARDEN_JOB, or pass job= to Reporter")
    try:
        subject_token(in_namespace)
        subject_token(name)
    except WireError as error:
        raise UnknownJobError(f"namespace or job can't be used: {error}") from error
    own_rank = whole_from(environ.get("RANK"), 0) if rank is None else rank
    own_world = whole_from(environ.get("WORLD_SIZE"), 1) if world is None else world
    return Identity(in_namespace, name, pod, own_rank, max(1, own_world))


def whole_from(text: str | None, default: int) -> int:
    """A whole number of zero or more from the environment; the default when it is missing or odd."""
    return int(text) if text is not None and text.strip().isdecimal() else default


def _from_status_url(url: str) -> tuple[str | None, str | None]:
    found = _STATUS_PATH.search(url.partition("?")[0])
    return (found["namespace"], found["job"]) if found else (None, None)


def _from_master(address: str) -> tuple[str | None, str | None]:
    """From `<job>-node-0-0.<job>[.<namespace>.svc…]`; an IP address or a plain host name tells nothing."""
    labels = address.strip().rstrip(".").split(".")
    return _from_labels(labels)


def _from_full_name(pod: str, hosts: str) -> tuple[str | None, str | None]:
    """From the line `<address> <pod>.<job>.<namespace>.svc.<zone> <pod>` that the kubelet writes."""
    for line in hosts.splitlines():
        for name in line.partition("#")[0].split()[1:]:
            labels = name.rstrip(".").split(".")
            if labels[0] == pod and len(labels) > 3 and labels[3] == "svc":
                return _from_labels(labels)
    return None, None


def _from_labels(labels: list[str]) -> tuple[str | None, str | None]:
    if len(labels) < 2 or labels[-1].isdecimal() or not all(map(_HOST_LABEL.match, labels)):
        return None, None
    host, job = labels[0], labels[1]
    if not host.startswith(f"{job}-"):
        return None, None
    return (labels[2] if len(labels) > 3 and labels[3] == "svc" else None), job
