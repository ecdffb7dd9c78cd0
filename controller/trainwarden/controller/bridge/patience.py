"""How long a connection may say nothing that is a request; an HTTP server alone waits for ever for half a header."""

from __future__ import annotations

import asyncio

from aiohttp import web

__all__ = ["Patience"]


class Patience:
    """Makes the server's connections, and ends those that keep it waiting.

    Between the start of a connection, or the answer to a request on it, and the whole header of the next request there
    may be so many seconds, however slowly bytes drip.

    Args:
        server: What serves the connections.
        seconds: How long is waited for a request.
        most: Connections at a time; further ones are closed at once.
    """

    def __init__(self, server: web.Server, *, seconds: float, most: int) -> None:
        self._server, self._seconds, self._most = server, seconds, most
        self._open: dict[asyncio.BaseProtocol, _Connection] = {}
        self.ended = 0  # connections that kept us waiting, or were too many

    def __call__(self) -> asyncio.Protocol:
        """A connection's protocol."""
        return _Connection(self, self._server())

    def __len__(self) -> int:
        return len(self._open)

    async def end(self) -> None:
        """End what is open, such as connections whose other side does not take part in ending TLS."""
        for connection in list(self._open.values()):
            connection.abort()
        await asyncio.sleep(0)  # in which they are told

    def busy(self, handler: asyncio.BaseProtocol) -> None:
        """A request has come whole; its handler has limits of its own."""
        connection = self._open.get(handler)
        if connection is not None:
            connection.stop_waiting()

    def idle(self, handler: asyncio.BaseProtocol) -> None:
        """A request was answered."""
        connection = self._open.get(handler)
        if connection is not None:
            connection.wait(self._seconds)

    def opened(self, connection: _Connection) -> None:
        """Wait for its first request, unless there are too many."""
        self._open[connection.handler] = connection
        connection.wait(self._seconds if len(self._open) <= self._most else 0)

    def closed(self, connection: _Connection) -> None:
        """Forget it."""
        self._open.pop(connection.handler, None)


class _Connection(asyncio.Protocol):
    """Stands between a transport and what serves it."""

    def __init__(self, patience: Patience, handler: asyncio.Protocol) -> None:
        self._patience, self.handler = patience, handler
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def wait(self, seconds: float) -> None:
        self.stop_waiting()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._end)

    def stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        self._patience.ended += 1
        self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - of a stream
        self._transport = transport
        self.handler.connection_made(transport)
        self._patience.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.stop_waiting()
        self._patience.closed(self)
        self.handler.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self.handler.data_received(data)

    def eof_received(self) -> bool | None:
        return self.handler.eof_received()

    def pause_writing(self) -> None:
        self.handler.pause_writing()

    def resume_writing(self) -> None:
        self.handler.resume_writing()
