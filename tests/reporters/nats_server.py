"""A real nats-server for tests, and an ear on it."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import StreamConfig

from trainwarden.reporters.wire import Command, Reply, decode_reply, encode

PROGRAM = Path(sys.executable).with_name("nats-server")
PATIENCE = 20.0


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class NatsServer:
    """One nats-server process after another on the same port."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.token = "first-token"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self, *options: str) -> None:
        self.stop()
        command = [str(PROGRAM), "-a", "127.0.0.1", "-p", str(self.port), "--auth", self.token]
        command += ["-js", "-sd", str(self._folder / "jetstream"), *options]
        with (self._folder / "nats-server.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.01)
        raise TimeoutError((self._folder / "nats-server.log").read_text())

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


class Ear:
    """Hears all reports of a server, and sends commands as trainwarden would."""

    def __init__(self, server: NatsServer, *, streams: bool = True) -> None:
        self._server = server
        self.streams = streams
        self._client: Client | None = None
        self.messages: list[Msg] = []

    @property
    def reports(self) -> list[dict[str, Any]]:
        return [json.loads(message.data) for message in self.messages]

    @property
    def client(self) -> Client:
        assert self._client is not None
        return self._client

    async def listen(self) -> None:
        """Connect anew, and hear what comes from now on."""
        await self.close()
        self._client = await nats.connect(self._server.url, token=self._server.token, allow_reconnect=False)
        if self.streams:
            await self._client.jetstream().add_stream(StreamConfig(name="TW_REPORTS", subjects=["tw.report.>"]))
        await self._client.subscribe("tw.report.>", cb=self._hear)
        await self._client.flush()

    async def close(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()

    async def until(self, true: Callable[[list[dict[str, Any]]], object]) -> list[dict[str, Any]]:
        """All reports heard, once they are as they should be."""
        deadline = time.monotonic() + PATIENCE
        while not true(self.reports):
            if time.monotonic() > deadline:
                raise TimeoutError(f"heard only {self.reports[-5:]}")
            await asyncio.sleep(0.01)
        return self.reports

    async def command(self, command: Command, *, namespace: str = "team-a", job: str = "bert") -> list[Reply]:
        """Send a command; the list fills as replies come."""
        replies: list[Reply] = []
        inbox = self.client.new_inbox()

        async def hear(message: Msg) -> None:
            replies.append(decode_reply(message.data))

        await self.client.subscribe(inbox, cb=hear)
        await self.client.publish(f"tw.command.{namespace}.{job}", encode(command), reply=inbox)
        await self.client.flush()
        return replies

    async def _hear(self, message: Msg) -> None:
        self.messages.append(message)


async def eventually(true: Callable[[], object], *, within: float = PATIENCE) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + within
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError("it never came to hold")
        await asyncio.sleep(0.01)
