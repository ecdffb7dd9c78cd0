"""Run one test that is ready, and say what failed and what happened."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from trainwarden.policies.decision import Decision
from trainwarden.policies.documents import Place
from trainwarden.policies.unittests.comparing import Mismatch
from trainwarden.policies.unittests.reading import Ready
from trainwarden.policies.unittests.replay import Replay

__all__ = ["Failure", "Happening", "Outcome", "run_test"]


@dataclass(frozen=True, slots=True)
class Failure:
    """One expectation that was not met."""

    place: Place  # of its key
    rule: str  # policy/rule
    mismatch: Mismatch


@dataclass(frozen=True, slots=True)
class Happening:
    """One decision, or one message to people, on the way."""

    at: timedelta
    rule: str
    what: str  # Firing, Suspend WouldAct Audit, told
    message: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one test."""

    name: str
    place: Place
    failures: tuple[Failure, ...]  # in order of the file
    happenings: tuple[Happening, ...]  # in order of time

    @property
    def passed(self) -> bool:
        """Whether all was as expected."""
        return not self.failures


def run_test(ready: Ready) -> Outcome:
    """Run a test. The same test gives the same outcome."""
    replay = Replay(ready.plan, ready.policies)
    watches = ready.watches

    def looked() -> None:
        for watch in watches:
            watch.looked(replay)

    def reached(moment: timedelta) -> None:
        for watch in watches:
            watch.reached(moment, replay)

    replay.go(sorted({moment for watch in watches for moment in watch.moments}), looked, reached)
    found = [
        Failure(places.get(mismatch.key, places[""]), watch.name, mismatch)
        for watch, places in zip(watches, ready.places, strict=True)
        for mismatch in watch.mismatches
    ]
    failures = tuple(sorted(found, key=lambda each: (each.place.line, each.place.column)))
    return Outcome(ready.test.name, ready.place, failures, tuple(_happenings(replay)))


def _happenings(replay: Replay) -> list[Happening]:
    start = replay.plan.start
    told = [(each.time, each.decision, "told") for each in replay.notices]
    decided = [(each.time, each, _what(each)) for each in replay.decisions]
    found: list[tuple[datetime, Decision, str]] = sorted([*decided, *told], key=lambda each: each[0])
    return [Happening(time - start, f"{d.policy.name}/{d.rule}", what, d.message) for time, d, what in found]


def _what(decision: Decision) -> str:
    if decision.action is not None and decision.action_state is not None:
        return f"{decision.action.type.value} {decision.action_state.value} {decision.reason}"
    return decision.verdict.value
