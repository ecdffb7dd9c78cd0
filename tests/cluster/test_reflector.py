"""A copy of all objects against a real API server: nothing is missed where a watch can't go on."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest
from lightkube import AsyncClient, KubeConfig
from lightkube.resources.core_v1 import ConfigMap
from tests.cluster.world import World
from tests.reporters.nats_server import eventually

from trainwarden.controller.cluster.reflector import Key, Reflector


async def test_a_watch_from_too_long_ago_is_answered_by_a_list_anew(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """410 Gone comes within the watch, as an event, since the server has said 200 by then."""
    client: Any = AsyncClient(KubeConfig.from_file(world.kubectl.config).get(), timeout=httpx2.Timeout(30))
    told: list[Key] = []
    reflector = Reflector(client, ConfigMap, lambda key, old, new: told.append(key))
    listed, followed = reflector._list, reflector._follow
    lists, ends = 0, []

    async def list_and_be_slow() -> str:
        nonlocal lists
        version, lists = await listed(), lists + 1
        return "1" if lists == 1 else version

    async def follow(version: str) -> None:
        try:
            await followed(version)
        except Exception as error:
            ends.append(error)
            raise

    monkeypatch.setattr(reflector, "_list", list_and_be_slow)
    monkeypatch.setattr(reflector, "_follow", follow)
    task = asyncio.create_task(reflector.run())
    try:
        await eventually(lambda: lists > 1 or task.done())
        assert "too old resource version" in str(ends[0])

        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "later", "namespace": world.namespace}}
        await asyncio.to_thread(world.kubectl.run, "apply", "-f", "-", stdin=json.dumps(made))
        await eventually(lambda: (world.namespace, "later") in told or task.done())
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.close()
