"""What stands in the streams, read from outside."""

from __future__ import annotations

import asyncio
from typing import TypeVar

import msgspec
from tools.cluster.cluster import Cluster

from trainwarden.controller.bus import Bus, Entry, Reading
from trainwarden.controller.cancelling import end_all
from trainwarden.controller.payloads import decode

T = TypeVar("T", bound=msgspec.Struct)


def stream(cluster: Cluster, name: str, kind: type[T]) -> list[T]:
    """All messages that a stream holds, oldest first."""
    return asyncio.run(_read(cluster, name, kind))


async def _read(cluster: Cluster, name: str, kind: type[T]) -> list[T]:
    bus = await Bus.connect(cluster.product.nats_url, token=cluster.product.token_file.read_text(), name="test")
    found: list[T] = []

    def take(entry: Entry) -> None:
        if entry.data:
            found.append(decode(entry.data, kind))

    reading = Reading(bus, name, take=take)
    task = asyncio.create_task(reading.run())
    try:
        await asyncio.wait_for(reading.caught_up.wait(), 30)
    finally:
        await end_all([task])
        await bus.close()
    return found
