"""The streams that the roles meet on, and their bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nats.errors import Error as NatsError

from trainwarden.controller.bus import ApiError, Bus, BusError
from trainwarden.controller.pulse import PULSE
from trainwarden.controller.subjects import PARTITIONS

__all__ = ["LOCAL", "StreamError", "StreamLimits", "ensure_streams"]

_NOT_FOUND = 10059
_MIB = 1024 * 1024


class StreamError(BusError):
    """A stream can't be made as it must be; somebody must act."""


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """How much is kept. Seconds, bytes, messages."""

    report_age: float = 7 * 86_400.0
    reports_per_job: int = 100_000
    report_bytes: int = 4096 * _MIB
    decision_bytes: int = 1024 * _MIB
    other_bytes: int = 256 * _MIB
    replicas: int = 1


LOCAL = StreamLimits(
    report_age=30 * 86_400.0, report_bytes=512 * _MIB, decision_bytes=128 * _MIB, other_bytes=64 * _MIB
)
"""Bounds for one machine."""


def _streams(limits: StreamLimits) -> list[dict[str, Any]]:
    def stream(name: str, *subjects: str, **more: Any) -> dict[str, Any]:
        return {
            "name": name,
            "subjects": list(subjects),
            "storage": "file",
            "retention": "limits",
            "discard": "old",
            "num_replicas": limits.replicas,
            "max_bytes": limits.other_bytes,
            "duplicate_window": 120_000_000_000,
            "max_msg_size": _MIB,
            "allow_direct": True,
            **more,
        }

    day = 86_400_000_000_000
    transform = {
        "src": "tw.report.*.*",
        "dest": f"tw.p.{{{{partition({PARTITIONS},1,2)}}}}.report.{{{{wildcard(1)}}}}.{{{{wildcard(2)}}}}",
    }
    return [
        stream(
            "TW_REPORTS",
            "tw.report.*.*",
            PULSE,
            subject_transform=transform,
            max_age=int(limits.report_age * 1e9),
            max_msgs_per_subject=limits.reports_per_job,
            max_bytes=limits.report_bytes,
            max_msg_size=80 * 1024,
        ),
        stream("TW_REJECTED", "tw.rejected.*.*", max_msgs_per_subject=100, max_age=7 * day),
        stream("TW_FACTS", "tw.facts.*.*", max_msgs_per_subject=1),
        stream("TW_POLICIES", "tw.policy.*.*", max_msgs_per_subject=1),
        stream("TW_DECISIONS", "tw.decision.*.*", max_bytes=limits.decision_bytes, duplicate_window=3_600_000_000_000),
        stream("TW_ACTIONS", "tw.action.*.*", max_age=30 * day, duplicate_window=3_600_000_000_000),
        stream("TW_RESULTS", "tw.result.*.*", max_age=30 * day, duplicate_window=3_600_000_000_000),
        stream("TW_NOTICES", "tw.notice.*.*", max_age=30 * day, duplicate_window=3_600_000_000_000),
        stream("TW_STATE", "tw.state.*.*", max_msgs_per_subject=1),
    ]


async def ensure_streams(bus: Bus, limits: StreamLimits | None = None) -> None:
    """Make the streams, or bring those that are there to these bounds.

    Raises:
        StreamError: JetStream is off, has no room, or a stream of that name can't be changed into ours.
    """
    for config in _streams(limits or StreamLimits()):
        try:
            if not await _updated(bus, config):
                await _create(bus, config)
        except (TimeoutError, NatsError, OSError) as error:
            raise StreamError("JetStream does not answer; start nats-server with JetStream on (-js)") from error


async def _updated(bus: Bus, config: dict[str, Any]) -> bool:
    """Bring a stream to its bounds; False when there is none.

    This comes before making it: a server whose room is taken by the stream itself has none to make it anew.
    """
    name = config["name"]
    try:
        await bus.request(f"$JS.API.STREAM.UPDATE.{name}", config)
    except ApiError as error:
        if error.code == _NOT_FOUND:
            return False
        raise StreamError(
            f"stream {name} is there and can't be changed: {error.description}; remove or rename it"
        ) from error
    return True


async def _create(bus: Bus, config: dict[str, Any]) -> None:
    name = config["name"]
    try:
        await bus.request(f"$JS.API.STREAM.CREATE.{name}", config)
    except ApiError as error:
        if not await _updated(bus, config):  # else another role was quicker
            raise StreamError(
                f"stream {name}: {error.description}; give JetStream room, or remove the stream"
            ) from error
