"""A TCP way to a server that can be cut, so that what is on it is lost while the server lives on."""

from __future__ import annotations

import asyncio
import contextlib


class Proxy:
    """Passes bytes between its port and another one of loopback."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.deaf = False  # what the server says from now on is thrown away

    async def __aenter__(self) -> Proxy:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.shut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def open(self) -> None:
        """Listen, on the same port as ever."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def shut(self) -> None:
        """Break all connections and take no others."""
        assert self._server is not None
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """Break all connections."""
        for writer in list(self._writers):
            writer.transport.abort()
        self._writers.clear()
        self.deaf = False

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._to)
        self._writers |= {writer, back}
        for source, sink, from_server in ((reader, back, False), (there, writer, True)):
            task = asyncio.create_task(self._pass_on(source, sink, from_server=from_server))
            self._tasks.add(task)

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, from_server: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                if not (from_server and self.deaf):
                    sink.write(data)
                    await sink.drain()
        sink.transport.abort()
