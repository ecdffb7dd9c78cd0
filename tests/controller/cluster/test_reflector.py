"""A copy of all objects of one kind, where reading fails in ways that a real API server can't be brought to at will."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from lightkube import ApiError
from lightkube.models.meta_v1 import Status
from lightkube.resources.core_v1 import ConfigMap
from tests.reporters.nats_server import eventually

from trainwarden.controller.cluster.reflector import Key, Reflector


class Listed:
    """A list of one object, at a version."""

    resourceVersion = "7"  # noqa: N815 - lightkube's name

    def __init__(self, name: str) -> None:
        self._names = [name]

    def __aiter__(self) -> Listed:
        return self

    async def __anext__(self) -> dict[str, Any]:
        if not self._names:
            raise StopAsyncIteration
        return {"metadata": {"name": self._names.pop(), "namespace": "team-a", "resourceVersion": "7"}}


class Ending:
    """A watch that ends with an error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def __anext__(self) -> tuple[str, dict[str, Any]]:
        raise self._error

    async def aclose(self) -> None:
        pass


class Api:
    """An API server whose watches end with an error within them: it has answered 200 by then."""

    def __init__(self, code: int, *, lists: bool = True) -> None:
        self.code, self.lists, self.listed = code, lists, 0

    def list(self, kind: Any, **_: Any) -> Listed:
        self.listed += 1
        if not self.lists:
            raise ApiError(status=Status(code=self.code, message="not now"))
        return Listed(f"made-{self.listed}")

    def watch(self, kind: Any, **_: Any) -> Ending:
        return Ending(ApiError(status=Status(code=self.code, message="too old resource version")))


@pytest.mark.parametrize("code", [410, 500])
async def test_an_error_within_a_watch_is_answered_by_a_list_anew(code: int) -> None:
    api: Any = Api(code)
    told: list[Key] = []
    reflector = Reflector(api, ConfigMap, lambda key, old, new: told.append(key))
    task = asyncio.create_task(reflector.run())
    try:
        await eventually(lambda: ("team-a", "made-2") in told or task.done())
        assert not task.done()
        assert list(reflector.objects) == [("team-a", f"made-{api.listed}")]
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_kind_that_can_not_be_read_says_for_how_long() -> None:
    api: Any = Api(429, lists=False)
    reflector = Reflector(api, ConfigMap, lambda key, old, new: None)
    task = asyncio.create_task(reflector.run())
    try:
        await eventually(lambda: reflector.broken_for > 0 or task.done())
        api.lists, api.code = True, 410
        await eventually(lambda: reflector.broken_for == 0 or task.done())
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_what_was_there_is_not_gone_since_one_api_server_does_not_know_its_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api: Any = Api(410)
    told: list[tuple[Key, bool]] = []
    reflector = Reflector(api, ConfigMap, lambda key, old, new: told.append((key, new is None)))
    task = asyncio.create_task(reflector.run())
    try:
        await eventually(lambda: reflector.objects or task.done())
        api.lists, api.code = False, 404
        await eventually(lambda: reflector.broken_for > 0 or task.done())
        listed = api.listed
        await eventually(lambda: api.listed > listed or task.done())
        assert reflector.objects
        assert not reflector.absent

        monkeypatch.setattr("trainwarden.controller.cluster.reflector._BELIEVED", 0.0)
        await eventually(lambda: reflector.absent or task.done())
        assert not reflector.objects
        assert told[-1][1]
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_kind_that_is_refused_holds_up_nobody_where_it_is_optional() -> None:
    api: Any = Api(403, lists=False)
    reflector = Reflector(api, ConfigMap, lambda key, old, new: None, optional=True)
    task = asyncio.create_task(reflector.run())
    try:
        await eventually(lambda: reflector.synced.is_set() or task.done())
        assert reflector.synced.is_set()
        assert not reflector.absent  # it may be there, and nobody may say that it is not
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
