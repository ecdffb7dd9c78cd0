"""What a bridge answers, over TLS, and what arrives on NATS."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from tests.controller.bridge.posting import T0, Authority, Served, posted, sender, serving
from tests.reporters.nats_server import NatsServer, eventually

from trainwarden.controller.bridge.gate import Admission
from trainwarden.controller.bridge.server import Limits
from trainwarden.reporters.wire import MAX_BYTES


def _with(metrics: list[dict[str, object]]) -> dict[str, Any]:
    body = posted()
    body["trainerStatus"]["metrics"] = metrics
    return body


async def test_a_post_is_echoed_and_published(served: Served) -> None:
    body = posted(percent=12, left=30, at=T0, loss=2.5, current_step=120, total_steps=1000, current_epoch=0.24)

    code, answer = await served.post(body)
    (report,) = await served.heard(1)

    assert code == 200
    assert answer["trainerStatus"]["progressPercentage"] == 12
    assert answer["trainerStatus"]["metrics"] == body["trainerStatus"]["metrics"]
    assert (report.step, report.total, report.epoch, report.metrics) == (120, 1000, 0.24, {"loss": 2.5})
    assert (report.run, report.pod) == (f"bridge.uid-1.{int(T0.timestamp() * 1e6)}", "bert-node-0-0")
    assert served.entries[0].subject.endswith(".report.team-a.bert")
    assert served.entries[0].headers is not None
    assert served.entries[0].headers["Nats-Msg-Id"] == f"{report.run}:0"


async def test_a_body_without_a_status_does_nothing(served: Served) -> None:
    assert await served.post({}) == (200, {})
    assert await served.post({"trainerStatus": None}) == (200, {})
    assert len(served.bridge.pending) == 0


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "body"),
        (b"{", "body"),
        (b"[1]", "object"),
        (b"\xff\xfe", "body"),
        (b"[" * 60_000, "body"),
        (b'{"x":' + b"[" * 60_000, "body"),
        ({"trainerStatus": {}}, "lastUpdatedTime"),
        ({"trainerStatus": {"lastUpdatedTime": "yesterday"}}, "lastUpdatedTime"),
        ({"trainerStatus": {"lastUpdatedTime": "2026-12-01T12:00:00"}}, "lastUpdatedTime"),
        (posted(percent=101), "progressPercentage"),
        (posted(percent=-1), "progressPercentage"),
        (posted(left=-1), "estimatedRemainingSeconds"),
        (posted(left=2**31), "estimatedRemainingSeconds"),
        (_with([{"name": "n" * 65, "value": "1"}]), "metrics[0].name"),
        (posted(loss="1" * 65), "metrics[0].value"),
        (posted(loss=""), "metrics[0].value"),
        (_with([{"name": f"m{number}", "value": "1"} for number in range(257)]), "metrics"),
        (_with([{"name": "a", "value": 1}]), "metrics[0].value"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
async def test_a_body_that_does_not_fit_is_refused_with_its_place(served: Served, body: Any, says: str) -> None:
    code, answer = await served.post(body)

    assert code == 422
    assert (answer["kind"], answer["apiVersion"], answer["status"]) == ("Status", "v1", "Failure")
    assert (answer["reason"], answer["code"]) == ("Invalid", 422)
    assert says in answer["message"]


async def test_unknown_fields_are_ignored(served: Served) -> None:
    body = posted(percent=1, current_step=1)
    body["trainerStatus"]["later"] = {"a": [1]}

    code, answer = await served.post(body)

    assert code == 200
    assert "later" not in answer["trainerStatus"]


async def test_a_body_that_is_too_large_is_refused(served: Served) -> None:
    code, answer = await served.post(b" " * (MAX_BYTES + 1))

    assert (code, answer["reason"]) == (413, "RequestEntityTooLarge")


async def test_a_body_that_is_as_large_as_may_be_is_taken(served: Served) -> None:
    body = json.dumps(posted(percent=1, current_step=1)).encode()

    code, _ = await served.post(body + b" " * (MAX_BYTES - len(body)))

    assert code == 200


async def test_a_body_that_does_not_say_its_length_is_refused_where_it_is_too_large(served: Served) -> None:
    head = _head(served, "Transfer-Encoding: chunked")
    answer = await _talk(served, head, [b"8000\r\n" + b" " * 0x8000 + b"\r\n"] * 3)

    assert answer.startswith(b"HTTP/1.1 413 ")


async def test_a_compressed_body_is_not_unpacked(served: Served) -> None:
    answer = await _talk(served, _head(served, "Content-Encoding: gzip\r\nContent-Length: 2"), [b"{}"])

    assert answer.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 422 "))


@pytest.mark.parametrize("token", [None, "unknown"])
async def test_a_token_that_is_not_good_is_refused(served: Served, token: str | None) -> None:
    code, answer = await served.post(posted(percent=1), token=token)

    assert (code, answer["reason"]) == (403, "Forbidden")


async def test_a_token_of_another_namespace_is_refused(served: Served) -> None:
    code, answer = await served.post(posted(percent=1), namespace="team-b")

    assert (code, answer["reason"]) == (403, "Forbidden")
    assert "team-a" in answer["message"]


async def test_a_job_that_is_not_there_is_not_found(served: Served) -> None:
    code, answer = await served.post(posted(percent=1), job="gpt")

    assert (code, answer["reason"]) == (404, "NotFound")
    assert "team-a/gpt" in answer["message"]


async def test_a_name_that_is_none_is_not_found(served: Served) -> None:
    code, answer = await served.post(posted(percent=1), job="a.b")

    assert (code, answer["reason"]) == (404, "NotFound")
    assert served.gate.asked == 0


async def test_a_token_that_expires_meanwhile_is_refused(served: Served) -> None:
    served.gate.tokens["brief"] = Admission(sender(), time.time() + 1.0)
    assert (await served.post(posted(percent=1, current_step=1), token="brief"))[0] == 200

    await eventually(lambda: time.time() > served.gate.tokens["brief"].expires)  # type: ignore[operator]  # it is set
    code, answer = await served.post(posted(percent=1, current_step=1), token="brief")

    assert code == 403
    assert "expired" in answer["message"]


async def test_a_body_is_not_read_before_its_token_is_known(served: Served) -> None:
    head = _head(served, f"Content-Length: {MAX_BYTES}", token="unknown")

    answer = await _talk(served, head, [b"{"])

    assert answer.startswith(b"HTTP/1.1 403 ")


async def test_other_paths_and_methods_are_refused_as_kubernetes_does(served: Served) -> None:
    answer = await _talk(served, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 404 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["reason"] == "NotFound"


async def test_health_tells_numbers(served: Served) -> None:
    await served.post(posted(percent=1, current_step=1))
    await served.post(b"{")
    await served.heard(1)

    answer = await _talk(served, b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    numbers = json.loads(answer.partition(b"\r\n\r\n")[2])

    assert answer.startswith(b"HTTP/1.1 200 ")
    assert numbers["answers"] == {"200": 1, "422": 1}
    assert numbers["reviews"] == 1
    assert (numbers["dropped"], numbers["connections"]) == (0, 1)


@pytest.mark.parametrize(
    "sent",
    [b"", b"POST /apis", b"GARBAGE\r\n\r\n", b"\x00" * 100, b"GET / HTTP/1.1\r\nX: " + b"a" * 20_000],
    ids=["nothing", "half a line", "garbage", "zeros", "a long header"],
)
async def test_a_connection_that_brings_no_request_is_ended(
    server: NatsServer, authority: Authority, sent: bytes
) -> None:
    async with (
        serving(server, authority, limits=Limits(header_seconds=0.3)) as served,
        _connected(served) as (reader, writer),
    ):
        writer.write(sent)

        rest = await _rest(reader)

        assert rest == b"" or rest.startswith((b"HTTP/1.1 400 ", b"HTTP/1.0 400 "))


async def test_a_header_that_drips_is_not_waited_for(server: NatsServer, authority: Authority) -> None:
    async with (
        serving(server, authority, limits=Limits(header_seconds=0.5)) as served,
        _connected(served) as (reader, writer),
    ):
        ended = asyncio.create_task(_rest(reader))

        writer.write(b"POST /x HTTP/1.1\r\n")
        while not ended.done():
            writer.write(b"X: y\r\n")
            await asyncio.sleep(0.05)

        assert served.bridge.server.answers == {}


async def test_a_body_that_drips_is_not_waited_for(server: NatsServer, authority: Authority) -> None:
    async with (
        serving(server, authority, limits=Limits(body_seconds=0.5)) as served,
        _connected(served) as (reader, writer),
    ):
        ended = asyncio.create_task(_rest(reader))

        writer.write(_head(served, "Content-Length: 1000"))
        while not ended.done():
            writer.write(b" ")
            await asyncio.sleep(0.05)

        assert (await ended).startswith(b"HTTP/1.1 408 ")


async def test_a_client_that_says_nothing_of_tls_is_ended(server: NatsServer, authority: Authority) -> None:
    async with (
        serving(server, authority, limits=Limits(header_seconds=0.3)) as served,
        _connected(served, tls=False) as (reader, _),
    ):
        assert await _rest(reader) == b""


async def test_slow_clients_keep_nobody_out(served: Served) -> None:
    async with contextlib.AsyncExitStack() as slow:
        for _ in range(50):
            _, writer = await slow.enter_async_context(_connected(served))
            writer.write(b"POST ")

        code, _ = await served.post(posted(percent=1, current_step=1))

        assert code == 200


async def test_more_connections_than_may_be_are_closed(server: NatsServer, authority: Authority) -> None:
    async with (
        serving(server, authority, limits=Limits(connections=2, header_seconds=60.0)) as served,
        _connected(served),
        _connected(served),
    ):
        await eventually(lambda: served.bridge.server.connections == 2)
        async with _connected(served) as (reader, _):
            assert await _rest(reader) == b""


async def test_a_connection_serves_one_post_after_another(served: Served) -> None:
    async with _connected(served) as (reader, writer):
        for number in range(1, 4):
            at = T0 + timedelta(seconds=number)
            body = json.dumps(posted(percent=1, at=at, current_step=number)).encode()
            writer.write(_head(served, f"Content-Length: {len(body)}", close=False) + body)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ")
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.split(b":")[1]))
            await served.heard(number)

    assert [report.seq for report in served.reports] == [0, 1, 2]


async def test_a_client_that_goes_away_in_its_post_harms_nobody(served: Served) -> None:
    for _ in range(10):
        async with _connected(served) as (_, writer):
            writer.write(_head(served, "Content-Length: 1000") + b"{")
            writer.transport.abort()

    assert (await served.post(posted(percent=1, current_step=1)))[0] == 200


@contextlib.asynccontextmanager
async def _connected(
    served: Served, *, tls: bool = True
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    context = ssl.create_default_context(cafile=str(served.authority.trust)) if tls else None
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port, ssl=context)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _rest(reader: asyncio.StreamReader) -> bytes:
    """All that comes until the other side ends it, in whichever way."""
    got = b""
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            got += data
    return got


async def _talk(served: Served, *parts: bytes | list[bytes]) -> bytes:
    async with _connected(served) as (reader, writer):
        for part in parts:
            writer.writelines(part if isinstance(part, list) else [part])
        return await _rest(reader)


def _head(served: Served, more: str, *, token: str = "good", close: bool = True) -> bytes:
    path = served.url().partition(str(served.port))[2]
    end = "Connection: close\r\n" if close else ""
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n{end}{more}\r\n\r\n".encode()
