"""What remains of a job that was suspended or deleted: its pods, gone only once the API server itself says so.

A list by label makes an API server read through all pods of a namespace: while the watch shows pods it is not asked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Any

from httpx2 import HTTPError
from lightkube import ApiError, AsyncClient

from trainwarden.controller.cluster.reflector import Key, Object
from trainwarden.controller.cluster.resources import Pod, TrainJob
from trainwarden.controller.cluster.watching import Watcher
from trainwarden.controller.executor import NotDoneError

__all__ = ["DELETED", "Remains"]

DELETED = ("NoJob", "somebody has deleted the job meanwhile")
"""Reason and message of a suspension that there is nothing left for."""

_LOOK = 0.5  # seconds between two looks
_ASK = 10.0  # seconds after which the API server is asked again while the watch says that pods are there
_BEYOND_GRACE = 60.0  # seconds that pods may take beyond their grace period
_JOBSET = "jobset.sigs.k8s.io/jobset-name"
_NOT_FOUND = 404


class Remains:
    """Pods of one TrainJob, those of a successor of its name left out.

    Args:
        client: With which it looks.
        watcher: That knows the jobs.
        asking: Free places for lists, shared by all that look: nothing else shall have to wait for them.
        key: Namespace and name.
        uid: Of the job.
    """

    def __init__(self, client: AsyncClient, watcher: Watcher, asking: asyncio.Semaphore, key: Key, uid: str) -> None:
        self._client, self._watcher, self._asking, self._key, self._uid = client, watcher, asking, key, uid

    async def wait_gone(self, *, suspended: bool = False) -> str:
        """Wait until no pod of the training is there, and none comes; gives what is so instead, when that takes long.

        Args:
            suspended: Whether the job must also be seen to be suspended: between two tries of a job no pod is there.

        Raises:
            NotDoneError: It was to be suspended, and is there no more.
        """
        began = asked = time.monotonic()
        patience, remains = _BEYOND_GRACE, "its pods can't be seen"
        while True:
            await self._watch_until(asked + _ASK)
            asked = time.monotonic()
            pods = await self._pods()
            if pods is not None:
                left = self._left(pods)
                if not left and (not suspended or await self._is_suspended()):
                    return ""
                remains = "pods are still there" if left else "the job is not seen to be suspended"
                graces = (int(pod["spec"].get("terminationGracePeriodSeconds") or 30) for pod in left)
                patience = max([patience, *(grace + _BEYOND_GRACE for grace in graces)])
            waited = time.monotonic() - began
            if waited > patience:
                return f"{remains} after {waited:.0f} s"
            await asyncio.sleep(_LOOK)

    async def _watch_until(self, moment: float) -> None:
        """Wait as long as the watch shows pods of its own, up to a moment."""
        while time.monotonic() < moment:
            if not self._left(self._watcher.related(self._key).pods):
                return
            await asyncio.sleep(_LOOK)

    async def _pods(self) -> list[Object] | None:
        """All pods of its name, asked of the API server; None when it can't say."""
        client: Any = self._client
        try:
            async with self._asking:
                return [pod async for pod in client.list(Pod, namespace=self._key[0], labels={_JOBSET: self._key[1]})]
        except (ApiError, HTTPError, OSError):
            return None

    def _left(self, pods: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Those that are its own and still run."""
        return [pod for pod in pods if not self._is_of_a_successor(pod) and not _is_over(pod)]

    async def _is_suspended(self) -> bool:
        client: Any = self._client
        try:
            trainjob = await client.get(TrainJob, self._key[1], namespace=self._key[0])
        except ApiError as error:
            if error.status.code == _NOT_FOUND:
                raise NotDoneError(*DELETED, refused=True) from error
            return False
        except (HTTPError, OSError):
            return False
        if trainjob["metadata"]["uid"] != self._uid:
            raise NotDoneError(*DELETED, refused=True)
        return bool((trainjob.get("spec") or {}).get("suspend"))

    def _is_of_a_successor(self, pod: Mapping[str, Any]) -> bool:
        """Whether a pod came with a newer job of the same name."""
        trainjob = self._watcher.trainjobs.objects.get(self._key)
        if trainjob is None or trainjob["metadata"]["uid"] == self._uid:
            return False
        return str(pod["metadata"]["creationTimestamp"]) >= str(trainjob["metadata"]["creationTimestamp"])


def _is_over(pod: Mapping[str, Any]) -> bool:
    """Whether a pod had ended by itself; one that is being deleted is only over once it is gone."""
    ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return ended and "deletionTimestamp" not in pod["metadata"]
