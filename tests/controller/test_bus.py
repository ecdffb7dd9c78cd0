"""The connection comes back whatever happens to the server, and what is read is read once and in order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.controller.proxy import Proxy
from tests.reporters.nats_server import NatsServer, eventually, free_port

from trainwarden.controller.bus import ApiError, Bus, BusError, Entry, Reading
from trainwarden.controller.streams import LOCAL, ensure_streams

SUBJECT = "tw.decision.team-a.bert"


@contextlib.asynccontextmanager
async def reading(bus: Bus, taken: list[bytes], *, renewed: list[int] | None = None) -> AsyncIterator[Reading]:
    def take(entry: Entry) -> None:
        taken.append(entry.data)

    one = Reading(bus, "TW_DECISIONS", take=take, renewed=None if renewed is None else renewed.append)
    task = asyncio.create_task(one.run())
    try:
        yield one
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def store(bus: Bus, numbers: range) -> list[bytes]:
    texts = [str(number).encode() for number in numbers]
    for text in texts:
        await bus.store(SUBJECT, text, message_id=f"id-{text.decode()}")
    return texts


async def test_nobody_there_is_said_without_the_secret_of_the_address() -> None:
    with pytest.raises(BusError, match=r"no NATS server can be used at nats://127.0.0.1:\d+") as caught:
        await Bus.connect(f"nats://name:secret@127.0.0.1:{free_port()}")

    assert "secret" not in str(caught.value)


async def test_a_wrong_token_is_refused(server: NatsServer) -> None:
    with pytest.raises(BusError, match="can be used"):
        await Bus.connect(server.url, token="wrong")


async def test_the_same_id_is_stored_once(bus: Bus) -> None:
    taken: list[bytes] = []
    await store(bus, range(3))
    await store(bus, range(4))

    async with reading(bus, taken) as one:
        await one.caught_up.wait()

    assert taken == [b"0", b"1", b"2", b"3"]


async def test_a_message_that_no_server_takes_is_refused_and_not_tried_for_ever(bus: Bus) -> None:
    with pytest.raises(ApiError):
        await bus.store(SUBJECT, b"x" * (1 << 20) + b"more", message_id="large")
    with pytest.raises(ApiError):
        await bus.store("tw.report.team-a.bert", b"x" * 100_000, message_id="large")


async def test_reading_an_empty_stream_has_caught_up_at_once(bus: Bus) -> None:
    async with reading(bus, []) as one:
        await asyncio.wait_for(one.caught_up.wait(), 10)


@pytest.mark.slow
async def test_reading_goes_on_after_a_restart_without_loss_or_doubles(server: NatsServer, bus: Bus) -> None:
    taken: list[bytes] = []
    expected = await store(bus, range(50))
    async with reading(bus, taken):
        await eventually(lambda: len(taken) == 50)
        server.stop()
        storing = asyncio.create_task(store(bus, range(50, 100)))
        await asyncio.sleep(0.5)
        server.start()
        expected += await storing
        await eventually(lambda: len(taken) >= 100)
        server.start()
        expected += await store(bus, range(100, 120))
        await eventually(lambda: len(taken) >= 120)

    assert taken == expected


@pytest.mark.slow
async def test_a_server_that_stands_still_is_waited_for(server: NatsServer, bus: Bus) -> None:
    taken: list[bytes] = []
    async with reading(bus, taken) as one:
        await one.caught_up.wait()
        server.pause()
        storing = asyncio.create_task(store(bus, range(20)))
        await asyncio.sleep(4)
        server.resume()
        expected = await storing
        await eventually(lambda: len(taken) >= 20)

    assert taken == expected


@pytest.mark.slow
async def test_messages_lost_on_a_broken_connection_are_read_again(server: NatsServer, bus: Bus) -> None:
    taken: list[bytes] = []
    async with Proxy(server.port) as proxy:
        mine = await Bus.connect(f"nats://127.0.0.1:{proxy.port}", token=server.token)
        async with reading(mine, taken) as one:
            await one.caught_up.wait()
            expected = await store(bus, range(10))
            await eventually(lambda: len(taken) == 10)
            proxy.deaf = True
            expected += await store(bus, range(10, 20))
            proxy.cut()
            expected += await store(bus, range(20, 30))
            await eventually(lambda: len(taken) >= 30)
        await mine.close()

    assert taken == expected


@pytest.mark.slow
async def test_a_stream_that_was_made_anew_is_read_from_its_start(bus: Bus) -> None:
    taken: list[bytes] = []
    renewed: list[int] = []
    async with reading(bus, taken, renewed=renewed):
        await store(bus, range(5))
        await eventually(lambda: len(taken) == 5)
        await bus.request("$JS.API.STREAM.DELETE.TW_DECISIONS", None)
        await ensure_streams(bus, LOCAL)
        await store(bus, range(10, 12))
        await eventually(lambda: len(taken) == 7)

    assert taken[5:] == [b"10", b"11"]
    assert renewed == [0]


async def test_closing_ends_what_waits_for_an_acknowledgement(server: NatsServer) -> None:
    bus = await Bus.connect(server.url, token=server.token)
    await ensure_streams(bus, LOCAL)
    server.stop()
    storing = asyncio.create_task(store(bus, range(1)))
    await asyncio.sleep(0.05)
    await bus.close()

    with pytest.raises(BusError):
        await asyncio.wait_for(storing, 10)


async def test_a_stream_that_is_not_there_is_said_once_and_read_when_it_is(
    server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    bare = await Bus.connect(server.url, token=server.token)
    taken: list[bytes] = []
    try:
        async with reading(bare, taken) as one:
            await eventually(lambda: "can't be read" in caplog.text)
            await asyncio.sleep(1)
            await ensure_streams(bare, LOCAL)
            await store(bare, range(1))
            await eventually(lambda: taken == [b"0"])
            assert one.caught_up.is_set()
    finally:
        await bare.close()

    said = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert len(said) == 1, said
    assert "stream=TW_DECISIONS reason=$JS.API.STREAM.INFO.TW_DECISIONS: stream not found" in said[0]


@pytest.mark.parametrize("error", [msgspec.DecodeError("no object"), ValueError("no number"), KeyError("x")])
async def test_a_message_that_cannot_be_used_is_said_and_the_rest_is_read(
    bus: Bus, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    taken: list[bytes] = []

    def take(entry: Entry) -> None:
        if entry.data == b"1":
            raise error
        taken.append(entry.data)

    await store(bus, range(3))
    task = asyncio.create_task(Reading(bus, "TW_DECISIONS", take=take).run())
    try:
        await eventually(lambda: taken == [b"0", b"2"])
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    assert caplog.text.count(f"a message can't be used, passed over stream=TW_DECISIONS subject={SUBJECT}") == 1
