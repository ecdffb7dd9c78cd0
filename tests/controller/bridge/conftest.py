"""A bridge on loopback, with TLS and a real nats-server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.controller.bridge.posting import Authority, Served, hearing, serving
from tests.reporters.nats_server import NatsServer

from trainwarden.controller.bus import Bus


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
async def served(server: NatsServer, bus: Bus, authority: Authority) -> AsyncIterator[Served]:
    """A bridge, and an ear on what it sends."""
    async with serving(server, authority) as one, hearing(bus, one):
        yield one
