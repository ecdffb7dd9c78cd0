"""The operator's role: the only one with rights in the cluster. Watches, tells the engine, does what it asks."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import kopf
from lightkube import ApiError, AsyncClient, KubeConfig
from nats.errors import Error as NatsError

from trainwarden.controller.bridge.pending import Pending
from trainwarden.controller.bridge.publisher import Publisher
from trainwarden.controller.bus import Bus, BusError
from trainwarden.controller.cancelling import end_all
from trainwarden.controller.cluster.admission import register as register_admission
from trainwarden.controller.cluster.brakes import Brakes, Limits
from trainwarden.controller.cluster.channels import ChannelKinds
from trainwarden.controller.cluster.leading import Leadership
from trainwarden.controller.cluster.policies import PolicyKinds
from trainwarden.controller.cluster.posted import PostedProgress
from trainwarden.controller.cluster.recalling import recall
from trainwarden.controller.cluster.reflector import Key, Object
from trainwarden.controller.cluster.target import Targets
from trainwarden.controller.cluster.telling import Events
from trainwarden.controller.cluster.training_runs import TrainingRuns
from trainwarden.controller.cluster.watching import Watcher
from trainwarden.controller.executor import Executor
from trainwarden.controller.streams import ensure_streams
from trainwarden.policies.expressions.engines import engine as cel_engine
from trainwarden.policies.facts import RunFacts

__all__ = ["OperatorSettings", "run_operator"]

log = logging.getLogger(__name__)

_COMPARE_EVERY = 300.0  # seconds between two comparisons of the policies that are told with those that are there


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """What the operator is told."""

    nats_url: str
    nats_token: str | None = field(default=None, repr=False)
    namespace: str = "trainwarden"  # of its Lease
    webhook_port: int | None = None  # None serves no admission webhooks
    webhook_address: str = ""
    certificate: Path | None = None
    key: Path | None = None
    price_per_gpu_hour: float | None = None
    limits: Limits = field(default_factory=Limits)


async def run_operator(settings: OperatorSettings, stop: asyncio.Event) -> None:
    """Work until `stop` is set.

    Raises:
        LeadershipLostError: Another operator may lead now.
        BusError: NATS can't be reached at the start.
    """
    bus = await Bus.connect(settings.nats_url, token=settings.nats_token, name="trainwarden-operator")
    client = _client()
    leadership = Leadership(  # with connections of its own: a Lease must not wait until work has let go of one
        _client(), namespace=settings.namespace, identity=f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    )
    tasks: list[asyncio.Task[None]] = []
    try:
        await ensure_streams(bus)
        cel = cel_engine()
        if settings.webhook_port is not None:
            registry = kopf.OperatorRegistry()
            register_admission(registry, cel)
            tasks.append(asyncio.create_task(_kopf(registry, stop, settings)))
        acquiring = asyncio.create_task(leadership.acquire())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([acquiring, stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
        if not acquiring.done():
            acquiring.cancel()
            for task in tasks:
                if task.done() and not task.cancelled():
                    task.result()
            return
        acquiring.result()
        tasks += [asyncio.create_task(leadership.keep()), asyncio.create_task(_lead(settings, client, bus, cel, stop))]
        await asyncio.wait([stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done() and not task.cancelled():  # told to end, kopf cancels all that it has not made
                task.result()
    finally:
        await end_all(tasks)
        await leadership.release()
        await bus.close()


async def _lead(settings: OperatorSettings, client: AsyncClient, bus: Bus, cel: Any, stop: asyncio.Event) -> None:
    """Everything that one operator alone does."""
    brakes = Brakes(settings.limits)
    writers: list[TrainingRuns] = []

    def changed(facts: RunFacts) -> None:
        for writer in writers:
            writer.facts_changed(facts)

    readers: list[PostedProgress] = []

    def seen(key: Key, trainjob: Object | None) -> None:
        for reader in readers:
            reader.seen(key, trainjob)

    watcher = Watcher(client, bus, price_per_gpu_hour=settings.price_per_gpu_hour, changed=changed, seen=seen)
    pending = Pending()
    readers.append(PostedProgress(watcher, pending))
    runs = TrainingRuns(client, bus, watcher)
    writers.append(runs)
    registry = kopf.OperatorRegistry()
    policies = PolicyKinds(bus, cel, audit=settings.limits.audit)
    policies.register(registry)
    channels = ChannelKinds(client, bus)
    channels.register(registry)
    await _withdraw_missing(policies, client)
    tasks = [
        asyncio.create_task(watcher.run()),
        asyncio.create_task(channels.run()),
        asyncio.create_task(_kopf(registry, stop, None)),
    ]
    try:
        await watcher.ready.wait()
        await recall(bus, brakes, watcher.gpus)
        targets = Targets(client, watcher, brakes)
        executor = Executor(bus, targets, remains=targets.remains)
        tasks += [
            asyncio.create_task(runs.run()),
            asyncio.create_task(executor.run()),
            asyncio.create_task(Events(client, bus).run()),
            asyncio.create_task(Publisher(bus, pending).run()),
            asyncio.create_task(_keep_withdrawing(policies, client)),
        ]
        log.info("works jobs=%d", len(watcher.trainjobs.objects))
        await asyncio.gather(*tasks)
    finally:
        await end_all(tasks)


async def _withdraw_missing(policies: PolicyKinds, client: AsyncClient) -> None:
    """Wait until policies can be read: the CRDs may be installed later, the API server may be away."""
    told = ""
    while True:
        try:
            await policies.withdraw_missing(client)
        except (ApiError, httpx2.HTTPError, OSError, BusError, NatsError) as error:
            if str(error) != told:
                log.warning("policies can't be read, will retry; are the CRDs installed? reason=%s", error)
                told = str(error)
            await asyncio.sleep(1)
        else:
            return


async def _keep_withdrawing(policies: PolicyKinds, client: AsyncClient) -> None:
    """Compare what is told with what is there, again and again: kopf tells no deletion that its watch has missed."""
    while True:
        await asyncio.sleep(_COMPARE_EVERY)
        await _withdraw_missing(policies, client)


async def _kopf(registry: kopf.OperatorRegistry, stop: asyncio.Event, admission: OperatorSettings | None) -> None:
    kopf.on.login(id="login", registry=registry)(_login)
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.watching.client_timeout = 600
    settings.networking.request_timeout = 30
    if admission is not None:
        settings.admission.managed = None
        settings.admission.server = kopf.WebhookServer(
            addr=admission.webhook_address or None,
            port=admission.webhook_port,
            certfile=admission.certificate,
            pkeyfile=admission.key,
        )
    # Without an identity kopf asks for the user's name, which the user of a container need not have.
    name: Any = "trainwarden"
    await kopf.operator(
        registry=registry, settings=settings, identity=name, standalone=True, clusterwide=True, stop_flag=stop
    )


def _login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)


def _client() -> AsyncClient:
    config = KubeConfig.from_env().get()
    return AsyncClient(config, timeout=httpx2.Timeout(30.0, connect=5.0), field_manager="trainwarden")
