"""How long an answer holds, how many are kept, and what is refused without asking."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest
from tests.controller.bridge.posting import TableGate, sender

from trainwarden.controller.bridge.claims import refuse_hopeless
from trainwarden.controller.bridge.gate import Admission, CachedGate, CannotTellError, ForbiddenError

GOOD: dict[str, Any] = {
    "aud": ["trainwarden.dev/bridge"],
    "exp": 2000,
    "kubernetes.io": {"namespace": "team-a", "pod": {"name": "bert-node-0-0-x", "uid": "uid-1"}},
}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def cached(table: Any, clock: Clock, **more: Any) -> CachedGate:
    return CachedGate(table, monotonic=clock, wall=clock, **more)


async def test_leave_holds_for_a_while() -> None:
    table, clock = TableGate({"good": Admission(sender())}), Clock()
    gate = cached(table, clock, seconds=60.0)

    for clock.now in (1000.0, 1030.0, 1059.0):
        await gate.admit("good", "team-a", "bert")
    assert table.asked == 1
    clock.now = 1061.0
    await gate.admit("good", "team-a", "bert")
    assert table.asked == 2


async def test_leave_ends_with_its_token() -> None:
    table, clock = TableGate({"good": Admission(sender(), expires=1030.0)}), Clock()
    gate = cached(table, clock)
    await gate.admit("good", "team-a", "bert")

    clock.now = 1030.0
    with pytest.raises(ForbiddenError, match="expired"):
        await gate.admit("good", "team-a", "bert")


async def test_leave_for_one_job_is_none_for_another() -> None:
    gate = cached(TableGate({"good": Admission(sender())}), Clock())
    await gate.admit("good", "team-a", "bert")

    with pytest.raises(ForbiddenError):
        await gate.admit("good", "team-b", "bert")


async def test_a_refusal_holds_for_less() -> None:
    table, clock = TableGate(), Clock()
    gate = cached(table, clock, refused_seconds=10.0)
    for clock.now in (1000.0, 1009.0, 1011.0):
        with pytest.raises(ForbiddenError):
            await gate.admit("late", "team-a", "bert")
    assert table.asked == 2

    table.tokens["late"] = Admission(sender())
    clock.now = 1022.0
    assert (await gate.admit("late", "team-a", "bert")).sender == sender()


async def test_made_up_tokens_leave_the_good_ones_where_they_are() -> None:
    table = TableGate({"good": Admission(sender())})
    gate = cached(table, Clock(), most=10)
    await gate.admit("good", "team-a", "bert")
    for number in range(100):
        with pytest.raises(ForbiddenError):
            await gate.admit(f"bad-{number}", "team-a", "bert")

    await gate.admit("good", "team-a", "bert")
    assert table.asked == 101
    assert len(gate) == 11


async def test_who_asks_meanwhile_shares_the_answer() -> None:
    table = TableGate({"good": Admission(sender())})
    gate = cached(table, Clock())

    await asyncio.gather(*(gate.admit("good", "team-a", "bert") for _ in range(50)))

    assert table.asked == 1


async def test_what_can_not_be_told_is_asked_again() -> None:
    class Away:
        asked = 0

        async def admit(self, token: str, namespace: str, job: str) -> Admission:
            self.asked += 1
            raise CannotTellError("away")

    away = Away()
    gate = cached(away, Clock())
    for _ in range(2):
        with pytest.raises(CannotTellError):
            await gate.admit("good", "team-a", "bert")

    assert away.asked == 2


def token(**changes: Any) -> str:
    claims = base64.urlsafe_b64encode(json.dumps(GOOD | changes).encode()).decode().rstrip("=")
    return f"e30.{claims}.c2ln"


def test_a_token_that_may_be_good_is_let_through() -> None:
    claims = refuse_hopeless(token(), "team-a", audience="trainwarden.dev/bridge", now=1000.0)

    assert claims.exp == 2000


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("opaque", "Web Token"),
        ("a.b.c", "can't be read"),
        ("a.%%%.c", "can't be read"),
        ("x." + "y" * 20_000 + ".z", "Web Token"),
        (token(aud=["https://kubernetes.default.svc"]), "audience"),
        (token(aud="other"), "audience"),
        (token(exp=999), "expired"),
        (token(**{"kubernetes.io": {"namespace": "team-b"}}), "team-b"),
        (token(**{"kubernetes.io": {"namespace": "team-a"}}), "no pod"),
        (token(**{"kubernetes.io": None}), "can't be read"),
    ],
    ids=lambda value: value if " " in value else "",
)
def test_a_hopeless_token_is_refused_with_its_reason_and_not_shown(given: str, says: str) -> None:
    with pytest.raises(ForbiddenError, match=says) as refused:
        refuse_hopeless(given, "team-a", audience="trainwarden.dev/bridge", now=1000.0)

    assert given not in str(refused.value)
