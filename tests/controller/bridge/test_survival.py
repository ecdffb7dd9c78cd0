"""What a bridge does while NATS is away, after a restart, beside a reporter, and with a new certificate."""

from __future__ import annotations

import asyncio
import ssl
import time
from datetime import timedelta
from typing import Any

from tests.controller.bridge.posting import T0, Authority, Served, hearing, posted, sender, serving
from tests.reporters.nats_server import NatsServer, eventually

from trainwarden.controller.bridge.gate import Admission
from trainwarden.controller.bus import Bus
from trainwarden.controller.streams import LOCAL, ensure_streams
from trainwarden.reporters.wire import Report, encode, report_subject


def at(second: float, step: int) -> dict[str, Any]:
    return posted(percent=1, at=T0 + timedelta(seconds=second), current_step=step, total_steps=1000)


async def test_the_newest_post_of_each_job_survives_while_nats_is_away(
    server: NatsServer, authority: Authority
) -> None:
    bus = await Bus.connect(server.url, token=server.token)
    await ensure_streams(bus, LOCAL)
    async with serving(server, authority) as served, hearing(bus, served):
        served.gate.tokens["other"] = Admission(sender(job="gpt", pod="uid-9"), time.time() + 3600)
        await served.post(at(0, 1))
        await served.heard(1)
        server.stop()
        for number in range(2, 12):
            assert (await served.post(at(number, number)))[0] == 200
        assert (await served.post(at(1, 7), token="other", job="gpt"))[0] == 200
        dropped = served.bridge.pending.dropped
        server.start()

        await eventually(lambda: {report.step for report in served.reports} >= {7, 11})
        await eventually(lambda: not served.bridge.pending)

    mine = [report for report in served.reports if report.run.startswith("bridge.uid-1.")]
    assert [report.seq for report in mine] == list(range(len(mine)))
    assert dropped == mine[-1].dropped == 11 - len(mine) > 0
    await bus.close()


async def test_a_bridge_serves_before_nats_is_there(server: NatsServer, authority: Authority) -> None:
    server.stop()
    async with serving(server, authority) as served:
        assert (await served.post(at(0, 5)))[0] == 200
        server.start()
        bus = await Bus.connect(server.url, token=server.token)
        await ensure_streams(bus, LOCAL)
        async with hearing(bus, served):
            (report,) = await served.heard(1)
        await bus.close()

    assert report.step == 5


async def test_more_jobs_than_may_wait_are_dropped_and_counted(server: NatsServer, authority: Authority) -> None:
    server.stop()
    async with serving(server, authority, most_jobs=5, ending_seconds=0.0) as served:
        for number in range(30):
            job = f"job-{number}"
            served.gate.tokens[job] = Admission(sender(job=job, pod=job), time.time() + 3600)
            await served.post(at(0, 1), token=job, job=job)

        assert len(served.bridge.pending) == 5
        assert served.bridge.pending.dropped == 25


async def test_a_run_goes_on_after_a_restart(server: NatsServer, bus: Bus, authority: Authority) -> None:
    async with serving(server, authority) as first, hearing(bus, first):
        await first.post(posted(percent=0, at=T0, total_steps=1000))
        await first.heard(1)
        await first.post(at(5, 40))
        await first.heard(2)
    async with serving(server, authority) as second, hearing(bus, second):
        await second.heard(2)
        await second.post(at(10, 80))
        reports = await second.heard(3)

    assert [report.seq for report in reports] == [0, 1, 2]
    assert len({report.run for report in reports}) == 1


async def test_what_waits_is_sent_before_the_bridge_ends(server: NatsServer, bus: Bus, authority: Authority) -> None:
    async with serving(server, authority) as served:
        await served.post(at(0, 1))
    async with hearing(bus, served):
        assert len(await served.heard(1)) == 1


async def test_a_reporter_in_the_same_pod_goes_first(served: Served, bus: Bus) -> None:
    await _report(bus, "train", pod="bert-node-0-0")

    await served.post(at(0, 1))
    await eventually(lambda: not served.bridge.pending)

    assert [report.run for report in await served.heard(1)] == ["native"]


async def test_a_reporter_in_another_pod_or_one_that_has_ended_does_not(served: Served, bus: Bus) -> None:
    await _report(bus, "train", pod="bert-node-0-0-of-before")
    await served.post(at(0, 1))
    await served.heard(2)
    await _report(bus, "done", pod="bert-node-0-0", seq=1)
    await served.post(posted(percent=0, at=T0 + timedelta(seconds=9), total_steps=1000))

    assert [report.run for report in await served.heard(4)].count("native") == 2


async def test_a_new_certificate_is_shown_without_a_restart(server: NatsServer, bus: Bus, authority: Authority) -> None:
    async with serving(server, authority, certificate_seconds=0.02) as served:
        before = await _shown(served)
        authority.certificate.write_text("half a cer")
        await asyncio.sleep(0.1)
        assert await _shown(served) == before

        issued = authority.issue()
        await eventually(lambda: served.bridge.certificates.reloads)

        assert before != await _shown(served) == issued
        assert (await served.post(at(0, 1)))[0] == 200


async def _report(bus: Bus, phase: Any, *, pod: str, seq: int = 0) -> None:
    report = Report(run="native", seq=seq, ts=0.0, pod=pod, phase=phase, step=3)
    await bus.store(report_subject("team-a", "bert"), encode(report), message_id=f"native:{pod}:{seq}")


async def _shown(served: Served) -> bytes:
    context = ssl.create_default_context(cafile=str(served.authority.trust))
    _, writer = await asyncio.open_connection("127.0.0.1", served.port, ssl=context)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    assert isinstance(shown, bytes)
    return shown
