"""The roles as commands: `trainwarden engine`, `operator`, `notifier` and `bridge`, each a process of its own."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NoReturn

import click

from trainwarden.controller.cli_values import Finite
from trainwarden.controller.exit_codes import ExitCode

__all__ = ["bridge", "engine", "notifier", "operator"]

_NATS = [
    click.option("--nats-url", envvar="TRAINWARDEN_NATS_URL", default="nats://127.0.0.1:4222", show_default=True),
    click.option(
        "--nats-token-file",
        envvar="TRAINWARDEN_NATS_TOKEN_FILE",
        type=click.Path(path_type=Path),
        help="File that holds NATS' token.",
    ),
    click.option("--log-level", type=click.Choice(["debug", "info", "warning"]), default="info", show_default=True),
]


def _with_nats(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_NATS):
        command = option(command)
    return command


@click.command()
@_with_nats
@click.option("--partitions", default="0-15", show_default=True, help="Which of the 16 it takes, such as 0-7.")
def engine(nats_url: str, nats_token_file: Path | None, log_level: str, partitions: str) -> None:
    """Judge trainings by policies. Needs NATS alone."""
    first, _, last = partitions.partition("-")
    if not (first.isdigit() and (last or first).isdigit() and int(first) <= int(last or first) <= 15):
        _fail(f"--partitions {partitions}: give a range within 0-15, such as 0-7")
    taken = range(int(first), int(last or first) + 1)

    async def work(stop: asyncio.Event) -> None:
        from trainwarden.controller.bus import Bus
        from trainwarden.controller.engine import Engine
        from trainwarden.controller.streams import ensure_streams

        bus = await Bus.connect(nats_url, token=_token(nats_token_file), name="trainwarden-engine")
        try:
            await ensure_streams(bus)
            await Engine(bus, partitions=taken, version=_version()).run(stop)
        finally:
            await bus.close()

    _run(work, log_level)


@click.command()
@_with_nats
@click.option("--notify-file", type=click.Path(path_type=Path), help="Apprise URLs, instead of NotificationChannels.")
def notifier(nats_url: str, nats_token_file: Path | None, log_level: str, notify_file: Path | None) -> None:
    """Send messages to people. The only role that reaches outward."""

    async def work(stop: asyncio.Event) -> None:
        from trainwarden.controller.bus import Bus
        from trainwarden.controller.cancelling import end_all
        from trainwarden.controller.channel_sender import ChannelSender
        from trainwarden.controller.contesting import IN_CLUSTER, Contestable
        from trainwarden.controller.notifier_role import NotifierRole
        from trainwarden.controller.streams import ensure_streams
        from trainwarden.notifiers.delivery import DEFAULT, Dispatcher
        from trainwarden.notifiers.urls import read_urls

        bus = await Bus.connect(nats_url, token=_token(nats_token_file), name="trainwarden-notifier")
        tasks = []
        try:
            await ensure_streams(bus)
            if notify_file is not None:
                given = Dispatcher({DEFAULT: read_urls(file=notify_file)})
                await NotifierRole(bus, Contestable(given, IN_CLUSTER)).run(stop)
                return
            sender = ChannelSender(bus)
            tasks.append(asyncio.create_task(sender.run()))
            await NotifierRole(bus, Contestable(sender, IN_CLUSTER)).run(stop)
        finally:
            await end_all(tasks)
            await bus.close()

    _run(work, log_level)


@click.command()
@_with_nats
@click.option("--namespace", envvar="POD_NAMESPACE", default="trainwarden", show_default=True, help="Of its Lease.")
@click.option("--webhook-port", type=int, help="Serves admission webhooks there; none without it.")
@click.option("--webhook-address", default="", help="Address that the webhooks listen at; all without it.")
@click.option("--certificate", type=click.Path(path_type=Path), help="PEM of the webhooks.")
@click.option("--key", type=click.Path(path_type=Path), help="Its key.")
@click.option("--price-per-gpu-hour", type=Finite(min=0), help="Of jobs that carry no price of their own.")
@click.option("--audit", is_flag=True, help="Do nothing at all; only say what would have been done.")
@click.option("--runs-per-hour", type=click.IntRange(min=0), default=20, show_default=True, help="At most so many end.")
@click.option("--gpu-percent-per-hour", type=Finite(0, 100), help="At most so many of all GPUs.")
def operator(
    nats_url: str,
    nats_token_file: Path | None,
    log_level: str,
    namespace: str,
    webhook_port: int | None,
    webhook_address: str,
    certificate: Path | None,
    key: Path | None,
    price_per_gpu_hour: float | None,
    audit: bool,
    runs_per_hour: int,
    gpu_percent_per_hour: float | None,
) -> None:
    """Watch the cluster, and act on it. The only role with Kubernetes rights."""
    if webhook_port is not None and (certificate is None or key is None):
        _fail("--webhook-port: webhooks need --certificate and --key")

    async def work(stop: asyncio.Event) -> None:
        try:
            from trainwarden.controller.cluster.brakes import Limits
            from trainwarden.controller.cluster.leading import LeadershipLostError
            from trainwarden.controller.cluster.operator import OperatorSettings, run_operator
        except ImportError as error:
            _fail(f"{error.name} is not installed; install trainwarden[operator]")
        settings = OperatorSettings(
            nats_url=nats_url,
            nats_token=_token(nats_token_file),
            namespace=namespace,
            webhook_port=webhook_port,
            webhook_address=webhook_address,
            certificate=certificate,
            key=key,
            price_per_gpu_hour=price_per_gpu_hour,
            limits=Limits(runs_per_hour=runs_per_hour, gpu_percent_per_hour=gpu_percent_per_hour, audit=audit),
        )
        try:
            await run_operator(settings, stop)
        except LeadershipLostError as error:
            raise _EndedError(str(error)) from error

    _run(work, log_level)


@click.command()
@_with_nats
@click.option("--certificate", type=click.Path(path_type=Path), required=True, help="PEM, with its chain.")
@click.option("--key", type=click.Path(path_type=Path), required=True, help="Its key.")
@click.option("--host", help="Address that it listens at; all without it.")
@click.option("--port", type=int, default=10443, show_default=True)
def bridge(
    nats_url: str,
    nats_token_file: Path | None,
    log_level: str,
    certificate: Path,
    key: Path,
    host: str | None,
    port: int,
) -> None:
    """Take progress over HTTPS, in the protocol of Trainer's status server."""

    async def work(stop: asyncio.Event) -> None:
        from trainwarden.controller.bridge.role import BridgeSettings, run_bridge
        from trainwarden.controller.cancelling import end_all

        settings = BridgeSettings(
            certificate=certificate,
            key=key,
            nats_url=nats_url,
            nats_token=_token(nats_token_file),
            host=host,
            port=port,
        )
        working, stopping = asyncio.create_task(run_bridge(settings)), asyncio.create_task(stop.wait())
        await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
        await end_all([working, stopping])

    _run(work, log_level)


class _EndedError(Exception):
    """A role must end, for a reason that is no fault of its own."""


def _run(work: Callable[[asyncio.Event], Awaitable[None]], log_level: str) -> None:
    """Run a role until SIGTERM or SIGINT; a fault of its surroundings is one line and exit code 1."""
    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("kopf.objects").setLevel(logging.CRITICAL)  # a policy that is refused is no fault of ours
    for quiet in ("aiohttp.access", "httpx", "httpx2", "httpcore", "kopf", "apprise"):
        logging.getLogger(quiet).setLevel(logging.WARNING)

    async def main() -> None:
        stop = asyncio.Event()
        for each in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(each, stop.set)
        await work(stop)

    from trainwarden.controller.bus import BusError

    try:
        asyncio.run(main())
    except (BusError, _EndedError) as error:
        click.echo(f"trainwarden: {error}", err=True)
        sys.exit(1)


def _token(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        return file.read_text().strip()
    except OSError as error:
        _fail(f"--nats-token-file {file}: {error.strerror}")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("trainwarden")
    except PackageNotFoundError:
        return "unknown"


def _fail(message: str) -> NoReturn:
    click.echo(f"trainwarden: {message}", err=True)
    sys.exit(ExitCode.WRONG_INPUT)
