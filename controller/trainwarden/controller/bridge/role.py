"""The bridge as a role: the HTTPS server, what it knows of tokens, and the way to NATS."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainwarden.controller.bridge.certificates import Certificates
from trainwarden.controller.bridge.gate import CachedGate, Gate
from trainwarden.controller.bridge.kubernetes import KubernetesGate
from trainwarden.controller.bridge.pending import Pending
from trainwarden.controller.bridge.publisher import Publisher
from trainwarden.controller.bridge.server import BridgeServer, Limits
from trainwarden.controller.bus import Bus, BusError
from trainwarden.controller.cancelling import end_all

__all__ = ["AUDIENCE", "Bridge", "BridgeSettings", "run_bridge"]

log = logging.getLogger(__name__)

AUDIENCE = "trainwarden.dev/bridge"
"""Audience of the tokens that are taken, unless another one is set."""


@dataclass(frozen=True, slots=True)
class BridgeSettings:
    """What the bridge is told. Seconds, numbers."""

    certificate: Path  # PEM, with its chain
    key: Path  # PEM, without password
    nats_url: str = "nats://127.0.0.1:4222"
    nats_token: str | None = field(default=None, repr=False)
    host: str | None = None  # None is every address of this machine
    port: int = 10443  # 0 takes any
    audience: str = AUDIENCE
    kubeconfig: str | None = None  # None is the pod's service account, or what kubectl would take
    admitted_seconds: float = 60.0  # that leave to report holds
    refused_seconds: float = 10.0  # that a refusal holds
    most_verdicts: int = 10_000
    most_jobs: int = 10_000  # whose posts may wait for NATS
    certificate_seconds: float = 10.0  # between looks at the certificate's files
    ending_seconds: float = 5.0  # for what still waits when the bridge is stopped
    limits: Limits = field(default_factory=Limits)


class Bridge:
    """One bridge.

    Args:
        settings: What it is told.
        gate: Who may report; its answers are kept for a while.
    """

    def __init__(self, settings: BridgeSettings, gate: Gate) -> None:
        self._settings = settings
        self._gate = CachedGate(
            gate,
            seconds=settings.admitted_seconds,
            refused_seconds=settings.refused_seconds,
            most=settings.most_verdicts,
        )
        self._bus: Bus | None = None
        self._connecting: asyncio.Task[Bus] | None = None
        self._publisher: Publisher | None = None
        self.pending = Pending(most=settings.most_jobs)
        self.certificates = Certificates(settings.certificate, settings.key, every=settings.certificate_seconds)
        self.server = BridgeServer(self._gate, self.pending, limits=settings.limits, more=self._numbers)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[list[asyncio.Task[None]]]:
        """Take posts meanwhile, also while NATS is away; gives the tasks that must not end.

        Raises:
            OSError: The address can't be listened on.
        """
        tasks = [asyncio.create_task(self._publish())]
        try:
            async with self.server.serving(self._settings.host, self._settings.port, self.certificates.context):
                tasks.append(asyncio.create_task(self.certificates.watch()))
                log.info("the bridge serves port=%d", self.server.port)
                yield tasks
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.ending_seconds):
                    await self.pending.settled()
            if self.pending:
                log.warning("posts of so many jobs were not sent jobs=%d", len(self.pending))
        finally:
            await end_all(tasks)
            if self._connecting is not None:  # cancelled half-way it would leave a connection behind
                with contextlib.suppress(BusError):
                    await (await self._connecting).close()

    async def _publish(self) -> None:
        told, wait = False, 0.25
        while self._bus is None:
            try:
                self._connecting = asyncio.create_task(
                    Bus.connect(self._settings.nats_url, token=self._settings.nats_token, name="trainwarden-bridge")
                )
                self._bus = await asyncio.shield(self._connecting)
            except BusError as error:
                log.log(logging.DEBUG if told else logging.WARNING, "posts wait, will retry reason=%s", error)
                told = True
                await asyncio.sleep(wait)
                wait = min(2 * wait, 5.0)
        self._publisher = Publisher(self._bus, self.pending, most=self._settings.most_jobs)
        await self._publisher.run()

    def _numbers(self) -> Mapping[str, object]:
        publisher = self._publisher
        numbers: dict[str, object] = {"reviews": self._gate.asked, "certificateReloads": self.certificates.reloads}
        if publisher is not None:
            numbers |= {
                "published": publisher.published,
                "repeated": publisher.repeated,
                "superseded": publisher.superseded,
            }
        return numbers


async def run_bridge(settings: BridgeSettings, *, stop: asyncio.Event | None = None) -> None:
    """Serve until `stop` is set, or cancelled.

    Raises:
        CertificateError: The certificate can't be used.
        ConfigError: There is no way to Kubernetes.
        OSError: The address can't be listened on.
    """
    gate = KubernetesGate.connect(settings.kubeconfig, audience=settings.audience)
    try:
        async with Bridge(settings, gate).running() as tasks:
            stopping = asyncio.create_task((stop or asyncio.Event()).wait())
            try:
                done, _ = await asyncio.wait([stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
                for task in done - {stopping}:
                    task.result()
            finally:
                stopping.cancel()
    finally:
        await gate.close()
