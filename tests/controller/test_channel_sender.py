"""Which channels of the cluster a message goes to."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.policies.runs import facts

from trainwarden.controller.channel_lists import Channel
from trainwarden.controller.channel_sender import chosen
from trainwarden.policies.decision import Decision, Evidence, Mode, PolicyRef, RunRef, Severity, Verdict
from trainwarden.policies.notice import Notice

NOW = datetime(2026, 5, 1, tzinfo=UTC)


def notice(*channels: str, severity: Severity = Severity.WARNING) -> Notice:
    decision = Decision(
        id="d",
        time=NOW,
        run=RunRef(namespace="team-a", job="llama", uid="u", attempt="a"),
        policy=PolicyRef("TrainingPolicy", "team-a", "guard", "p", 1, Mode.ENFORCE),
        rule="bad",
        verdict=Verdict.FIRING,
        severity=severity,
        reason="ConditionHeld",
        message="it is bad",
        evidence=Evidence(),
    )
    return Notice(id="n", incident="i", time=NOW, decision=decision, channels=channels)


def channel(name: str, namespace: str = "team-a", **more: Any) -> Channel:
    return Channel(name, namespace, ("json://127.0.0.1",), **more)


def names(channels: list[Channel], told: Notice, **changes: Any) -> list[str]:
    return [f"{each.namespace}/{each.name}" for each in chosen(channels, told, facts(**changes))]


def test_a_name_means_the_namespaces_own_channel_before_the_clusters() -> None:
    channels = [channel("alerts"), channel("alerts", ""), channel("alerts", "team-b"), channel("pager", "")]

    assert names(channels, notice("alerts", "pager")) == ["team-a/alerts", "/pager"]


def test_a_message_without_names_goes_to_the_default_channels() -> None:
    channels = [
        channel("a", default=True),
        channel("b"),
        channel("c", "", default=True),
        channel("d", "team-b", default=True),
    ]

    assert names(channels, notice()) == ["team-a/a", "/c"]


@pytest.mark.parametrize(("severity", "reached"), [(Severity.INFO, []), (Severity.CRITICAL, ["team-a/a"])])
def test_less_severe_messages_are_left_out(severity: Severity, reached: list[str]) -> None:
    assert names([channel("a", minimum_severity=Severity.WARNING)], notice("a", severity=severity)) == reached


def test_selectors_pick_jobs_and_namespaces() -> None:
    production = {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["prod"]}]}
    channels = [
        channel("jobs", selector=production, default=True),
        channel("spaces", "", namespace_selector={"matchLabels": {"owner": "a"}}, default=True),
    ]

    assert names(channels, notice(), labels={"tier": "prod"}, namespace_labels={}) == ["team-a/jobs"]
    assert names(channels, notice(), labels={}, namespace_labels={"owner": "a"}) == ["/spaces"]
    assert chosen(channels, notice(), None) == []
