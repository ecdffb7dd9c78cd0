"""What was expected beside what was found, and the failures that follow."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from trainwarden.policies.compiling import CompiledPolicy, CompiledRule
from trainwarden.policies.decision import Value, Verdict
from trainwarden.policies.documents import close
from trainwarden.policies.durations import duration_text
from trainwarden.policies.unittests.models import Expectation
from trainwarden.policies.unittests.replay import Replay
from trainwarden.policies.unittests.sight import Sight, decisions_of, sight

__all__ = ["TOLERANCE", "Mismatch", "Watch"]

TOLERANCE = 1e-3
"""Numbers this close, relative to their size, are equal."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One thing that is not as expected."""

    key: str  # of the expectation
    when: str  # "at 45m", "from 0s to 3h"
    expected: str
    found: str
    reason: str  # what the rule says
    step: int | None
    values: Mapping[str, Value]


@dataclass
class Watch:
    """One expectation, followed through a replay."""

    expectation: Expectation
    policy: CompiledPolicy
    rule: CompiledRule
    length: timedelta  # of the test

    def __post_init__(self) -> None:
        self.mismatches: list[Mismatch] = []
        expected = self.expectation
        self._from = timedelta(0) if expected.at is not None else expected.from_ or timedelta(0)
        self.until = expected.at if expected.at is not None else expected.to if expected.to is not None else self.length
        self._throughout = expected.at is None and (expected.when is not None or expected.verdict is not None)
        self._failed: set[str] = set()

    @property
    def name(self) -> str:
        """The rule, as people call it."""
        return f"{self.policy.ref.name}/{self.rule.spec.name}"

    @property
    def moments(self) -> tuple[timedelta, ...]:
        """When the run is to be looked at."""
        return (self._from, self.until)

    def looked(self, replay: Replay) -> None:
        """After each look."""
        passed = replay.now - replay.plan.start
        if not self._throughout or not self._from <= passed <= self.until:
            return
        seen = sight(replay, self.policy, self.rule)
        for key, expected, found in self._states(seen):
            if key not in self._failed:
                self._failed.add(key)
                self._add(key, f"at {duration_text(passed)}", expected, found, seen)

    def reached(self, moment: timedelta, replay: Replay) -> None:
        """In a moment, when all has been decided in it."""
        if moment != self.until:
            return
        expected = self.expectation
        seen = sight(replay, self.policy, self.rule)
        where = f"at {duration_text(moment)}"
        if expected.at is None:
            where = f"from {duration_text(self._from)} to {duration_text(moment)}"
        found = [*self._counted(replay)]
        if expected.at is not None:
            found += [*self._states(seen), *self._looks(seen)]
        for key, wanted, got in found:
            self._add(key, where, wanted, got, seen)

    def _add(self, key: str, when: str, expected: str, found: str, seen: Sight) -> None:
        reason = seen.reason
        if not reason and seen.newest is not None:
            reason = f"{seen.newest.reason}: {seen.newest.message}"
        reason = reason or seen.message
        if seen.held is not None:
            reason += f" (it has held for {duration_text(seen.held)} of {duration_text(self.rule.spec.for_)})"
        self.mismatches.append(Mismatch(key, when, expected, found, reason, seen.step, seen.values))

    def _states(self, seen: Sight) -> Iterator[tuple[str, str, str]]:
        expected = self.expectation
        if expected.when is not None and (expected.when != seen.when or not seen.selected):
            yield "when", expected.when, seen.when if seen.selected else "not asked"
        if expected.verdict is not None and expected.verdict is not seen.verdict:
            quiet = expected.verdict is Verdict.INACTIVE and seen.verdict is Verdict.RESOLVED
            if not quiet:
                yield "verdict", expected.verdict.value, seen.verdict.value

    def _looks(self, seen: Sight) -> Iterator[tuple[str, str, str]]:
        expected = self.expectation
        if expected.selected is not None and expected.selected is not seen.selected:
            yield "selected", str(expected.selected).lower(), str(seen.selected).lower()
        if expected.reason is not None and not (seen.reason and _like(expected.reason, seen.reason)):
            yield "reason", expected.reason, seen.reason or f"none: the condition is {seen.when}"
        if expected.message is not None and not _like(expected.message, seen.message):
            yield "message", expected.message, seen.message
        if expected.actions is not None and not _same_actions(expected.actions, seen.actions):
            yield "actions", _listed(expected.actions), _listed(seen.actions)
        for name, value in (expected.values or {}).items():
            if name not in seen.values:
                near = close(name, list(seen.values)) or f"there are {', '.join(seen.values) or 'none'}"
                yield "values", f"{name} = {shown(value)}", f"no {name}; {near}"
            elif not _equal(value, seen.values[name]):
                yield "values", f"{name} = {shown(value)}", f"{name} = {shown(seen.values[name])}"

    def _counted(self, replay: Replay) -> Iterator[tuple[str, str, str]]:
        expected, start = self.expectation, replay.plan.start
        begin, end = start + self._from, start + self.until
        for key, count, verdict in (
            ("fires", expected.fires, Verdict.FIRING),
            ("resolves", expected.resolves, Verdict.RESOLVED),
        ):
            if count is None:
                continue
            times = [
                each.time
                for each in decisions_of(replay, self.policy, self.rule)
                if each.action is None and each.verdict is verdict and begin <= each.time <= end
            ]
            if len(times) != count:
                yield key, str(count), f"{len(times)}{_at(times, start)}"
        if expected.told is not None:
            told = [
                each.decision.message
                for each in replay.notices
                if each.decision.policy.uid == self.policy.uid
                and each.decision.rule == self.rule.spec.name
                and begin <= each.time <= end
            ]
            same = len(told) == len(expected.told)
            if not same or not all(_like(*pair) for pair in zip(expected.told, told, strict=True)):
                yield "told", _listed(expected.told), _listed(told)


def _at(times: Sequence[datetime], start: datetime) -> str:
    return f" (at {', '.join(duration_text(time - start) for time in times)})" if times else ""


def _like(pattern: str, text: str) -> bool:
    """Whether a text is as expected; * stands for anything."""
    return re.fullmatch(".*".join(map(re.escape, pattern.strip().split("*"))), text, re.DOTALL) is not None


def _same_actions(expected: Sequence[str], found: Sequence[str]) -> bool:
    """Type and state, and the reason where one is expected."""
    if len(expected) != len(found):
        return False
    return all(each in (got, got.rpartition(" ")[0]) for each, got in zip(expected, found, strict=True))


def _equal(expected: object, found: Value) -> bool:
    if isinstance(expected, bool) or isinstance(found, bool):
        return expected is found
    if isinstance(expected, int | float) and isinstance(found, int | float):
        return math.isclose(expected, found, rel_tol=TOLERANCE, abs_tol=1e-12)
    if isinstance(expected, float) and math.isnan(expected):
        return found == "NaN"
    return isinstance(expected, str) and isinstance(found, str) and _like(expected, found)


def _listed(texts: Sequence[str]) -> str:
    return ", ".join(texts) or "none"


def shown(value: object) -> str:
    """A value in a line of text."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else str(value)
