"""A Lease that one operator holds: only it writes to the cluster, and another takes over when it is gone."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import UTC, datetime
from typing import Any

from httpx2 import HTTPError
from lightkube import ApiError, AsyncClient

from trainwarden.controller.cluster.resources import Lease

__all__ = ["Leadership", "LeadershipLostError"]

log = logging.getLogger(__name__)

_CONFLICT, _NOT_FOUND = 409, 404


class LeadershipLostError(Exception):
    """Another operator leads, or may by now; this one must end at once."""


class Leadership:
    """Holds, or waits for, one Lease.

    Args:
        client: With which it writes.
        namespace: Of the Lease.
        identity: Of this process, unique.
        name: Of the Lease.
        duration: Seconds after its last renewal that others wait.
    """

    def __init__(
        self,
        client: AsyncClient,
        *,
        namespace: str,
        identity: str,
        name: str = "trainwarden-operator",
        duration: int = 15,
    ) -> None:
        self._client: Any = client
        self._namespace, self._name, self._identity, self._duration = namespace, name, identity, duration
        self._problem = ""  # why the Lease could not be read or written at last
        self._seen: tuple[str, float] = ("", 0.0)  # what the Lease said, and since when by our own clock

    async def acquire(self) -> None:
        """Wait until the Lease is ours."""
        told = ""
        while not (held := await self._take()):
            why = "another operator leads; this one waits" if held is False else f"can't lead: {self._problem}"
            if why != told:
                log.log(logging.INFO if held is False else logging.WARNING, why)
                told = why
            await asyncio.sleep(self._duration / 5)
        log.info("leads identity=%s", self._identity)

    async def keep(self) -> None:
        """Renew until cancelled.

        Raises:
            LeadershipLostError: It could not be renewed in time.
        """
        lost_at = time.monotonic() + self._duration * 0.8  # others take it some seconds later
        while True:
            await asyncio.sleep(self._duration / 5)
            began = time.monotonic()
            try:
                async with asyncio.timeout(max(0.0, min(self._duration / 3, lost_at - began))):
                    held = await self._take()
            except TimeoutError:
                held = None
            if held:
                lost_at = began + self._duration * 0.8
            elif held is False or time.monotonic() + self._duration / 5 > lost_at:
                raise LeadershipLostError("the Lease could not be renewed in time; another operator may lead now")

    async def release(self) -> None:
        """Give the Lease back, so that nobody has to wait."""
        try:
            async with asyncio.timeout(3):
                lease = await self._client.get(Lease, self._name, namespace=self._namespace)
                if lease["spec"].get("holderIdentity") == self._identity:
                    lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
                    await self._client.replace(lease, namespace=self._namespace)
        except (ApiError, HTTPError, OSError, TimeoutError):
            log.info("the Lease was not given back; it runs out by itself")

    async def _take(self) -> bool | None:
        """Whether the Lease is ours now; None when that can't be known."""
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        ours = {"holderIdentity": self._identity, "leaseDurationSeconds": self._duration, "renewTime": now}
        try:
            lease = await self._client.get(Lease, self._name, namespace=self._namespace)
        except ApiError as error:
            if error.status.code != _NOT_FOUND:
                self._note(error)
                return None
            kind: Any = Lease
            made = kind(metadata={"name": self._name, "namespace": self._namespace}, spec={**ours, "acquireTime": now})
            return await self._written(self._client.create(made, namespace=self._namespace))
        except (HTTPError, OSError) as error:
            self._note(error)
            return None
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder and holder != self._identity:
            said = f"{holder} {spec.get('renewTime')}"
            if said != self._seen[0]:
                self._seen = (said, time.monotonic())
            if time.monotonic() - self._seen[1] < float(spec.get("leaseDurationSeconds") or self._duration):
                return False
        lease["spec"] = {**spec, **ours, "acquireTime": spec.get("acquireTime") if holder == self._identity else now}
        return await self._written(self._client.replace(lease, namespace=self._namespace))

    async def _written(self, writing: Any) -> bool | None:
        try:
            await writing
        except ApiError as error:
            self._note(error)
            return False if error.status.code == _CONFLICT else None
        except (HTTPError, OSError) as error:
            self._note(error)
            return None
        return True

    def _note(self, error: Exception) -> None:
        why = str(error) or type(error).__name__
        self._problem = f"the Lease {self._namespace}/{self._name} can't be used: {why}"
