"""What the controller's tests share: a nats-server with the streams, and connections to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.reporters.nats_server import NatsServer

from trainwarden.controller.bus import Bus
from trainwarden.controller.streams import LOCAL, ensure_streams


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    """A nats-server that runs."""
    one = NatsServer(tmp_path)
    one.start()
    yield one
    one.stop()


@pytest.fixture
async def bus(server: NatsServer) -> AsyncIterator[Bus]:
    """A connection to a server that has the streams."""
    one = await Bus.connect(server.url, token=server.token)
    await ensure_streams(one, LOCAL)
    yield one
    await one.close()
