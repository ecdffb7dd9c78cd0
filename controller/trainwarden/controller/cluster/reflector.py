"""A copy of all objects of one kind, kept true by list and watch: what a list no longer has, is told as gone."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from httpx2 import HTTPError, HTTPStatusError
from lightkube import ApiError, AsyncClient
from lightkube.core.resource import NamespacedResource

__all__ = ["Key", "Object", "Reflector"]

log = logging.getLogger(__name__)

Object = dict[str, Any]
Key = tuple[str, str]  # namespace, empty for cluster-wide kinds, and name

_WATCH = 300  # seconds of one watch; after it everything is listed again, whatever the watch missed
_MARGIN = 20.0  # seconds beyond, after which a silent connection is given up
_BELIEVED = 30.0  # seconds after which a kind that was there and is not found any more is gone
_ABSENT = 5.0  # seconds between looks for a kind that is not installed
_FIRST_WAIT, _LAST_WAIT = 0.2, 10.0  # seconds between two tries
_LONG = 60.0  # seconds of a watch after which its end is no reason to wait longer than the first time
_GONE, _NOT_FOUND, _FORBIDDEN = 410, 404, 403
_PAGE = 500


class Reflector:
    """All objects of one kind.

    Args:
        client: With which it reads.
        kind: A lightkube resource.
        changed: Called with the object before and now; None where there was or is none.
        labels: Label selector.
        watch: Seconds of one watch.
        optional: Whether others may begin although this kind is refused to us.
    """

    def __init__(
        self,
        client: AsyncClient,
        kind: type[Any],
        changed: Callable[[Key, Object | None, Object | None], None],
        *,
        labels: dict[str, Any] | None = None,
        watch: int = _WATCH,
        optional: bool = False,
    ) -> None:
        self._client: Any = client  # its overloads know global and namespaced kinds, not one that may be either
        self._kind, self._changed = kind, changed
        self._labels, self._watch, self._optional = labels, watch, optional
        self.objects: dict[Key, Object] = {}
        self.installed = False
        self.absent = False  # known not to be installed
        self.synced = asyncio.Event()  # listed once, or found to be not installed
        self._broken_at: float | None = None  # monotonic seconds since when nothing could be read

    @property
    def name(self) -> str:
        """The kind's name."""
        return self._kind.__name__

    @property
    def broken_for(self) -> float:
        """Seconds for which nothing could be read; 0 while all is well."""
        return 0.0 if self._broken_at is None else time.monotonic() - self._broken_at

    async def run(self) -> None:
        """Work until cancelled."""
        wait = _FIRST_WAIT
        while True:
            began = time.monotonic()
            try:
                await self._follow(await self._list())
                continue
            except HTTPStatusError as error:  # an ApiError, or the plain answer to a group that nobody serves
                code = _code(error)
                if code == _NOT_FOUND and self._is_believed():
                    self._absent()
                    await asyncio.sleep(_ABSENT)
                    continue
                if code == _FORBIDDEN and self._optional:
                    self.synced.set()
                if code != _GONE:
                    self._broken()
                    log.warning("can't be read, will retry kind=%s reason=%s", self.name, error)
            except (HTTPError, OSError, TimeoutError) as error:
                self._broken()
                log.info("the watch broke, will list again kind=%s reason=%s", self.name, type(error).__name__)
            if time.monotonic() - began > _LONG:
                wait = _FIRST_WAIT
            await asyncio.sleep(wait)
            wait = min(wait * 2, _LAST_WAIT)

    async def _list(self) -> str:
        found: dict[Key, Object] = {}
        listing = self._client.list(self._kind, chunk_size=_PAGE, labels=self._labels, **self._everywhere())
        async for item in listing:
            found[_key(item)] = item
        self.absent = False
        if not self.installed:
            self.installed = True
            log.info("is watched kind=%s objects=%d", self.name, len(found))
        self._broken_at = None
        for key in self.objects.keys() - found.keys():
            self._put(key, None)
        for key, item in found.items():
            self._put(key, item)
        self.synced.set()
        return str(listing.resourceVersion)

    async def _follow(self, version: str) -> None:
        watching = self._client.watch(
            self._kind,
            resource_version=version,
            server_timeout=self._watch,
            labels=self._labels,
            **self._everywhere(),
        )
        until = time.monotonic() + self._watch
        try:
            while (left := until - time.monotonic()) > 0:
                async with asyncio.timeout(left + _MARGIN):
                    event, item = await anext(watching)
                self._put(_key(item), None if event == "DELETED" else item)
        except (StopAsyncIteration, TimeoutError):
            return
        finally:
            await watching.aclose()

    def _everywhere(self) -> dict[str, str]:
        return {"namespace": "*"} if issubclass(self._kind, NamespacedResource) else {}

    def _broken(self) -> None:
        if self._broken_at is None:
            self._broken_at = time.monotonic()

    def _is_believed(self) -> bool:
        """Whether the kind is gone: of several API servers one may be behind, so that what was there is waited for."""
        return not self.installed or self.broken_for > _BELIEVED

    def _absent(self) -> None:
        self._broken_at = None
        self.absent = True
        if self.installed:
            log.warning("is no longer installed kind=%s", self.name)
        self.installed = False
        for key in list(self.objects):
            self._put(key, None)
        self.synced.set()

    def _put(self, key: Key, item: Object | None) -> None:
        old = self.objects.get(key)
        if item is None:
            self.objects.pop(key, None)
        else:
            self.objects[key] = item
        if old is None and item is None:
            return
        if old is not None and item is not None and _version(old) == _version(item):
            return
        try:
            self._changed(key, old, item)
        except Exception:  # whatever is wrong with one object, the others are read
            log.exception("an object can't be used and is passed over kind=%s object=%s", self.name, "/".join(key))


def _code(error: HTTPStatusError) -> int:
    """Of an answer; of an error that came within a watch, which itself was answered with 200, of that error."""
    return int(error.status.code or 0) if isinstance(error, ApiError) else error.response.status_code


def _version(item: Object) -> object:
    return item["metadata"].get("resourceVersion")


def _key(item: Object) -> Key:
    metadata = item["metadata"]
    return str(metadata.get("namespace", "")), str(metadata["name"])
