"""What stands in the streams, read from outside."""

from __future__ import annotations

import asyncio
import random
from typing import TypeVar

import msgspec
from tools.cluster.cluster import Cluster

from trainwarden.controller.bus import Bus, Entry, Reading
from trainwarden.controller.cancelling import end_all
from trainwarden.controller.payloads import decode
from trainwarden.controller.subjects import job_subject

T = TypeVar("T", bound=msgspec.Struct)


def stream(cluster: Cluster, name: str, kind: type[T]) -> list[T]:
    """All messages that a stream holds, oldest first."""
    return asyncio.run(_read(cluster, name, kind))


def report_again(cluster: Cluster, namespace: str, job: str, times: int, chance: random.Random) -> int:
    """Publish all reports of a job once more, so many times, in any order; gives how many there are."""
    return asyncio.run(_report_again(cluster, job_subject("report", namespace, job), times, chance))


async def _report_again(cluster: Cluster, subject: str, times: int, chance: random.Random) -> int:
    bus = await Bus.connect(cluster.product.nats_url, token=cluster.product.token_file.read_text(), name="test")
    found: list[bytes] = []

    def take(entry: Entry) -> None:
        if entry.subject.endswith(subject.removeprefix("tw")):
            found.append(entry.data)

    reading = Reading(bus, "TW_REPORTS", take=take)
    task = asyncio.create_task(reading.run())
    try:
        await asyncio.wait_for(reading.caught_up.wait(), 30)
        client = await bus.client()
        for data in chance.sample(found * times, len(found) * times):
            await client.publish(subject, data)
        await client.flush()
    finally:
        await end_all([task])
        await bus.close()
    return len(found)


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
