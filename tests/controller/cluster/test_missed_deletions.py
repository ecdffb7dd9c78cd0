"""What the engine is told of policies is what is there, whatever was missed or lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.controller.engines import HIGH, policy

from trainwarden.controller.bus import Bus, Entry, Reading
from trainwarden.controller.cancelling import end_all
from trainwarden.controller.cluster.policies import PolicyKinds
from trainwarden.controller.cluster.resources import TrainingPolicy
from trainwarden.controller.publishing import publish_policy
from trainwarden.policies.expressions.engines import engine


class Listing:
    """An API server in which policies vanish without a word, which a real one only does when a watch breaks."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)

    async def list(self, kind: Any, **_: Any) -> AsyncIterator[dict[str, Any]]:
        for name in self.names if kind is TrainingPolicy else ():
            plain = policy(HIGH, name=name).model_dump(mode="json", by_alias=True, exclude_defaults=True)
            plain |= {"apiVersion": "trainwarden.dev/v1alpha1", "kind": "TrainingPolicy"}
            yield {**plain, "metadata": {"name": name, "namespace": "team-a", "uid": name, "generation": 1}}


async def told(bus: Bus) -> list[tuple[str, bool]]:
    """All that was ever told of policies: name, and whether it is there."""
    seen: list[tuple[str, bool]] = []

    def take(entry: Entry) -> None:
        seen.append((entry.subject.rpartition(".")[2], bool(entry.data)))

    reading = Reading(bus, "TW_POLICIES", take=take, newest_only=True)
    task = asyncio.create_task(reading.run())
    try:
        await reading.caught_up.wait()
    finally:
        await end_all([task])
    return sorted(seen)


async def test_a_policy_that_vanished_is_taken_back_once_and_the_others_stay(bus: Bus) -> None:
    for name in ("kept", "vanished"):
        await publish_policy(bus, policy(HIGH, name=name))
    kinds = PolicyKinds(bus, engine())
    listing: Any = Listing("kept")

    await kinds.withdraw_missing(listing)
    assert await told(bus) == [("kept", True), ("vanished", False)]
    before = (await bus.request("$JS.API.STREAM.INFO.TW_POLICIES", None))["state"]["last_seq"]
    await kinds.withdraw_missing(listing)

    assert (await bus.request("$JS.API.STREAM.INFO.TW_POLICIES", None))["state"]["last_seq"] == before


async def test_policies_that_the_streams_have_lost_are_told_again(bus: Bus) -> None:
    kinds = PolicyKinds(bus, engine())
    listing: Any = Listing("kept", "lost")
    await kinds.withdraw_missing(listing)
    await bus.request("$JS.API.STREAM.PURGE.TW_POLICIES", None)
    assert await told(bus) == []

    await kinds.withdraw_missing(listing)

    assert await told(bus) == [("kept", True), ("lost", True)]


async def test_a_policy_that_is_made_during_the_comparison_stays(bus: Bus) -> None:
    kinds = PolicyKinds(bus, engine())

    class Slow(Listing):
        async def list(self, kind: Any, **more: Any) -> AsyncIterator[dict[str, Any]]:
            async for each in super().list(kind, **more):
                yield each
            if kind is TrainingPolicy:  # listed, and only then made
                await publish_policy(bus, policy(HIGH, name="new"))

    slow: Any = Slow()
    await kinds.withdraw_missing(slow)

    assert await told(bus) == [("new", True)]


@pytest.mark.parametrize(("audit", "mode"), [(False, "Enforce"), (True, "Audit")])
async def test_under_the_switch_of_the_cluster_a_policy_is_told_to_be_in_audit(
    bus: Bus, audit: bool, mode: str
) -> None:
    """The policy itself is in Enforce."""
    kinds = PolicyKinds(bus, engine(), audit=audit)
    listing: Any = Listing("kept")
    await kinds.withdraw_missing(listing)
    modes: list[str] = []

    def take(entry: Entry) -> None:
        modes.append(json.loads(entry.data)["spec"].get("mode", "Audit"))

    reading = Reading(bus, "TW_POLICIES", take=take, newest_only=True)
    task = asyncio.create_task(reading.run())
    await reading.caught_up.wait()
    await end_all([task])

    assert modes == [mode]
