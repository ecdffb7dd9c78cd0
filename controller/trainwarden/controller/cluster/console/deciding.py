"""What was decided about a run and done, in order of time: from its status, and from Events that are kept. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from trainwarden.controller.cluster.console.reading import Object, items, moment, status_of, text
from trainwarden.policies.decision import ActionState

__all__ = ["Entry", "decisions"]

_STATES = sorted((state.value for state in ActionState), key=len, reverse=True)
_SAME = timedelta(seconds=5)  # an Event and the status tell of the same thing
_BEGINNING = datetime.min.replace(tzinfo=UTC)


class Entry(msgspec.Struct, frozen=True, rename="camel"):
    """One thing that was decided, or became of an action."""

    time: datetime | None
    rule: str
    """`policy/rule`."""
    what: str
    """A verdict such as Firing, or an action such as Suspend."""
    state: str
    """What became of the action; empty for a verdict."""
    message: str
    action: str = ""
    """Id of the action, where it is known."""


def decisions(run: Object, events: Sequence[Object]) -> list[Entry]:
    """All that is known, the oldest first.

    Args:
        run: The TrainingRun.
        events: Events about its TrainJob; those of others are passed over.
    """
    found: list[Entry] = []
    for rule in items(status_of(run), "rules"):
        name, verdict = f"{text(rule, 'policy')}/{text(rule, 'rule')}", text(rule, "verdict")
        if verdict in ("Firing", "Pending"):
            found.append(Entry(moment(rule, "since"), name, verdict, "", ""))
        found += [
            Entry(
                time=moment(action, "time"),
                rule=name,
                what=text(action, "type"),
                state=text(action, "state"),
                message=text(action, "message"),
                action=text(action, "id"),
            )
            for action in items(rule, "actions")
            if text(action, "state")
        ]
    for entry in [_entry(event) for event in events if _is_ours(event)]:
        twin = next((index for index, known in enumerate(found) if _same(known, entry)), None)
        if twin is None:
            found.append(entry)
        elif not found[twin].message:  # a verdict in the status has none
            found[twin] = msgspec.structs.replace(found[twin], message=entry.message)
    return sorted(found, key=lambda entry: entry.time or _BEGINNING)


def _is_ours(event: Object) -> bool:
    return (event.get("source") or {}).get("component") == "trainwarden"


def _entry(event: Object) -> Entry:
    reason = text(event, "reason")
    rule, colon, message = text(event, "message").partition(": ")
    if not colon:
        rule, message = "", rule
    state = next((each for each in _STATES if reason.endswith(each) and reason != each), "")
    time = moment(event, "lastTimestamp") or moment(event, "eventTime") or moment(event, "firstTimestamp")
    return Entry(time, rule, reason.removesuffix(state) if state else reason, state, message)


def _same(one: Entry, other: Entry) -> bool:
    if (one.rule, one.what, one.state) != (other.rule, other.what, other.state):
        return False
    return one.time is None or other.time is None or abs(one.time - other.time) <= _SAME
