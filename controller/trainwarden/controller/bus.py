"""One supervised NATS connection: comes back by itself, publishes until acknowledged, reads streams in order."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import MaxPayloadError

from trainwarden.reporters.login import login

__all__ = ["ApiError", "Bus", "BusError", "Entry", "Reading"]

log = logging.getLogger(__name__)

_TOO_LARGE = frozenset({10054, 10077})  # a message over a stream's bounds: it will never be taken
_INBOXES = b"_TW_INBOX"  # answers to roles; trainings hear those under _INBOX alone
_SHORTEST, _LONGEST = 0.1, 2.0  # seconds between two tries to read on
_SILENCE = 3.0  # seconds without a sign of the consumer, which sends one each second
_USER_TIMEOUT_MS = 15_000  # a stalled server is given up after this, not after TCP's quarter of an hour


class BusError(Exception):
    """NATS can't be used as asked. Whether retrying helps is in the subclass."""


class ApiError(BusError):
    """JetStream refused a request; retrying does not help."""

    def __init__(self, subject: str, code: int, description: str) -> None:
        self.code = code  # JetStream's err_code
        self.description = description
        super().__init__(f"{subject}: {description} ({code})")


@dataclass(frozen=True, slots=True)
class Entry:
    """One message of a stream."""

    subject: str
    data: bytes
    headers: Mapping[str, str] | None
    sequence: int
    time: float  # Unix seconds at which the server stored it
    pending: int  # how many more the stream holds


class Bus:
    """A connection that is there again after whatever happens to the server."""

    def __init__(self, url: str, *, token: str | None, name: str) -> None:
        self._url, self._token, self._name = url, token, name
        self._client: Client | None = None
        self._closing = False
        self.connections = 0  # how often it came about, the first time included
        self._lock = asyncio.Lock()

    @classmethod
    async def connect(cls, url: str, *, token: str | None = None, name: str = "trainwarden") -> Bus:
        """Connect, or say why not.

        Raises:
            BusError: No server answers there, or it refuses us.
        """
        bus = cls(url, token=token, name=name)
        try:
            await bus._open(first=True)
        except (OSError, NatsError, TimeoutError) as error:
            raise BusError(
                f"no NATS server can be used at {_place(url)}: {str(error) or type(error).__name__}"
            ) from error
        return bus

    async def close(self) -> None:
        """Give the connection up."""
        self._closing = True
        if self._client is not None:
            with contextlib.suppress(NatsError, OSError, TimeoutError):
                await asyncio.wait_for(self._client.close(), 5)

    async def client(self) -> Client:
        """The connection; a new one when the old one was closed for good."""
        async with self._lock:
            if self._client is None or (self._client.is_closed and not self._closing):
                await self._open(first=False)
            assert self._client is not None  # noqa: S101 - just opened
            return self._client

    async def publish(self, subject: str, data: bytes, *, reply: str = "") -> None:
        """Publish without waiting; what the server does not get is lost."""
        client = await self.client()
        await client.publish(subject, data, reply=reply)

    async def request(self, subject: str, body: object, *, within: float = 5.0) -> dict[str, Any]:
        """Ask JetStream's API.

        Raises:
            ApiError: It refused.
            TimeoutError: It did not answer.
        """
        client = await self.client()
        answer = await client.request(subject, json.dumps(body).encode() if body is not None else b"", timeout=within)
        decoded: dict[str, Any] = json.loads(answer.data)
        if "error" in decoded:
            error = decoded["error"]
            raise ApiError(subject, int(error.get("err_code", error.get("code", 0))), str(error.get("description")))
        return decoded

    async def store(self, subject: str, data: bytes, *, message_id: str) -> None:
        """Publish into a stream until the server has acknowledged it. The same id is stored once.

        Raises:
            ApiError: The message is too large; it will never be taken. All else is tried again until it is.
        """
        wait, told = 0.1, False
        while True:
            try:
                client = await self.client()
                answer = await client.request(subject, data, timeout=2.0, headers={"Nats-Msg-Id": message_id})
                error = json.loads(answer.data).get("error")
                if error is None:
                    return
                refused = ApiError(subject, int(error.get("err_code", 0)), str(error.get("description")))
                if refused.code in _TOO_LARGE:
                    raise refused
                if not told:
                    log.error("the stream does not take it now, will retry subject=%s reason=%s", subject, refused)
                told = True
            except MaxPayloadError as error:
                raise ApiError(subject, 0, f"{len(data)} bytes are more than the server takes") from error
            except (TimeoutError, NatsError, OSError) as error:
                if self._closing:
                    raise BusError("the connection is being closed") from error
                log.debug(
                    "publish was not acknowledged, will retry subject=%s reason=%s", subject, type(error).__name__
                )
            await asyncio.sleep(wait * random.uniform(0.5, 1.5))  # noqa: S311 - jitter, no secret
            wait = min(wait * 2, 2.0)

    async def _open(self, *, first: bool) -> None:
        async def ignore(error: Exception) -> None:
            log.debug("nats error reason=%s", type(error).__name__)

        async def connected_again() -> None:
            self.connections += 1
            if self._client is not None:
                self._set_user_timeout(self._client)

        self._client = await nats.connect(
            self._url,
            **login([self._url], self._token),
            inbox_prefix=_INBOXES,
            name=self._name,
            allow_reconnect=True,
            max_reconnect_attempts=3 if first else -1,
            reconnect_time_wait=0.25,
            connect_timeout=2,
            ping_interval=10,
            max_outstanding_pings=2,
            flush_timeout=5,
            error_cb=ignore,
            reconnected_cb=connected_again,
        )
        self.connections += 1
        await self._client.flush(5)
        self._client.options["max_reconnect_attempts"] = -1
        self._set_user_timeout(self._client)

    def _set_user_timeout(self, client: Client) -> None:
        option = getattr(socket, "TCP_USER_TIMEOUT", None)
        writer = getattr(getattr(client, "_transport", None), "_io_writer", None)
        if option is not None and writer is not None:
            with contextlib.suppress(OSError, AttributeError):
                writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, option, _USER_TIMEOUT_MS)


class Reading:
    """Reads a stream in order, from a sequence on, and goes on where it was after any interruption.

    A stream that was made anew, or has lost its newest messages, is read on from what it has.

    Args:
        bus: The connection.
        stream: Name of the stream.
        subjects: Filters; empty reads all.
        take: Called with each message in order; returns an awaitable when it needs the reader to wait.
        newest_only: Begin with the newest message of each subject.
        batch: Messages asked for at a time.
        renewed: Called with the newest sequence that still is what it was, when the stream has fewer than were read.
    """

    def __init__(
        self,
        bus: Bus,
        stream: str,
        *,
        take: Callable[[Entry], Awaitable[None] | None],
        subjects: tuple[str, ...] = (),
        newest_only: bool = False,
        batch: int = 500,
        renewed: Callable[[int], None] | None = None,
    ) -> None:
        self._bus, self._stream, self._subjects, self._take = bus, stream, subjects, take
        self._newest_only, self._batch, self._renewed = newest_only, batch, renewed
        self._sequence = 0  # of the newest message taken
        self._created = ""  # when the stream was made
        self._behind = 0  # messages that were there when reading began, and are not taken yet
        self._reason = ""  # why nothing was read at last
        self.newest = 0  # sequence of the stream's newest message when reading began
        self.caught_up = asyncio.Event()

    async def run(self) -> None:
        """Read until cancelled."""
        wait = _SHORTEST
        while True:
            taken = self._sequence
            try:
                await self._read()
            except (TimeoutError, NatsError, OSError, BusError) as error:
                self._tell(error)
                wait = _SHORTEST if self._sequence != taken else min(wait * 2, _LONGEST)
                await asyncio.sleep(wait)

    def _tell(self, error: Exception) -> None:
        """Say why nothing is read, when it is for another reason than before."""
        refused = isinstance(error, ApiError)
        reason = str(error) if refused else type(error).__name__
        if reason == self._reason:
            return
        self._reason = reason
        if refused:
            log.error("the stream can't be read, will retry stream=%s reason=%s", self._stream, reason)
        else:
            log.info("reading will go on stream=%s reason=%s", self._stream, reason)

    async def _read(self) -> None:
        client = await self._bus.client()
        await self._check_stream()
        name, self._behind = await self._consumer()
        if self._behind == 0:
            self.caught_up.set()
        arrived: asyncio.Queue[Msg] = asyncio.Queue()

        async def keep(message: Msg) -> None:
            arrived.put_nowait(message)

        inbox = client.new_inbox()
        subscription = await client.subscribe(inbox, cb=keep, pending_msgs_limit=-1, pending_bytes_limit=-1)
        ask = json.dumps({"batch": self._batch, "expires": 5_000_000_000, "idle_heartbeat": 1_000_000_000}).encode()
        next_subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{name}"
        outstanding = delivered = 0
        try:
            while True:
                if outstanding <= self._batch // 2:
                    await client.publish(next_subject, ask, reply=inbox)
                    outstanding += self._batch
                async with asyncio.timeout(_SILENCE):  # wait_for would lose a cancellation now and then
                    message = await arrived.get()
                while True:
                    status = message.headers.get("Status") if message.headers and not message.data else None
                    if status is None:
                        outstanding -= 1
                        delivered += 1
                        entry, number = _entry(message)
                        if number != delivered:
                            raise BusError("messages were lost on the way")  # of a connection that broke
                        waiting = self._taken(entry)
                        if waiting is not None:
                            await waiting
                    elif status == "100":
                        pass  # the server lives
                    elif status in ("408", "404"):
                        left = message.headers.get("Nats-Pending-Messages", "0") if message.headers else "0"
                        outstanding -= int(left)
                    else:
                        raise BusError(f"the consumer is gone ({status})")
                    if arrived.empty():
                        break
                    message = arrived.get_nowait()
        finally:
            with contextlib.suppress(NatsError, OSError, TimeoutError):
                await subscription.unsubscribe()
            with contextlib.suppress(NatsError, OSError, TimeoutError, BusError):
                await self._bus.request(f"$JS.API.CONSUMER.DELETE.{self._stream}.{name}", None, within=0.5)

    def _taken(self, entry: Entry) -> Awaitable[None] | None:
        if entry.sequence <= self._sequence:
            return None
        self._sequence = entry.sequence
        self._reason = ""
        try:
            waiting = self._take(entry)
        except msgspec.DecodeError as error:
            waiting = None
            log.error(
                "a message can't be used, passed over stream=%s subject=%s sequence=%d reason=%s",
                *(self._stream, entry.subject, entry.sequence, error),
            )
        except Exception:  # whatever is wrong with one message, the others are read
            waiting = None
            log.exception("a message can't be used, passed over stream=%s subject=%s", self._stream, entry.subject)
        if self._behind > 0:
            self._behind -= 1
            if self._behind == 0:
                self.caught_up.set()
        return waiting

    async def _check_stream(self) -> None:
        """See whether the stream is the one that was read so far."""
        info = await self._bus.request(f"$JS.API.STREAM.INFO.{self._stream}", None)
        created, self.newest = str(info["created"]), int(info["state"]["last_seq"])
        held = self._sequence
        if self._created and created != self._created:
            held = 0
        self._created = created
        held = min(held, self.newest)
        if held < self._sequence:
            log.warning("the stream has lost what it had, its rest is read stream=%s from=%d", self._stream, held + 1)
            self._sequence = held
            if self._renewed is not None:
                self._renewed(held)

    async def _consumer(self) -> tuple[str, int]:
        """Make a consumer for our own use; gives its name and how many messages wait."""
        config: dict[str, Any] = {"ack_policy": "none", "inactive_threshold": 30_000_000_000, "mem_storage": True}
        config["max_deliver"] = 1
        if self._subjects:
            config["filter_subjects"] = list(self._subjects)
        if self._sequence:
            config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": self._sequence + 1}
        else:
            config["deliver_policy"] = "last_per_subject" if self._newest_only else "all"
            if self._newest_only and not self._subjects:
                config["filter_subject"] = ">"
        body = {"stream_name": self._stream, "config": config}
        answer = await self._bus.request(f"$JS.API.CONSUMER.CREATE.{self._stream}", body)
        return str(answer["name"]), int(answer.get("num_pending", 0))


def _entry(message: Msg) -> tuple[Entry, int]:
    """A message with what the server says of it in the reply subject, and its number among those of its consumer."""
    parts = message.reply.split(".")
    sequence, number, stamp, pending = parts[5:9] if len(parts) == 9 else parts[7:11]
    entry = Entry(message.subject, message.data, message.headers, int(sequence), int(stamp) / 1e9, int(pending))
    return entry, int(number)


def _place(url: str) -> str:
    """The address without user, password or token."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"
