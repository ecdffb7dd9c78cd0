"""What an operator's brakes know of the time before its start, from a real stream of results."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from trainwarden.controller.bus import Bus
from trainwarden.controller.cluster.brakes import Brakes, Limits
from trainwarden.controller.cluster.recalling import recall
from trainwarden.controller.publishing import publish_result
from trainwarden.controller.streams import ensure_streams
from trainwarden.policies.decision import ActionResult, ActionState

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)  # the clock of whoever wrote it is not looked at


def result(action: str, state: ActionState, reason: str) -> ActionResult:
    return ActionResult(action, "team-a", "llama", state, reason, "", LONG_AGO)


async def recalled(bus: Bus, *results: ActionResult) -> Brakes:
    """Brakes that allow one run an hour, after what was written before their start."""
    await ensure_streams(bus)
    for each in results:
        await publish_result(bus, each)
    brakes = Brakes(Limits(runs_per_hour=1))
    await recall(bus, brakes, lambda namespace, name: 8)
    return brakes


async def test_what_was_ended_before_the_start_counts_for_an_hour_and_once(bus: Bus) -> None:
    brakes = await recalled(
        bus,
        result("a", ActionState.IN_PROGRESS, "Ending"),
        result("a", ActionState.DONE, "Suspended"),
    )

    now = time.monotonic()
    assert brakes.objection(8, 100, now) == ("Brake", "1 runs were ended in the last hour; 1 are allowed")
    assert brakes.objection(8, 100, now + 3500) is not None
    assert brakes.objection(8, 100, now + 3601) is None


@pytest.mark.parametrize(("state", "reason"), [(ActionState.REFUSED, "JobEnded"), (ActionState.WAITING, "AuditSwitch")])
async def test_what_was_begun_and_came_to_nothing_does_not_count(bus: Bus, state: ActionState, reason: str) -> None:
    brakes = await recalled(bus, result("a", ActionState.IN_PROGRESS, "Ending"), result("a", state, reason))

    assert brakes.objection(8, 100, time.monotonic()) is None
