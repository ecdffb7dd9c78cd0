"""The state machine of one rule."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.policies.judging import moment

from trainwarden.policies.decision import Verdict
from trainwarden.policies.memory import RuleState
from trainwarden.policies.models import Rule
from trainwarden.policies.rules import advance, stand_still


def rule(**fields: str) -> Rule:
    return Rule.model_validate({"name": "bad", "when": "true", **fields})


def walk(spec: Rule, evaluations: Sequence[tuple[float, bool | None]]) -> list[Verdict]:
    state = RuleState()
    return [advance(state, spec, value=value, now=moment(at)) for at, value in evaluations]


@pytest.mark.parametrize(
    ("held", "verdict"),
    [(0, Verdict.PENDING), (59.9, Verdict.PENDING), (60, Verdict.FIRING), (61, Verdict.FIRING)],
    ids=["first match", "just before", "exactly", "after"],
)
def test_for_counts_from_the_first_match_and_includes_its_last_second(held: float, verdict: Verdict) -> None:
    assert walk(rule(**{"for": "1m"}), [(0, True), (held, True)])[-1] is verdict


def test_a_rule_without_for_fires_at_once() -> None:
    assert walk(rule(), [(0, True)]) == [Verdict.FIRING]


def test_a_pending_rule_starts_anew_when_its_condition_is_false_in_between() -> None:
    assert walk(rule(**{"for": "1m"}), [(0, True), (50, False), (55, True), (114, True), (115, True)]) == [
        Verdict.PENDING, Verdict.INACTIVE, Verdict.PENDING, Verdict.PENDING, Verdict.FIRING,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("after", "verdict"),
    [(299, Verdict.FIRING), (300, Verdict.RESOLVED), (301, Verdict.RESOLVED)],
    ids=["just before", "exactly", "after"],
)
def test_keep_firing_for_counts_from_the_last_match(after: float, verdict: Verdict) -> None:
    assert walk(rule(keepFiringFor="5m"), [(0, True), (after, False)])[-1] is verdict


@pytest.mark.parametrize(
    ("fields", "kept"),
    [({}, 0), ({"for": "10m"}, 600), ({"for": "10m", "keepFiringFor": "0s"}, 0), ({"keepFiringFor": "1m"}, 60)],
)
def test_a_rule_that_waits_to_fire_waits_as_long_to_resolve_unless_told_otherwise(
    fields: dict[str, str], kept: int
) -> None:
    assert rule(**fields).keep_firing_for == timedelta(seconds=kept)


def test_a_match_within_keep_firing_for_is_the_same_episode() -> None:
    state, spec = RuleState(), rule(keepFiringFor="5m")

    for at, value in [(0, True), (100, False), (200, True), (450, False), (499, False)]:
        assert advance(state, spec, value=value, now=moment(at)) is Verdict.FIRING
    assert advance(state, spec, value=False, now=moment(500)) is Verdict.RESOLVED
    assert state.episode == 1


def test_unknown_time_does_not_count_as_held_and_does_not_reset() -> None:
    evaluations = [(0, True), (40, None), (1000, None), (1040, True), (1059, True), (1060, True)]

    assert walk(rule(**{"for": "1m"}), evaluations) == [
        Verdict.PENDING, Verdict.UNKNOWN, Verdict.UNKNOWN, Verdict.PENDING, Verdict.PENDING, Verdict.FIRING,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "verdict"),
    [("Hold", Verdict.UNKNOWN), ("False", Verdict.INACTIVE), ("True", Verdict.FIRING)],
)
def test_an_unknown_condition_is_what_on_unknown_says(policy: str, verdict: Verdict) -> None:
    assert walk(rule(onUnknown=policy), [(0, None)]) == [verdict]


def test_a_clock_that_steps_back_neither_fires_nor_resets() -> None:
    state, spec = RuleState(), rule(**{"for": "1m"})

    verdicts = [advance(state, spec, value=True, now=moment(at)) for at in (0, 50, -3600, 59, 60)]

    assert verdicts == [Verdict.PENDING] * 4 + [Verdict.FIRING]


steps = st.lists(st.tuples(st.integers(-20, 90), st.sampled_from([True, True, False, None])), min_size=1, max_size=60)


@given(steps=steps, for_=st.integers(0, 120))
def test_a_rule_never_fires_before_its_condition_was_true_for_long_enough(
    steps: list[tuple[int, bool | None]], for_: int
) -> None:
    state, spec, at = RuleState(), rule(**{"for": f"{for_}s"}), 0
    newest, first_true = -1000, None
    for passed, value in steps:
        at += passed
        newest = max(at, newest)
        was_firing = state.firing_since is not None
        verdict = advance(state, spec, value=value, now=moment(at))
        if value is False:
            first_true = None
        elif value and first_true is None:
            first_true = newest
        if verdict is Verdict.FIRING and not was_firing:
            assert value is True
            assert first_true is not None
            assert newest - first_true >= for_


@given(steps=steps, for_=st.integers(0, 60), keep=st.integers(0, 60))
def test_an_unknown_evaluation_never_changes_whether_a_rule_fires(
    steps: list[tuple[int, bool | None]], for_: int, keep: int
) -> None:
    state, spec, at = RuleState(), rule(**{"for": f"{for_}s", "keepFiringFor": f"{keep}s"}), 0
    for passed, value in steps:
        at += passed
        before, episode = state.firing_since, state.episode
        verdict = advance(state, spec, value=value, now=moment(at))
        if value is None:
            assert (state.firing_since, state.episode) == (before, episode)
            assert verdict is (Verdict.FIRING if before else Verdict.UNKNOWN)


@given(steps=steps, for_=st.integers(1, 120))
def test_as_if_unknown_time_had_been_cut_out(steps: list[tuple[int, bool | None]], for_: int) -> None:
    """A walk with unknown evaluations gives the verdicts of the walk in which their time did not pass."""
    spec = rule(**{"for": f"{for_}s", "keepFiringFor": "0s"})
    with_gaps, without = RuleState(), RuleState()
    at = cut = 0
    unknown_since: int | None = None
    for passed, value in steps:
        at += abs(passed)
        verdict = advance(with_gaps, spec, value=value, now=moment(at))
        if value is None:
            unknown_since = at if unknown_since is None else unknown_since
            continue
        if unknown_since is not None:
            cut += at - unknown_since
            unknown_since = None
        assert advance(without, spec, value=value, now=moment(at - cut)) is verdict


def test_durations_of_a_rule_are_timedeltas() -> None:
    assert rule(**{"for": "1h30m"}).for_ == timedelta(minutes=90)


@pytest.mark.parametrize("at", [5, 15], ids=["clock went back", "later"])
def test_standing_still_is_what_advance_does(at: int) -> None:
    states = RuleState(), RuleState()
    for state in states:
        advance(state, rule(), value=False, now=moment(10))

    stand_still(states[0], moment(at))
    advance(states[1], rule(), value=False, now=moment(at))

    assert states[0] == states[1]
