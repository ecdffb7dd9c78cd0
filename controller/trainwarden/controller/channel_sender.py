"""Sends notices to the channels that stand in the cluster: asks the operator for them, and picks those of a notice."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

import msgspec
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from trainwarden.controller.bus import Bus, Entry, Reading
from trainwarden.controller.cancelling import end_all
from trainwarden.controller.channel_lists import CHANNELS_CHANGED, CHANNELS_SUBJECT, Channel, ChannelList
from trainwarden.controller.payloads import decode
from trainwarden.notifiers.delivery import DeliveryResult, Dispatcher
from trainwarden.policies.facts import RunFacts
from trainwarden.policies.models import LabelSelector
from trainwarden.policies.notice import Notice
from trainwarden.policies.selecting import holds

__all__ = ["ChannelSender", "chosen"]

log = logging.getLogger(__name__)

_ASK_EVERY = 60.0  # seconds
_ASK_AGAIN = 3.0  # when nobody has answered yet


def chosen(channels: Iterable[Channel], notice: Notice, facts: RunFacts | None) -> list[Channel]:
    """Channels that a notice goes to. Pure.

    A name means the channel of the run's namespace, or else the cluster's; no name means the default ones.

    Args:
        channels: All.
        notice: The notice.
        facts: What is known of its TrainJob; a channel that asks for labels needs them.
    """
    run, severity = notice.decision.run, notice.decision.severity
    near = [each for each in channels if each.namespace in (run.namespace, "")]
    if notice.channels:
        named = {}
        for each in sorted(near, key=lambda channel: channel.namespace):  # the namespace's own comes last and wins
            named[each.name] = each
        near = [named[name] for name in notice.channels if name in named]
    else:
        near = [each for each in near if each.default]
    return [each for each in near if each.minimum_severity.rank <= severity.rank and _picks(each, facts)]


class ChannelSender:
    """Implements the notifier's Sender.

    Args:
        bus: Where the operator is asked, and labels of jobs are read.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._channels: tuple[Channel, ...] = ()
        self._dispatcher = Dispatcher({})
        self._facts: dict[tuple[str, str], RunFacts] = {}
        self._changed = asyncio.Event()
        self.known = asyncio.Event()  # the operator has answered

    async def run(self) -> None:
        """Keep the channels true until cancelled."""
        facts = Reading(self._bus, "TW_FACTS", take=self._take_facts, newest_only=True)
        tasks = [asyncio.create_task(facts.run())]
        client = await self._bus.client()

        async def changed(_: Msg) -> None:
            self._changed.set()

        subscription = await client.subscribe(CHANNELS_CHANGED, cb=changed)
        try:
            while True:
                self._changed.clear()
                await self._ask()
                try:
                    async with asyncio.timeout(_ASK_EVERY if self.known.is_set() else _ASK_AGAIN):
                        await self._changed.wait()
                except TimeoutError:
                    continue
        finally:
            await end_all(tasks)
            await subscription.unsubscribe()

    async def send(self, notice: Notice) -> tuple[DeliveryResult, ...]:
        """Deliver to the notice's channels; a name without a channel is a failure that says so."""
        await self.known.wait()
        run = notice.decision.run
        to = chosen(self._channels, notice, self._facts.get((run.namespace, run.job)))
        names = {each.name for each in self._channels if each.namespace in (run.namespace, "")}
        failed = tuple(
            DeliveryResult(name, name, "failed", 0, "there is no usable channel of this name; see its Ready condition")
            for name in notice.channels
            if name not in names
        )
        if not to:
            return failed
        keys = tuple(_key(each) for each in to)
        return failed + await self._dispatcher.send(msgspec.structs.replace(notice, channels=keys))

    async def _ask(self) -> None:
        try:
            client = await self._bus.client()
            answer = await client.request(CHANNELS_SUBJECT, b"", timeout=3)
            listed = decode(answer.data, ChannelList).channels
        except (NatsError, OSError, TimeoutError, msgspec.DecodeError) as error:
            log.debug("channels are not known reason=%s", type(error).__name__)
            return
        if listed != self._channels:
            self._channels = listed
            self._dispatcher = Dispatcher({_key(each): each.urls for each in listed})
            log.info("channels are known number=%d", len(listed))
        self.known.set()

    def _take_facts(self, entry: Entry) -> None:
        facts = decode(entry.data, RunFacts)
        self._facts[facts.namespace, facts.job] = facts


def _picks(channel: Channel, facts: RunFacts | None) -> bool:
    labels, namespace_labels = (facts.labels, facts.namespace_labels) if facts is not None else ({}, {})
    jobs = LabelSelector.model_validate(channel.selector)
    namespaces = LabelSelector.model_validate(channel.namespace_selector)
    return holds(jobs, labels) and holds(namespaces, namespace_labels)


def _key(channel: Channel) -> str:
    return f"{channel.namespace}/{channel.name}"
