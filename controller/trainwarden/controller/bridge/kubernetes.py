"""Asking Kubernetes: is the token good, which pod holds it, is that pod one of the job's, is there such a job.

Needs `create` on `tokenreviews` (authentication.k8s.io), `get` on `pods` and on `trainjobs` (trainer.kubeflow.org).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx2
from lightkube.config.kubeconfig import KubeConfig
from lightkube.core.async_client import AsyncClient
from lightkube.core.exceptions import ApiError, ConfigError
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.authentication_v1 import TokenReviewSpec, TokenReviewStatus
from lightkube.resources.authentication_v1 import TokenReview
from lightkube.resources.core_v1 import Pod

from trainwarden.controller.bridge.claims import refuse_hopeless
from trainwarden.controller.bridge.gate import Admission, CannotTellError, ForbiddenError, NoSuchJobError
from trainwarden.controller.bridge.training import Sender

__all__ = ["KubernetesGate"]

log = logging.getLogger(__name__)

_JOB_LABEL = "jobset.sigs.k8s.io/jobset-name"  # of every pod of a TrainJob, whose JobSet has its name
_POD_NAME, _POD_UID = "authentication.kubernetes.io/pod-name", "authentication.kubernetes.io/pod-uid"
_NOT_FOUND = 404

TrainJob = create_namespaced_resource("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs")

T = TypeVar("T")


class KubernetesGate:
    """Admits pods by their service account tokens.

    Trainer's own status server takes any token of the job's namespace. This one takes the tokens of the job's pods.

    Args:
        client: With the rights above.
        audience: That the tokens must be for.
        wall: Unix seconds.
    """

    def __init__(self, client: AsyncClient, *, audience: str, wall: Callable[[], float] = time.time) -> None:
        self._client, self._audience, self._wall = client, audience, wall
        self._told = ""

    @classmethod
    def connect(cls, kubeconfig: str | None, *, audience: str) -> KubernetesGate:
        """With a kubeconfig; without one with this pod's service account, or what kubectl would take.

        Raises:
            ConfigError: There is none, or it can't be used.
        """
        config = KubeConfig.from_file(kubeconfig) if kubeconfig else KubeConfig.from_env()
        return cls(AsyncClient(config=config), audience=audience)

    async def close(self) -> None:
        """Give the connections up."""
        await self._client.close()

    async def admit(self, token: str, namespace: str, job: str) -> Admission:
        """As `Gate.admit`."""
        claims = refuse_hopeless(token, namespace, audience=self._audience, now=self._wall())
        name, uid = await self._review(token, namespace)
        pod, there = await asyncio.gather(
            self._get(Pod, name, namespace, "pods"), self._get(TrainJob, job, namespace, "trainjobs")
        )
        if there is None:
            raise NoSuchJobError(f"there is no TrainJob {namespace}/{job}")
        if pod is None or pod.metadata.uid != uid:
            raise ForbiddenError(f"pod {namespace}/{name} of the token is gone")
        of = (pod.metadata.labels or {}).get(_JOB_LABEL)
        if of != job:
            whose = f"of TrainJob {of}" if of else "of no TrainJob"
            raise ForbiddenError(f"pod {namespace}/{name} is {whose}, so it can't report for {job}")
        host = pod.spec.hostname or name
        return Admission(Sender(namespace, job, uid, host), claims.exp)

    async def _review(self, token: str, namespace: str) -> tuple[str, str]:
        """Name and uid of the pod that holds the token."""
        asked = TokenReview(spec=TokenReviewSpec(token=token, audiences=[self._audience]))
        answer = await self._ask("create tokenreviews", self._client.create(asked))
        status = answer.status or TokenReviewStatus()
        if not status.authenticated or self._audience not in (status.audiences or ()):
            raise ForbiddenError(f"Kubernetes refuses the token: {status.error or 'it is not authenticated'}")
        user = status.user
        username = (user.username if user else None) or ""
        if not username.startswith(f"system:serviceaccount:{namespace}:"):
            raise ForbiddenError(f"the token is of {username!r}; a service account of {namespace!r} is right")
        extra: dict[str, list[str]] = (user.extra if user else None) or {}
        try:
            (name,), (uid,) = extra[_POD_NAME], extra[_POD_UID]
        except (KeyError, ValueError):
            raise ForbiddenError(
                "the token is bound to no pod; one from a projected volume of the pod is right"
            ) from None
        return name, uid

    async def _get(self, kind: Any, name: str, namespace: str, plural: str) -> Any:
        try:
            return await self._ask(f"get {plural}", self._client.get(kind, name, namespace=namespace))
        except _AbsentError:
            return None

    async def _ask(self, what: str, answer: Awaitable[T]) -> T:
        try:
            got = await answer
        except ApiError as error:
            code = error.status.code
            if code == _NOT_FOUND:
                raise _AbsentError from error
            problem = f"can't {what}: {error.status.message}"
        except (httpx2.HTTPError, ConfigError, OSError) as error:
            problem = f"can't {what}: {str(error) or type(error).__name__}"
        else:
            self._told = ""
            return got
        if problem != self._told:
            log.warning("Kubernetes does not tell who may report reason=%s", problem)
            self._told = problem
        raise CannotTellError("Kubernetes does not answer whether this pod may report; try again")


class _AbsentError(Exception):
    """There is none of that name."""
