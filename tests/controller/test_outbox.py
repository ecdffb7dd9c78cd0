"""What is too large for the stream is cut, and nothing that was decided is lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from tests.controller.engines import hearing
from tests.reporters.nats_server import eventually

from trainwarden.controller.bus import Bus
from trainwarden.controller.cutting import cut
from trainwarden.controller.outbox import Outbox
from trainwarden.controller.subjects import job_subject
from trainwarden.policies.decision import Decision, Evidence, Mode, PolicyRef, RunRef, Severity, Verdict
from trainwarden.policies.judge import Judgement
from trainwarden.policies.notice import Curve, Notice

MEBIBYTE = 1 << 20


def decision(number: int, *, message: str = "loss is high", values: dict[str, Any] | None = None) -> Decision:
    return Decision(
        id=f"d{number}",
        time=datetime.now(UTC),
        run=RunRef("team-a", "bert", "u-1", "a-1"),
        policy=PolicyRef("TrainingPolicy", "team-a", "guard", "uid-guard", 1, Mode.ENFORCE),
        rule="high",
        verdict=Verdict.FIRING,
        severity=Severity.WARNING,
        reason="RuleFiring",
        message=message,
        evidence=Evidence(step=3, values=values or {}),
    )


def notice(of: Decision) -> Notice:
    curve = Curve("loss", tuple(range(300)), tuple(float(step) for step in range(300)))
    return Notice(f"n-{of.id}", "incident", of.time, of, (), curve=curve)


@contextlib.asynccontextmanager
async def publishing(bus: Bus) -> AsyncIterator[Outbox]:
    outbox = Outbox(bus, version="test")
    task = asyncio.create_task(outbox.run())
    try:
        yield outbox
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


LARGE: dict[str, dict[str, Any]] = {
    "message": {"message": "x" * 2 * MEBIBYTE},
    "message of four bytes a character": {"message": "\N{GRINNING FACE}" * MEBIBYTE},
    "one value": {"values": {"variables.v": "x" * 2 * MEBIBYTE}},
    "many values": {"values": {f"metrics.m{number:05}": "x" * 100 for number in range(20_000)}},
    "a long name": {"values": {"x" * 2 * MEBIBYTE: 1.0}},
}


@pytest.mark.parametrize("what", LARGE)
async def test_a_decision_and_a_notice_too_large_for_the_stream_are_cut_and_say_so(what: str, bus: Bus) -> None:
    large = decision(1, **LARGE[what])
    judged = Judgement(decisions=[large, decision(2)], notices=[notice(large)])

    async with hearing(bus) as heard, publishing(bus) as outbox:
        outbox.put("team-a", "bert", judged, lambda: (_ for _ in ()).throw(RuntimeError("no state in this test")))
        await eventually(lambda: heard.notices and len(heard.decisions) == 2)

    told = heard.decisions[0]
    assert [each.id for each in heard.decisions] == ["d1", "d2"]
    assert heard.notices[0].decision == msgspec.structs.replace(told, engine="")
    assert heard.notices[0].curve == notice(large).curve
    assert (told.verdict, told.rule, told.evidence.step) == (Verdict.FIRING, "high", 3)
    assert "(cut" in str(msgspec.to_builtins(told))
    assert heard.decisions[1].message == "loss is high"


def test_what_fits_is_left_as_it_is() -> None:
    data = b'{"message": "fits"}'

    assert cut(data, len(data)) is data


def test_what_is_cut_tells_how_much_is_missing() -> None:
    data = msgspec.json.encode({"message": "m" * 5000, "values": {f"v{n}": n for n in range(401)}, "id": "d1"})

    shorter = msgspec.json.decode(cut(data, 9000))

    assert shorter["message"] == "m" * 4000 + "… (cut from 5000 characters)"
    assert shorter["values"]["… (cut)"] == "1 of 401 are left out"
    assert len(shorter["values"]) == 401
    assert shorter["id"] == "d1"


def test_a_state_keeps_its_entries() -> None:
    data = msgspec.json.encode({"rules": ["r"] * 1000, "message": "m" * 5000})

    shorter = msgspec.json.decode(cut(data, 100, entries=False))

    assert shorter["rules"] == ["r"] * 1000
    assert len(shorter["message"]) < 500


def test_the_outbox_knows_a_state_by_its_subject() -> None:
    assert job_subject("state", "team-a", "bert").startswith("tw.state.")
