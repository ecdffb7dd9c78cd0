"""The users of deploy/manifests/nats.yaml: roles may do all, a training may report and answer, and nothing else."""

from __future__ import annotations

import asyncio
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest
import yaml
from nats.aio.client import Client
from nats.aio.msg import Msg
from tests.reporters.nats_server import PROGRAM, eventually, free_port

from trainwarden.controller.bus import Bus
from trainwarden.controller.streams import ensure_streams
from trainwarden.reporters import Reporter
from trainwarden.reporters.wire import Command, encode

MANIFEST = Path(__file__).parents[2] / "deploy" / "manifests" / "nats.yaml"


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """A nats-server with the configuration that is installed."""
    (config, *_) = yaml.safe_load_all(MANIFEST.read_text())
    port = free_port()
    text = re.sub(r"port: \d+", f'host: "127.0.0.1"\nport: {port}', config["data"]["nats.conf"])
    path = tmp_path / "nats.conf"
    path.write_text(text.replace("/data", str(tmp_path / "data")))
    environment = {"NATS_TOKEN": "of-roles", "NATS_TRAINING_TOKEN": "of-trainings"}
    log = tmp_path / "log"
    with log.open("wb") as out:
        process = subprocess.Popen([PROGRAM, "-c", path], env=environment, stdout=out, stderr=out)
    while "Server is ready" not in log.read_text():
        assert process.poll() is None, log.read_text()
        time.sleep(0.01)
    yield port
    process.terminate()
    process.wait()


async def training(port: int, problems: list[str]) -> Client:
    async def problem(error: Exception) -> None:
        problems.append(str(error))

    return await nats.connect(f"nats://training:of-trainings@127.0.0.1:{port}", error_cb=problem)


async def test_a_training_reports_and_answers_what_it_is_asked(port: int) -> None:
    bus = await Bus.connect(f"nats://trainwarden@127.0.0.1:{port}", token="of-roles", name="test")
    await ensure_streams(bus)
    reporter = Reporter(
        namespace="team-a", job="llama", url=f"nats://training@127.0.0.1:{port}", token="of-trainings", total=10
    )
    reporter.report(1, loss=2.0)
    while (await bus.request("$JS.API.STREAM.INFO.TW_REPORTS", None))["state"]["messages"] < 1:
        await asyncio.sleep(0.05)
    client, answers = await bus.client(), asyncio.Queue[Msg]()
    inbox = client.new_inbox()
    await client.subscribe(inbox, cb=answers.put)
    command = Command(id="c-1", run=reporter.run, op="checkpoint", timeout=5, holdFor=5)
    await bus.publish("tw.command.team-a.llama", encode(command), reply=inbox)

    assert b"unsupported" in (await asyncio.wait_for(answers.get(), 10)).data
    await asyncio.to_thread(reporter.finish)
    await bus.close()


WRITTEN = (
    "tw.action.team-a.llama",
    "tw.policy.team-a.all",
    "tw.result.team-a.llama",
    "tw.facts.team-a.llama",
    "tw.decision.team-a.llama",
    "$JS.API.STREAM.NAMES",
)


@pytest.mark.parametrize("subject", WRITTEN)
async def test_a_training_can_not_write_what_roles_write(port: int, subject: str) -> None:
    problems: list[str] = []
    client = await training(port, problems)

    await client.publish(subject, b"{}")
    await client.flush()

    await eventually(lambda: any("permissions violation for publish" in problem.lower() for problem in problems))
    await client.close()


@pytest.mark.parametrize("subject", [">", "tw.>", "_TW_INBOX.>", "tw.report.>", "tw.channels"])
async def test_a_training_can_not_listen_to_roles(port: int, subject: str) -> None:
    problems: list[str] = []
    client = await training(port, problems)

    await client.subscribe(subject)
    await client.flush()

    await eventually(lambda: any("permissions violation for subscription" in problem.lower() for problem in problems))
    await client.close()
