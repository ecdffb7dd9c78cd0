"""What the operator answers to a notifier that asks for channels: secret, so in memory and on the connection alone."""

from __future__ import annotations

from typing import Any

import msgspec

from trainwarden.policies.decision import Severity

__all__ = ["CHANNELS_CHANGED", "CHANNELS_SUBJECT", "Channel", "ChannelList"]

CHANNELS_SUBJECT = "tw.channels"
"""Request: all channels, please."""
CHANNELS_CHANGED = "tw.channels.changed"
"""Told when asking again is worth it."""


class Channel(msgspec.Struct, frozen=True, rename="camel"):
    """One channel that can be used."""

    name: str
    namespace: str  # empty for a ClusterNotificationChannel
    urls: tuple[str, ...]
    minimum_severity: Severity = Severity.INFO
    selector: dict[str, Any] = {}  # of TrainJobs, as written
    namespace_selector: dict[str, Any] = {}  # of namespaces, as written
    default: bool = False


class ChannelList(msgspec.Struct, frozen=True, rename="camel"):
    """All of them."""

    channels: tuple[Channel, ...]
