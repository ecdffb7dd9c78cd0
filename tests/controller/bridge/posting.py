"""A bridge under test: what posts to it, who it lets in, and what it has sent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import trustme
from tests.reporters.nats_server import NatsServer, eventually

from trainwarden.controller.bridge.gate import Admission, ForbiddenError, NoSuchJobError
from trainwarden.controller.bridge.protocol import TrainerStatus, decode_status
from trainwarden.controller.bridge.role import Bridge, BridgeSettings
from trainwarden.controller.bridge.training import Sender
from trainwarden.controller.bus import Bus, Entry, Reading
from trainwarden.controller.cancelling import end_all
from trainwarden.controller.decoding import HeardReport, decode_report

T0 = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)


def sender(*, pod: str = "uid-1", host: str = "bert-node-0-0", job: str = "bert", namespace: str = "team-a") -> Sender:
    return Sender(namespace, job, pod, host)


@dataclass
class TableGate:
    """Knows tokens by heart: whom they are of, and when they end."""

    tokens: dict[str, Admission] = field(default_factory=dict)
    asked: int = 0

    async def admit(self, token: str, namespace: str, job: str) -> Admission:
        self.asked += 1
        admission = self.tokens.get(token)
        if admission is None:
            raise ForbiddenError("the token is not known")
        if admission.sender.namespace != namespace:
            raise ForbiddenError(f"the token is of namespace {admission.sender.namespace!r}")
        if admission.sender.job != job:
            raise NoSuchJobError(f"there is no TrainJob {namespace}/{job}")
        return admission


class Authority:
    """Issues certificates for this machine, and writes them where a bridge reads them."""

    def __init__(self, folder: Path) -> None:
        self.certificate, self.key, self.trust = folder / "tls.crt", folder / "tls.key", folder / "ca.crt"
        self._authority = trustme.CA()
        self._authority.cert_pem.write_to_path(self.trust)
        self.issue()

    def issue(self) -> bytes:
        """Write a new pair; gives its certificate as it is shown."""
        issued = self._authority.issue_cert("127.0.0.1", "localhost")
        issued.private_key_pem.write_to_path(self.key)
        issued.cert_chain_pems[0].write_to_path(self.certificate)
        return ssl.PEM_cert_to_DER_cert(issued.cert_chain_pems[0].bytes().decode())


def posted(
    *, percent: int | None = None, left: int | None = None, at: datetime | None = None, **metrics: object
) -> dict[str, Any]:
    """A body as KubeflowCallback makes it."""
    status: dict[str, Any] = {"lastUpdatedTime": (at or datetime.now(UTC)).isoformat()}
    if percent is not None:
        status["progressPercentage"] = percent
    if left is not None:
        status["estimatedRemainingSeconds"] = left
    if metrics:
        status["metrics"] = [{"name": name, "value": str(value)} for name, value in metrics.items()]
    return {"trainerStatus": status}


def status_of(body: dict[str, Any]) -> TrainerStatus:
    status = decode_status(json.dumps(body).encode())
    assert status is not None
    return status


@dataclass
class Served:
    """A bridge that serves, its NATS, and the reports that the stream has."""

    bridge: Bridge
    gate: TableGate
    authority: Authority
    reports: list[HeardReport] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)

    @property
    def port(self) -> int:
        return self.bridge.server.port

    def url(self, namespace: str = "team-a", job: str = "bert") -> str:
        path = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs/{job}/status"
        return f"https://127.0.0.1:{self.port}{path}"

    async def post(
        self, body: object, *, token: str | None = "good", namespace: str = "team-a", job: str = "bert"
    ) -> tuple[int, dict[str, Any]]:
        """Post as a client without any library would; the code and the answer."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await asyncio.to_thread(self._post, data, token, self.url(namespace, job))

    def _post(self, data: bytes, token: str | None, url: str) -> tuple[int, dict[str, Any]]:
        headers = {"Content-Type": "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        request = urllib.request.Request(url, data=data, headers=headers, method="POST")
        context = ssl.create_default_context(cafile=str(self.authority.trust))
        try:
            with urllib.request.urlopen(request, timeout=20, context=context) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    async def heard(self, many: int) -> list[HeardReport]:
        """The reports, once there are so many."""
        await eventually(lambda: len(self.reports) >= many)
        return self.reports

    def take(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.reports.append(decode_report(entry.data))


@contextlib.asynccontextmanager
async def serving(server: NatsServer, authority: Authority, **settings: Any) -> AsyncIterator[Served]:
    """A bridge with a good token of pod uid-1, for job team-a/bert. Its NATS need not be there yet."""
    gate = TableGate({"good": Admission(sender(), time.time() + 3600)})
    usual: dict[str, Any] = {"certificate": authority.certificate, "key": authority.key, "host": "127.0.0.1", "port": 0}
    usual |= {"nats_url": server.url, "nats_token": server.token}
    bridge = Bridge(BridgeSettings(**(usual | settings)), gate)
    async with bridge.running():
        yield Served(bridge, gate, authority)


@contextlib.asynccontextmanager
async def hearing(bus: Bus, served: Served) -> AsyncIterator[None]:
    """Read what the stream has, from its beginning on."""
    task = asyncio.create_task(Reading(bus, "TW_REPORTS", take=served.take).run())
    try:
        yield
    finally:
        await end_all([task])
