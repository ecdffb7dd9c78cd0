"""Runs pods' commands as processes of this machine where no kubelet is: the control plane alone then really trains."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from datetime import UTC, datetime
from typing import Any

from httpx2 import HTTPError
from lightkube import ApiError, Client, KubeConfig
from lightkube.resources.core_v1 import Pod
from lightkube.types import PatchType
from tests.cluster.world import World

_EVERY = 0.3  # seconds between two looks


class LocalNode:
    """Starts what pods of one namespace are to run, tells their status, and ends it when they are gone.

    Args:
        world: Its namespace.
    """

    def __init__(self, world: World) -> None:
        config = KubeConfig.from_file(world.kubectl.config).get()
        self._client: Any = Client(config, namespace=world.namespace)
        self._namespace = world.namespace
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._log = (world.folder / "pods.log").open("ab")
        self.started: list[str] = []

    def __enter__(self) -> LocalNode:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join(30)
        for process in self._running.values():
            _end(process)
        self._client.close()
        self._log.close()

    def _run(self) -> None:
        while not self._stop.wait(_EVERY):
            with contextlib.suppress(ApiError, HTTPError, OSError):  # the API server is away
                self._look()

    def _look(self) -> None:
        pods = {str(pod.metadata.name): pod for pod in self._client.list(Pod, namespace=self._namespace)}
        for name in list(self._running):
            if name not in pods or pods[name].metadata.deletionTimestamp is not None:
                _end(self._running.pop(name))
            elif self._running[name].poll() is not None and pods[name].status.phase == "Running":
                self._tell(name, "Failed" if self._running[name].returncode else "Succeeded", ready=False)
        for name, pod in pods.items():
            if name not in self._running and pod.status.phase == "Pending" and pod.metadata.deletionTimestamp is None:
                container = pod.spec.containers[0]
                told = {each.name: each.value for each in container.env or () if each.value is not None}
                told |= {
                    "TRAINWARDEN_NAMESPACE": self._namespace,
                    "TRAINWARDEN_JOB": pod.metadata.labels["jobset.sigs.k8s.io/jobset-name"],
                }
                self._running[name] = subprocess.Popen(
                    [*_as_host(pod.spec.hostname), *container.command],
                    env={**os.environ, **told},
                    stdout=self._log,
                    stderr=self._log,
                )
                self.started.append(name)
            if name in self._running and pod.status.phase == "Pending":
                self._tell(name, "Running", ready=True)

    def _tell(self, name: str, phase: str, *, ready: bool) -> None:
        ready_condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": _now()}
        status = {"phase": phase, "conditions": [ready_condition]}
        self._client.patch(
            Pod.Status, name, {"status": status}, namespace=self._namespace, patch_type=PatchType.STRATEGIC
        )


def _as_host(name: str) -> list[str]:
    """How to run a command that sees this name as its host's."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    program = "import os, socket, sys; socket.sethostname(sys.argv[1]); os.execvp(sys.argv[2], sys.argv[2:])"
    return ["unshare", *user, "--uts", "--", sys.executable, "-c", program, name]


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
