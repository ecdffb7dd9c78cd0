"""What the reporter's tests share: a clean environment, a real nats-server, an ear on it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.reporters.nats_server import Ear, NatsServer

TOLD_BY_ENVIRONMENT = ("RANK", "WORLD_SIZE", "PET_MASTER_ADDR", "KUBEFLOW_TRAINER_SERVER_URL")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("TRAINWARDEN_") or name in TOLD_BY_ENVIRONMENT:
            monkeypatch.delenv(name)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    """A nats-server that is not started yet."""
    one = NatsServer(tmp_path)
    yield one
    one.stop()


@pytest.fixture
def job(server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> NatsServer:
    """The environment of a training of the job team-a/bert that reports to `server`."""
    monkeypatch.setenv("TRAINWARDEN_NATS_URL", server.url)
    monkeypatch.setenv("TRAINWARDEN_NATS_TOKEN", server.token)
    monkeypatch.setenv("TRAINWARDEN_NAMESPACE", "team-a")
    monkeypatch.setenv("TRAINWARDEN_JOB", "bert")
    return server


@pytest.fixture
async def ear(server: NatsServer) -> AsyncIterator[Ear]:
    """An ear on a server that is started for it."""
    server.start()
    one = Ear(server)
    await one.listen()
    yield one
    await one.close()
