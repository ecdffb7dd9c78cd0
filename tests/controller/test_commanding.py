"""Asking a training: what it answers, and what is said when nobody does."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.reporters.nats_server import NatsServer

from trainwarden.controller.bus import Bus
from trainwarden.controller.commanding import ask
from trainwarden.reporters import Reporter
from trainwarden.reporters.wire import Command


@contextlib.contextmanager
def training(server: NatsServer, step: Callable[[Reporter], None], *, supports: bool = True) -> Iterator[Reporter]:
    """A training thread that does `step` over and over."""
    end = threading.Event()

    def train() -> None:
        while not end.wait(0.01):
            step(reporter)

    with Reporter(namespace="team-a", job="bert", url=server.url, token=server.token) as reporter:
        if supports:
            reporter.commands.supports("checkpoint", "stop", "release")
        reporter.report(1, {"loss": 1.0})
        thread = threading.Thread(target=train)
        thread.start()
        try:
            yield reporter
        finally:
            end.set()
            thread.join()


def saving(folder: Path, saved: list[str]) -> Callable[[Reporter], None]:
    def step(reporter: Reporter) -> None:
        command = reporter.commands.pending()
        if command is not None:
            (folder / "model").write_text("weights")
            saved.append(command.id)
            reporter.commands.saved(command, path=folder / "model", step=7)
            reporter.commands.hold(command)

    return step


async def test_a_checkpoint_is_accepted_then_saved_with_its_proof(server: NatsServer, bus: Bus, tmp_path: Path) -> None:
    accepted: list[bool] = []
    saved: list[str] = []
    with training(server, saving(tmp_path, saved)) as reporter:
        command = Command("c-1", reporter.run, "checkpoint", timeout=20)
        reply = await ask(bus, "team-a", "bert", command, accepted=lambda: accepted.append(True))
        again = await ask(bus, "team-a", "bert", command)

    assert reply.state == "saved"
    assert reply.checkpoint is not None
    assert (reply.checkpoint.step, reply.checkpoint.bytes) == (7, 7)
    assert accepted == [True]
    assert again == reply
    assert saved == ["c-1"]


async def test_a_training_that_can_not_save_says_why(server: NatsServer, bus: Bus) -> None:
    def step(reporter: Reporter) -> None:
        command = reporter.commands.pending()
        if command is not None:
            reporter.commands.failed(command, "no space left")

    with training(server, step) as reporter:
        reply = await ask(bus, "team-a", "bert", Command("c-1", reporter.run, "checkpoint", timeout=20))

    assert (reply.state, reply.reason) == ("failed", "no space left")


async def test_a_training_that_knows_no_commands_says_so(server: NatsServer, bus: Bus) -> None:
    with training(server, lambda _: None, supports=False) as reporter:
        reply = await ask(bus, "team-a", "bert", Command("c-1", reporter.run, "checkpoint", timeout=20))

    assert reply.state == "unsupported"


async def test_a_training_that_is_held_goes_on_when_released(server: NatsServer, bus: Bus, tmp_path: Path) -> None:
    with training(server, saving(tmp_path, [])) as reporter:
        held = Command("c-1", reporter.run, "stop", hold=True, timeout=20, holdFor=60)
        assert (await ask(bus, "team-a", "bert", held)).state == "saved"
        reply = await ask(bus, "team-a", "bert", Command("c-1-release", reporter.run, "release", timeout=5))

    assert reply.state == "accepted"


async def test_nobody_answering_is_a_failure_that_says_so(bus: Bus) -> None:
    reply = await ask(bus, "team-a", "bert", Command("c-1", "nobody", "checkpoint"), patience=0.3)

    assert (reply.state, reply.reason) == ("failed", "the training did not answer within 0.3 s")


async def test_noise_and_replies_to_others_are_passed_over(server: NatsServer, bus: Bus) -> None:
    client = await bus.client()

    async def answer(message: object) -> None:
        inbox = message.reply  # type: ignore[attr-defined]
        for data in (b"\xff", b"{}", b'{"v":1,"id":"other","run":"r","state":"failed","reason":"no"}'):
            await bus.publish(inbox, data)
        await bus.publish(inbox, b'{"v":1,"id":"c-1","run":"r","state":"failed","reason":"mine"}')

    await client.subscribe("tw.command.team-a.bert", cb=answer)
    await client.flush()

    assert (await ask(bus, "team-a", "bert", Command("c-1", "r", "checkpoint"))).reason == "mine"


@pytest.mark.slow
async def test_a_final_reply_that_was_lost_is_asked_for_again(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainwarden.controller.commanding._RECALL", 0.2)
    asked = 0
    client = await bus.client()

    async def answer(message: object) -> None:
        nonlocal asked
        asked += 1
        state = "accepted" if asked == 1 else "failed"  # the reply in between was lost
        data = f'{{"v":1,"id":"c-1","run":"r","state":"{state}","reason":"known"}}'
        await bus.publish(message.reply, data.encode())  # type: ignore[attr-defined]

    await client.subscribe("tw.command.team-a.bert", cb=answer)
    await client.flush()
    reply = await asyncio.wait_for(ask(bus, "team-a", "bert", Command("c-1", "r", "checkpoint", timeout=60)), 10)

    assert (reply.reason, asked) == ("known", 2)
