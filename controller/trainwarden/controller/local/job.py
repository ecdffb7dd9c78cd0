"""A command that runs under a keeper, as asyncio sees it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import secrets
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trainwarden.controller.local.marked import MARK, end_marked

__all__ = ["Job", "JobStartError"]


_KEEPER = Path(__file__).with_name("keeper.py")


class JobStartError(OSError):
    """The command can't be started; `errno` says why."""


class Job:
    """A running command; make it with `start`."""

    def __init__(self, keeper: asyncio.subprocess.Process, control: int, report: int, mark: str) -> None:
        self._keeper, self._control, self._report, self._mark = keeper, control, report, mark
        self._started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.gone = asyncio.Event()
        self.pid = 0
        self._readers: list[asyncio.Task[None]] = []

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        folder: Path,
        output: Callable[[bytes], None] | None = None,
    ) -> Job:
        """Start a command.

        Args:
            command: Program and arguments.
            environment: All of it.
            folder: Working directory.
            output: Takes what the command prints, which then has nothing to read; None lets it print and read where we
                do.

        Raises:
            JobStartError: It can't be found or executed.
        """
        mark = secrets.token_hex(16)
        control_read, control_write = os.pipe()
        report_read, report_write = os.pipe()
        pipe = asyncio.subprocess.PIPE if output is not None else None
        try:
            keeper = await asyncio.create_subprocess_exec(
                sys.executable,
                "-ISB",
                str(_KEEPER),
                str(control_read),
                str(report_write),
                *command,
                pass_fds=(control_read, report_write),
                stdin=asyncio.subprocess.DEVNULL if output is not None else None,
                stdout=pipe,
                stderr=asyncio.subprocess.STDOUT if output is not None else None,
                env={**environment, MARK: mark},
                cwd=folder,
                start_new_session=True,
            )
        except OSError as error:  # the folder is gone, or there are too many processes
            os.close(control_write)
            os.close(report_read)
            raise JobStartError(error.errno, f"{error.filename or folder}: {error.strerror}") from error
        finally:
            os.close(control_read)
            os.close(report_write)
        job = cls(keeper, control_write, report_read, mark)
        job._readers.append(asyncio.create_task(job._hear()))
        if output is not None and keeper.stdout is not None:
            job._readers.append(asyncio.create_task(_forward(keeper.stdout, output)))
        try:
            job.pid = await job._started
        except OSError as error:
            await job.end(0)
            raise JobStartError(error.errno, f"{command[0]}: {os.strerror(error.errno or 0)}") from error
        return job

    def send(self, number: int) -> None:
        """Send a signal to the command's process group."""
        self._order(f"signal {int(number)}")

    async def end(self, grace: float) -> None:
        """SIGTERM, and after `grace` seconds SIGKILL; returns when nothing is left."""
        self._order(f"end {grace}")
        await self.gone.wait()

    async def settled(self) -> None:
        """Wait until all that the command printed has been taken."""
        await asyncio.gather(*self._readers, return_exceptions=True)

    def _order(self, line: str) -> None:
        if self._control >= 0:
            with contextlib.suppress(OSError):
                os.write(self._control, f"{line}\n".encode())

    async def _hear(self) -> None:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        pipe = os.fdopen(self._report, "rb", buffering=0)
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        told_all = False
        try:
            while line := (await reader.readline()).decode().strip():
                told_all = line == "gone" or line.startswith("failed")
                word, _, value = line.partition(" ")
                if word == "started" and not self._started.done():
                    self._started.set_result(int(value))
                elif word == "failed" and not self._started.done():
                    self._started.set_exception(OSError(int(value), os.strerror(int(value))))
                elif word == "exited" and not self.exited.done():
                    self.exited.set_result(int(value))
        finally:
            transport.close()
            await self._keeper.wait()
            if not told_all and self._started.done():  # the keeper was killed, and can't end the command any more
                with contextlib.suppress(OSError):
                    os.killpg(self._started.result(), signal.SIGKILL)
                await asyncio.to_thread(end_marked, self._mark)
            if not self._started.done():
                self._started.set_exception(OSError(errno.ECHILD, "the keeper could not start"))
            if not self.exited.done():
                self.exited.set_result(-signal.SIGKILL)
            os.close(self._control)
            self._control = -1  # the number may soon be another file's
            self.gone.set()


async def _forward(stream: asyncio.StreamReader, output: Callable[[bytes], None]) -> None:
    while data := await stream.read(65_536):
        output(data)
