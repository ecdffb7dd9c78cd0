"""One connection to NATS, from open to its first failure. Whoever uses it opens another then.

nats-py's own reconnecting is off: it hides what was lost, flushes into nothing, may hang for minutes on a stalled peer
and gives up for good on an expired token. Here every loss is a LinkError, and each new connection reads the token anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from trainwarden.reporters.complaints import logger
from trainwarden.reporters.identity import Identity
from trainwarden.reporters.login import login
from trainwarden.reporters.wire import Report, command_subject, report_subject

__all__ = ["Link", "LinkError", "LinkLoop", "Opening", "Receive", "nats_opening"]

CONNECT_SECONDS = 5.0
CONFIRM_SECONDS = 5.0
ACK_SECONDS = 1.0
CLOSE_SECONDS = 0.5
STALL_MILLISECONDS = 15_000  # after which the kernel gives up a peer that doesn't take what was sent

Receive = Callable[[bytes, str], None]
"""Takes a message from the command subject and the subject to reply on."""


class LinkError(Exception):
    """The connection can't be made, or is lost. Opening another may help."""


class Link(Protocol):
    """A way to the controller, as long as it lasts. All but `close` raise LinkError when it is lost."""

    @property
    def max_bytes(self) -> int:
        """Largest message that passes, headers included; a larger one costs the connection."""

    async def publish(self, report: Report, data: bytes) -> None:
        """Hand one report over."""

    async def publish_acked(self, report: Report, data: bytes) -> bool:
        """Hand one report over and wait for the stream's ack; False when none came in time."""

    async def reply(self, subject: str, data: bytes) -> None:
        """Answer a command."""

    async def confirm(self) -> None:
        """Return once the other side has all that was handed over."""

    def check(self) -> None:
        """Raise LinkError when the link is known to be lost."""

    async def close(self) -> None:
        """Give the link up. Never raises, never takes long."""


Opening = Callable[[Receive], Awaitable[Link]]
"""Opens a link; raises LinkError with a reason that holds no secret."""


class LinkLoop(asyncio.SelectorEventLoop):
    """An event loop for this thread alone, whose connections can't stall for minutes.

    Sockets get TCP_USER_TIMEOUT; names are resolved in place, since the executor is gone while the interpreter exits;
    and all transports can be aborted, however deep a library holds them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._opened_here: list[asyncio.BaseTransport] = []

    async def getaddrinfo(self, host: Any, port: Any, **flags: Any) -> Any:
        return socket.getaddrinfo(host, port, **flags)

    async def create_connection(self, *args: Any, **options: Any) -> Any:
        transport, protocol = await super().create_connection(*args, **options)
        connection = transport.get_extra_info("socket")
        with contextlib.suppress(OSError, AttributeError):  # Linux alone has it
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STALL_MILLISECONDS)
        self._opened_here.append(transport)
        return transport, protocol

    def abort_connections(self) -> None:
        """Drop every connection at once, sent or not."""
        while self._opened_here:
            transport = self._opened_here.pop()
            if isinstance(transport, asyncio.Transport):
                transport.abort()


def nats_opening(url: str, token: str | None, identity: Identity) -> Opening:
    """How to connect to NATS for one job.

    Args:
        url: Servers, separated by commas.
        token: The token; None to read `TRAINWARDEN_NATS_TOKEN` or the file that `TRAINWARDEN_NATS_TOKEN_FILE` names, at
            every connect.
        identity: The job, whose commands are subscribed to.
    """
    servers = [part.strip() for part in url.split(",") if part.strip()]

    async def opening(receive: Receive) -> Link:
        link = _NatsLink(servers, identity, receive)
        try:
            await asyncio.wait_for(link.open(token or token_from(os.environ)), 2 * CONNECT_SECONDS)
        except BaseException as error:
            await link.close()
            if isinstance(error, LinkError):
                raise
            if not isinstance(error, Exception):
                raise
            raise LinkError(link.reason(error)) from None  # its text could hold the URL with its password
        return link

    return opening


def token_from(environ: Mapping[str, str]) -> str | None:
    """The token that the environment holds or names the file of; None without one.

    Raises:
        LinkError: The file can't be read; it may be there at the next attempt.
    """
    path = environ.get("TRAINWARDEN_NATS_TOKEN_FILE")
    if path:
        try:
            return Path(path).read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise LinkError(f"the token file {path} can't be read: {type(error).__name__}") from error
    return environ.get("TRAINWARDEN_NATS_TOKEN") or None


def places(servers: list[str]) -> str:
    """Hosts and ports of NATS URLs, without what may be secret in them."""
    return ", ".join(map(_place, servers)) or "no server"


def _place(server: str) -> str:
    try:
        parts = urlsplit(server if "://" in server else f"nats://{server}")
        place = f"{parts.hostname}:{parts.port or 4222}"
    except ValueError:
        place = "an unreadable URL"
    return place


class _NatsLink:
    def __init__(self, servers: list[str], identity: Identity, receive: Receive) -> None:
        self._servers, self._identity, self._receive = servers, identity, receive
        self._subject = report_subject(identity.namespace, identity.job)
        self._client = Client()
        self._lost = asyncio.Event()
        self._error: Exception | None = None

    async def open(self, token: str | None) -> None:
        secure = any(server.startswith(("tls://", "wss://")) for server in self._servers)
        await self._client.connect(
            servers=self._servers,
            name=f"trainwarden reporter of {self._identity.namespace}/{self._identity.job}",
            **login(self._servers, token),
            tls=ssl.create_default_context() if secure else None,
            allow_reconnect=False,
            max_reconnect_attempts=1,  # rounds over the servers for this one connect; below 1 means for ever
            reconnect_time_wait=0.1,  # type: ignore[arg-type]  # seconds; an int by its annotation only
            connect_timeout=int(CONNECT_SECONDS),
            flush_timeout=CONFIRM_SECONDS,
            ping_interval=20,
            max_outstanding_pings=2,
            error_cb=self._on_error,
            closed_cb=self._on_closed,
        )
        await self._client.subscribe(command_subject(self._identity.namespace, self._identity.job), cb=self._on_command)
        await self.confirm()

    @property
    def max_bytes(self) -> int:
        return self._client.max_payload

    async def publish(self, report: Report, data: bytes) -> None:
        await self._bounded(self._client.publish(self._subject, data, headers=_message_id(report)))

    async def publish_acked(self, report: Report, data: bytes) -> bool:
        try:
            await self._bounded(
                self._client.request(self._subject, data, timeout=ACK_SECONDS, headers=_message_id(report))
            )
        except _UnansweredError:
            return False
        return True

    async def reply(self, subject: str, data: bytes) -> None:
        await self._bounded(self._client.publish(subject, data))

    async def confirm(self) -> None:
        await self._bounded(self._client.flush(int(CONFIRM_SECONDS)))

    def check(self) -> None:
        if self._lost.is_set() or not self._client.is_connected:
            raise LinkError(self.reason(self._error))

    async def close(self) -> None:
        self._client._error_cb = _silent  # what fails from here on is of no interest
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self._client.close(), CLOSE_SECONDS)
        loop = asyncio.get_running_loop()
        if isinstance(loop, LinkLoop):
            loop.abort_connections()

    def reason(self, error: BaseException | None) -> str:
        """Why the link is lost or can't be made, without the URL."""
        at = places(self._servers)
        cause = error
        if isinstance(error, nats.errors.NoServersError | asyncio.TimeoutError) and self._error is not None:
            cause = self._error
        if isinstance(cause, ssl.SSLError):
            return f"TLS with NATS at {at} failed: {cause.reason or type(cause).__name__}"
        if "authorization" in str(cause).lower() or "authentication" in str(cause).lower():
            return f"NATS at {at} refused the token"
        if isinstance(cause, OSError) and cause.strerror:
            return f"NATS at {at} can't be reached: {cause.strerror}"
        return f"the connection to NATS at {at} failed: {type(cause).__name__ if cause else 'closed'}"

    async def _bounded(self, doing: Awaitable[Any]) -> Any:
        """Wait for an operation, but no longer than the link lasts."""
        operation = asyncio.ensure_future(doing)
        lost = asyncio.ensure_future(self._lost.wait())
        try:
            await asyncio.wait({operation, lost}, timeout=2 * CONFIRM_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not operation.done():
                raise LinkError(self.reason(self._error or asyncio.TimeoutError()))
            result = operation.result()
        except (nats.errors.NoRespondersError, nats.errors.TimeoutError, asyncio.TimeoutError) as error:
            if isinstance(error, nats.errors.FlushTimeoutError):
                raise LinkError(f"NATS at {places(self._servers)} doesn't answer") from error
            raise _UnansweredError from error
        except (nats.errors.Error, OSError) as error:
            raise LinkError(self.reason(error)) from error
        finally:
            for task in (operation, lost):
                task.cancel()
            await asyncio.gather(operation, lost, return_exceptions=True)
        self.check()  # a flush on a client whose read loop is gone "succeeds"
        return result

    async def _on_error(self, error: Exception) -> None:
        """Must never raise: that would kill nats-py's read loop while it still says that it is connected."""
        self._error = error
        if "permissions" in str(error).lower():
            logger.warning("NATS refused a subject: %s", error)

    async def _on_closed(self) -> None:
        self._lost.set()

    async def _on_command(self, message: Msg) -> None:
        try:
            if message.reply:
                self._receive(message.data, message.reply)
        except Exception as error:
            logger.warning("a command was not taken in", exc_info=error)


class _UnansweredError(Exception):
    """Nobody acked in time."""


def _message_id(report: Report) -> dict[str, str]:
    return {"Nats-Msg-Id": f"{report.run}:{report.seq}"}


async def _silent(error: Exception) -> None:
    """Take an error of a connection that is given up."""
