"""The streams: made once, brought to their bounds, and spread over partitions as the server spreads them."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
import subprocess
from pathlib import Path

import pytest
from tests.reporters.nats_server import PROGRAM, NatsServer, free_port

from trainwarden.controller.bus import Bus, BusError, Entry, Reading
from trainwarden.controller.streams import LOCAL, StreamError, ensure_streams
from trainwarden.controller.subjects import job_of, partition_of

STREAMS = ("REPORTS", "REJECTED", "FACTS", "POLICIES", "DECISIONS", "ACTIONS", "RESULTS", "NOTICES", "STATE")


async def test_making_the_streams_again_changes_nothing(bus: Bus) -> None:
    await bus.store("tw.decision.team-a.bert", b"{}", message_id="a")

    await ensure_streams(bus, LOCAL)

    for name in STREAMS:
        info = await bus.request(f"$JS.API.STREAM.INFO.TW_{name}", None)
        assert info["state"]["messages"] == (name == "DECISIONS")


async def test_streams_that_are_there_get_new_bounds(bus: Bus) -> None:
    await ensure_streams(bus, dataclasses.replace(LOCAL, reports_per_job=7, report_age=3600.0))

    config = (await bus.request("$JS.API.STREAM.INFO.TW_REPORTS", None))["config"]
    assert (config["max_msgs_per_subject"], config["max_age"]) == (7, 3_600_000_000_000)


async def test_roles_that_start_together_or_anew_need_no_more_room_than_the_streams_have(tmp_path: Path) -> None:
    port, config = free_port(), tmp_path / "nats.conf"
    config.write_text(f'port: {port}\njetstream {{ store_dir: "{tmp_path}/store", max_file_store: 1200MB }}\n')
    process = subprocess.Popen([PROGRAM, "-c", config], stderr=subprocess.DEVNULL)
    try:
        bus = await connected(f"nats://127.0.0.1:{port}")
        await asyncio.gather(*(ensure_streams(bus, LOCAL) for _ in range(3)))
        await ensure_streams(bus, LOCAL)
        with pytest.raises(StreamError, match=r"TW_REPORTS is there and can't be changed.*storage"):
            await ensure_streams(bus, dataclasses.replace(LOCAL, report_bytes=2 * LOCAL.report_bytes))
        await bus.close()
    finally:
        process.kill()
        process.wait()


async def test_a_stream_of_another_kind_is_an_error_that_names_it(server: NatsServer) -> None:
    bus = await Bus.connect(server.url, token=server.token)
    await bus.request("$JS.API.STREAM.CREATE.TW_FACTS", {"name": "TW_FACTS", "subjects": ["x"], "storage": "memory"})
    with pytest.raises(StreamError, match="stream TW_FACTS is there and can't be changed"):
        await ensure_streams(bus, LOCAL)
    await bus.close()


async def test_a_subject_that_another_stream_takes_is_an_error_that_names_it(server: NatsServer) -> None:
    bus = await Bus.connect(server.url, token=server.token)
    await bus.request("$JS.API.STREAM.CREATE.OTHER", {"name": "OTHER", "subjects": ["tw.>"]})
    with pytest.raises(StreamError, match="stream TW_REPORTS: subjects overlap"):
        await ensure_streams(bus, LOCAL)
    await bus.close()


async def test_jetstream_that_is_off_is_an_error_that_says_how_to_turn_it_on() -> None:
    port = free_port()
    process = subprocess.Popen([PROGRAM, "-a", "127.0.0.1", "-p", str(port)], stderr=subprocess.DEVNULL)
    try:
        bus = await connected(f"nats://127.0.0.1:{port}")
        with pytest.raises(StreamError, match="-js"):
            await ensure_streams(bus, LOCAL)
        await bus.close()
    finally:
        process.kill()
        process.wait()


async def connected(url: str) -> Bus:
    for _ in range(100):
        with contextlib.suppress(BusError):
            return await Bus.connect(url)
        await asyncio.sleep(0.1)
    raise TimeoutError(url)


async def test_a_job_is_in_the_partition_that_the_server_puts_it_in(bus: Bus) -> None:
    chance = random.Random(7)
    letters = "abcdefghijklmnopqrstuvwxyz0123456789-_ABC"
    names = [tuple("".join(chance.choices(letters, k=chance.randint(1, 60))) for _ in range(2)) for _ in range(300)]
    for namespace, job in names:
        await bus.publish(f"tw.report.{namespace}.{job}", b"{}")
    await bus.store("tw.report.last.one", b"{}", message_id="last")
    stored: list[Entry] = []
    reading = Reading(bus, "TW_REPORTS", take=stored.append)
    task = asyncio.create_task(reading.run())
    await asyncio.wait_for(reading.caught_up.wait(), 20)
    task.cancel()

    assert len(stored) == 301
    assert [(entry.subject.split(".")[2], job_of(entry.subject)) for entry in stored[:-1]] == [
        (str(partition_of(*name)), name) for name in names
    ]
    assert len({partition_of(*name) for name in names}) == 16
