"""A training over a real NATS server, and what happens to it when that server misbehaves."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.reporters.nats_server import Ear, NatsServer, eventually

from trainwarden.reporters import Reporter
from trainwarden.reporters.backlog import Backlog
from trainwarden.reporters.wire import Command


@pytest.fixture
def reporter(job: NatsServer) -> Iterator[Reporter]:
    with Reporter(total=100) as one:
        yield one


def steps(reports: list[dict[str, Any]], metric: str = "loss") -> list[int]:
    return [report["step"] for report in reports if metric in report.get("metrics", {})]


async def test_a_training_is_heard_from_its_first_report_to_its_last(ear: Ear, job: NatsServer) -> None:
    with Reporter(total=100, epochs=2) as reporter:
        for step in range(1, 4):
            reporter.report(step, loss=1 / step, epoch=step / 50)

    reports = await ear.until(lambda heard: heard and heard[-1]["phase"] == "done")
    assert [report["seq"] for report in reports] == list(range(len(reports)))
    assert [report["phase"] for report in reports] == ["init", "train", "train", "train", "done"]
    said = {"v": 1, "run": reporter.run, "step": 1, "total": 100, "epoch": 0.02, "epochs": 2.0, "rank": 0, "world": 1}
    assert reports[1] == {**reports[1], **said, "metrics": {"loss": 1.0}}
    assert {message.subject for message in ear.messages} == {"tw.report.team-a.bert"}
    assert [message.headers for message in ear.messages] == [
        {"Nats-Msg-Id": f"{reporter.run}:{seq}"} for seq in range(len(reports))
    ]


async def test_a_failed_training_says_why(ear: Ear, job: NatsServer) -> None:
    def train() -> None:
        with Reporter() as reporter:
            reporter.report(1, loss=1.0)
            raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        train()

    reports = await ear.until(lambda heard: heard and heard[-1]["phase"] == "failed")
    assert reports[-1]["reason"] == "ValueError: boom"


async def test_nonfinite_values_are_reported_by_name(ear: Ear, reporter: Reporter) -> None:
    reporter.report(1, {"loss": float("nan"), "grad/norm": float("inf"), "score": float("-inf"), "lr": 0.1})

    reports = await ear.until(lambda heard: any(report["step"] == 1 for report in heard))
    assert reports[-1]["nonfinite"] == {"loss": "NaN", "grad/norm": "Infinity", "score": "-Infinity"}
    assert reports[-1]["metrics"] == {"lr": 0.1}


async def test_heartbeats_say_alive_and_not_progressing(ear: Ear, job: NatsServer) -> None:
    with Reporter(heartbeat_seconds=0.1) as reporter:
        reporter.report(7, loss=0.5)
        reports = await ear.until(lambda heard: sum(report["step"] == 7 for report in heard) >= 4)

    beats = [report for report in reports if report["step"] == 7][1:]
    assert all(not report["metrics"] and report["phase"] == "train" for report in beats)


async def test_the_end_and_checkpoints_reach_the_stream(ear: Ear, job: NatsServer, tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"weights")
    with Reporter() as reporter:
        reporter.report(1, loss=1.0)
        reporter.checkpoint_saved(tmp_path / "model.bin", step=1)
        await ear.until(lambda heard: heard and "checkpoint" in heard[-1])

    reports = await ear.until(lambda heard: heard and heard[-1]["phase"] == "done")
    assert reports[-1]["checkpoint"]["bytes"] == 7
    stream = await ear.client.jetstream().stream_info("TW_REPORTS")
    assert stream.state.messages == len(reports)


async def test_without_a_stream_the_end_arrives_all_the_same(server: NatsServer, job: NatsServer) -> None:
    server.start()
    ear = Ear(server, streams=False)
    await ear.listen()
    with Reporter() as reporter:
        reporter.report(1, loss=1.0)

    reports = await ear.until(lambda heard: heard and heard[-1]["phase"] == "done")
    assert {report["seq"] for report in reports} == {0, 1, 2}
    assert reporter.counts["dropped"] == 0
    await ear.close()


async def test_what_is_reported_while_nats_is_down_at_start_arrives_later(
    server: NatsServer, job: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    with Reporter() as reporter:
        for step in range(50):
            reporter.report(step, loss=float(step))
        await eventually(lambda: "can't be reached" in caplog.text)
        server.start()
        ear = Ear(server)
        await ear.listen()
        reporter.report(50, loss=50.0)
        reports = await ear.until(lambda heard: 50 in steps(heard))

    assert steps(reports)[-1] == 50
    assert reporter.counts["dropped"] == 0
    assert server.token not in caplog.text
    await ear.close()


async def test_after_a_long_outage_the_newest_values_arrive_and_the_drops_are_told(
    ear: Ear, job: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainwarden.reporters.publisher.Backlog", partial(Backlog, max_entries=10))
    monkeypatch.setenv("TRAINWARDEN_NATS_TOKEN_FILE", str(tmp_path / "token"))
    with Reporter() as reporter:
        reporter.report(1, accuracy=0.5)
        for step in range(2, 102):
            reporter.report(step, loss=float(step))
        await eventually(lambda: not len(reporter._worker.inbox) if reporter._worker else False)
        (tmp_path / "token").write_text(job.token)
        reports = await ear.until(lambda heard: 101 in steps(heard))

    assert steps(reports, "accuracy") == [1]
    assert steps(reports) == list(range(92, 102))
    assert reports[-1]["dropped"] == reporter.counts["dropped"] == 92


async def test_reports_outlive_a_restart_of_the_server(ear: Ear, server: NatsServer, reporter: Reporter) -> None:
    reporter.report(1, loss=1.0)
    await ear.until(lambda heard: 1 in steps(heard))

    server.stop()
    for step in range(2, 40):
        reporter.report(step, loss=1.0)
    server.start()
    await eventually(lambda: reporter.counts["connects"] >= 2 and reporter.flush(0))

    await ear.listen()
    found = (await ear.client.jetstream().stream_info("TW_REPORTS")).state
    assert found.messages >= 38
    assert reporter.counts["dropped"] == 0


async def test_a_stalled_server_stalls_nothing_and_gets_the_rest_when_it_goes_on(
    ear: Ear, server: NatsServer, reporter: Reporter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("trainwarden.reporters.link.CONFIRM_SECONDS", 1)
    reporter.report(1, loss=1.0)
    await ear.until(lambda heard: 1 in steps(heard))

    server.pause()
    slowest = 0.0
    for step in range(2, 30):
        begin = time.perf_counter()
        reporter.report(step, loss=1.0)
        slowest = max(slowest, time.perf_counter() - begin)
        await asyncio.sleep(0.05)
    await eventually(lambda: "doesn't answer" in caplog.text)
    server.resume()
    reporter.report(30, loss=1.0)

    reports = await ear.until(lambda heard: 30 in steps(heard))
    assert set(steps(reports)) == set(range(1, 31))
    assert slowest < 1, "no call waited for the server"


async def test_a_rotated_token_is_read_anew(
    server: NatsServer,
    tmp_path: Path,
    job: NatsServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.delenv("TRAINWARDEN_NATS_TOKEN")
    monkeypatch.setenv("TRAINWARDEN_NATS_TOKEN_FILE", str(tmp_path / "token"))
    (tmp_path / "token").write_text(f"{server.token}\n")
    server.start()
    with Reporter() as reporter:
        reporter.report(1, loss=1.0)
        await eventually(lambda: reporter.counts["sent"] >= 2)

        server.token = "second-token"
        server.start()
        await eventually(lambda: "refused the token" in caplog.text)
        reporter.report(2, loss=1.0)
        ear = Ear(server)
        await ear.listen()
        (tmp_path / "token").write_text("second-token")
        await ear.until(lambda heard: 2 in steps(heard))

    assert "first-token" not in caplog.text
    assert "second-token" not in caplog.text
    await ear.close()


@pytest.mark.parametrize("url", ["nats://user:s3cret@127.0.0.1:{port}", "127.0.0.1:{port}"])
async def test_a_wrong_token_is_told_once_and_training_goes_on(
    ear: Ear, server: NatsServer, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    reporter = Reporter(namespace="team-a", job="bert", url=url.format(port=server.port), token="wr0ng")
    reporter.report(1, loss=1.0)
    await eventually(lambda: "refused the token" in caplog.text)
    await asyncio.sleep(1.0)
    reporter.close(0.1)

    told = [record for record in caplog.records if "refused the token" in record.message]
    assert len(told) == 1
    assert told[0].levelno == logging.WARNING
    assert "wr0ng" not in caplog.text
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize(
    ("most", "arrives"), [(4096, True), (600, False)], ids=["less than the wire", "next to nothing"]
)
async def test_a_server_that_takes_small_messages_gets_small_reports(
    server: NatsServer, job: NatsServer, tmp_path: Path, most: int, arrives: bool
) -> None:
    (tmp_path / "server.conf").write_text(f"max_payload: {most}")
    server.start("-c", str(tmp_path / "server.conf"))
    ear = Ear(server, streams=False)
    await ear.listen()
    with Reporter() as reporter:
        reporter.report(1, {f"m{number}": 1.0 for number in range(500)})
        await eventually(lambda: reporter.counts["sent"] >= 2 if arrives else reporter.counts.get("size", 0) >= 2)

    assert reporter.counts["connects"] == 1
    assert [report["step"] for report in ear.reports[:2]] == ([0, 1] if arrives else [])
    await ear.close()


async def test_tls_with_an_unknown_authority_fails_clearly(
    server: NatsServer,
    job: NatsServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = subprocess.run(
        f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 "
        f"-keyout {key} -out {certificate}".split(),
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip("openssl is not here to make a certificate")
    server.start("--tls", "--tlscert", str(certificate), "--tlskey", str(key))
    monkeypatch.setenv("TRAINWARDEN_NATS_URL", server.url.replace("nats:", "tls:"))

    with Reporter() as reporter:
        reporter.report(1, loss=1.0)
        await eventually(lambda: "TLS with NATS at 127.0.0.1" in caplog.text)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        await eventually(lambda: reporter.counts["sent"] >= 2)


async def test_an_unreadable_token_file_is_told_by_its_path(
    ear: Ear, job: NatsServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TRAINWARDEN_NATS_TOKEN_FILE", "/nowhere/token")
    reporter = Reporter()
    await eventually(lambda: "/nowhere/token" in caplog.text)
    reporter.close(0)


async def test_reports_from_several_threads_all_arrive_once(ear: Ear, reporter: Reporter) -> None:
    def work(offset: int) -> None:
        for step in range(200):
            reporter.report(offset + step, loss=1.0)

    threads = [threading.Thread(target=work, args=(1000 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    reports = await ear.until(lambda heard: len(steps(heard)) >= 800)
    assert len(set(steps(reports))) == 800
    assert [report["seq"] for report in reports] == list(range(len(reports)))


async def test_two_reporters_in_one_process_are_two_runs(ear: Ear, job: NatsServer) -> None:
    with Reporter() as first, Reporter() as second:
        first.report(1, loss=1.0)
        second.report(2, loss=2.0)

    reports = await ear.until(lambda heard: sum(report["phase"] == "done" for report in heard) == 2)
    assert {report["run"] for report in reports} == {first.run, second.run}


async def test_a_checkpoint_command_is_accepted_proven_and_answered_again_from_memory(
    ear: Ear, reporter: Reporter, tmp_path: Path
) -> None:
    reporter.commands.supports("checkpoint")
    await ear.until(bool)
    command = Command(id="c1", run=reporter.run, op="checkpoint")

    replies = await ear.command(command)
    await eventually(lambda: reporter.commands.pending() is not None and replies)
    again = await ear.command(command)
    await eventually(lambda: again)
    (tmp_path / "model.bin").write_bytes(b"weights")
    reporter.commands.saved(command, path=tmp_path / "model.bin", step=5)
    await eventually(lambda: len(replies) == 2 and len(again) == 2)
    later = await ear.command(command)
    await eventually(lambda: later)

    assert [reply.state for reply in replies] == ["accepted", "saved"]
    assert [reply.state for reply in again] == ["accepted", "saved"]
    assert later == [replies[1]]
    assert replies[1].checkpoint is not None
    assert (replies[1].checkpoint.step, replies[1].checkpoint.bytes) == (5, 7)
    assert reporter.commands.pending() is None


async def test_commands_for_another_run_and_noise_are_left_alone(
    ear: Ear, reporter: Reporter, caplog: pytest.LogCaptureFixture
) -> None:
    reporter.commands.supports("checkpoint")
    await ear.until(bool)

    other = await ear.command(Command(id="c1", run="someone else", op="checkpoint"))
    await ear.client.publish("tw.command.team-a.bert", b"\xff noise", reply=ear.client.new_inbox())
    ours = await ear.command(Command(id="c2", run=reporter.run, op="stop"))
    await eventually(lambda: ours)

    assert [reply.state for reply in ours] == ["unsupported"]
    assert not other
    assert "does not fit the wire" in caplog.text


async def test_heartbeats_and_release_work_while_the_training_holds(ear: Ear, job: NatsServer, tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"weights")
    with Reporter(heartbeat_seconds=0.1) as reporter:
        reporter.commands.supports("checkpoint")
        reporter.report(3, loss=1.0)
        await ear.until(lambda heard: 3 in steps(heard))
        command = Command(id="c1", run=reporter.run, op="checkpoint", hold=True)
        replies = await ear.command(command)
        await eventually(lambda: reporter.commands.pending() == command)
        reporter.commands.saved(command, path=tmp_path / "model.bin", step=3)
        holding = asyncio.get_running_loop().run_in_executor(None, reporter.commands.hold, command)

        await ear.until(lambda heard: sum(report["phase"] == "checkpoint" for report in heard) >= 4)
        released = await ear.command(Command(id="c2", run=reporter.run, op="release"))

        assert await holding == "released"
        await ear.until(lambda heard: heard[-1]["phase"] == "train")
        assert [reply.state for reply in replies] == ["accepted", "saved"]
        await eventually(lambda: released)
        assert [reply.state for reply in released] == ["accepted"]
