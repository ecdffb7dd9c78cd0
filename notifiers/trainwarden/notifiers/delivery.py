"""Deliver notices to channels: each target has its own threads and retries, so a dead hook holds up no other."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from trainwarden.notifiers.apprise_channel import AppriseNotifier
from trainwarden.notifiers.compose import Message, compose
from trainwarden.notifiers.lane import Lane, Turn
from trainwarden.notifiers.protocol import Attempt, Ending, Notifier
from trainwarden.policies.notice import Notice

__all__ = ["DEFAULT", "DeliveryResult", "Dispatcher", "Retries"]

log = logging.getLogger(__name__)

DEFAULT = "default"
"""Name of the channel for notices that name none."""

_REMEMBERED = 4096  # notices whose delivered targets are known, so that a redelivery tells no one twice
_CLOSED = "the dispatcher was closed before an answer"


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """What became of one notice at one target. Holds nothing secret."""

    channel: str
    target: str  # `slack #1`; empty when the channel is not known
    state: Literal["delivered", "failed"]
    attempts: int
    reason: str = ""  # why it failed


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a target is tried. Waits double from `first` to `longest`, with a quarter of jitter."""

    attempts: int = 5
    first: float = 1.0  # seconds
    longest: float = 60.0
    limited: float = 30.0  # at least, after HTTP 429: Apprise does not hand on Retry-After
    max_age: float = 600.0  # seconds after the notice came; no attempt begins later

    def wait(self, attempt: Attempt, done: int) -> float:
        """Seconds to wait after the `done`th attempt, done >= 1."""
        base = min(self.longest, self.first * 2.0 ** (done - 1))
        base = max(base, self.limited) if attempt.ending is Ending.LIMITED else base
        return base * random.uniform(0.75, 1.25)  # noqa: S311 - jitter


class Dispatcher:
    """Sends notices to named channels.

    Args:
        channels: Apprise URLs by name of channel; `default` is for notices that name none.
        retries: When to try again.
        timeout: Seconds that an attempt's answer is waited for.
        public_only: Refuse targets on addresses that are not public.
        notifier: Makes the target for a URL; takes the URL and its safe name.

    Raises:
        ChannelUrlError: A URL can't be used.
    """

    def __init__(
        self,
        channels: Mapping[str, Sequence[str]],
        *,
        retries: Retries | None = None,
        timeout: float = 15.0,
        public_only: bool = False,
        notifier: Callable[[str, str], Notifier] | None = None,
    ) -> None:
        def make(url: str, target: str) -> Notifier:
            return AppriseNotifier(url, target=target, public_only=public_only)

        self._retries = retries or Retries()
        self._lanes: dict[str, list[Lane]] = {}
        for name, urls in channels.items():
            lanes = self._lanes.setdefault(name, [])
            for index, url in enumerate(urls, 1):
                scheme = url.partition("://")[0].lower()
                target = f"{scheme if scheme.isalnum() else '?'} #{index}"
                lanes.append(Lane(name, (notifier or make)(url, target), timeout=timeout))
        self._delivered: OrderedDict[str, dict[tuple[str, str], DeliveryResult]] = OrderedDict()
        self._running: dict[str, asyncio.Task[tuple[DeliveryResult, ...]]] = {}
        self._ways: set[asyncio.Task[DeliveryResult]] = set()  # one target each
        self._closed = False

    async def send(self, notice: Notice) -> tuple[DeliveryResult, ...]:
        """Send to each target of the notice's channels; one result for each, in the order of channels.

        A repeated id goes only to targets that it has not reached. Cancelling the caller stops no delivery that has
        begun: send the same notice again to learn its result. Never raises for a delivery that failed.
        """
        if self._closed:
            return (DeliveryResult(DEFAULT, "", "failed", 0, "the dispatcher is closed"),)
        task = self._running.get(notice.id)
        if task is None:
            task = asyncio.create_task(self._send(notice), name=f"notice {notice.id}")
            self._running[notice.id] = task
            task.add_done_callback(lambda _: self._running.pop(notice.id, None))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise  # the caller is cancelled; only close() cancels the delivery
            names = tuple(dict.fromkeys(notice.channels or (DEFAULT,)))
            lanes = [lane for name in names for lane in self._lanes.get(name, ())]
            return tuple(DeliveryResult(lane.channel, lane.notifier.target, "failed", 0, _CLOSED) for lane in lanes)

    async def close(self, timeout: float = 2.0) -> None:
        """Give up what is under way, with a result that says so. Returns within `timeout` seconds.

        An attempt under way goes on in its thread; it holds up no exit of the process.
        """
        self._closed = True
        tasks = list(self._running.values())
        for way in self._ways:
            way.cancel()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=timeout)
            for task in late:  # its message is being made
                task.cancel()

    async def _send(self, notice: Notice) -> tuple[DeliveryResult, ...]:
        began = time.monotonic()
        names = tuple(dict.fromkeys(notice.channels or (DEFAULT,)))
        lanes = [lane for name in names for lane in self._lanes.get(name, ())]
        turns = [lane.line_up(notice.incident) for lane in lanes]  # at once: drawing a picture takes its time
        try:
            return await self._to_lanes(notice, names, lanes, turns, began)
        finally:
            for lane, turn in zip(lanes, turns, strict=True):
                lane.leave(notice.incident, turn)

    async def _to_lanes(
        self, notice: Notice, names: Sequence[str], lanes: Sequence[Lane], turns: Sequence[Turn], began: float
    ) -> tuple[DeliveryResult, ...]:
        failed = [self._unknown(name) for name in names if not self._lanes.get(name)]
        for result in failed:
            self._warn("delivery failed", notice, result.channel, result.target, result.reason, 0)
        before = self._delivered.get(notice.id, {})
        message: Message | None = None
        if any((lane.channel, lane.notifier.target) not in before for lane in lanes):
            try:
                message = await asyncio.to_thread(compose, notice)
            except Exception as error:
                reason = f"the message could not be made: {type(error).__name__}"
                log.exception("message could not be made notice=%s", notice.id)
                return tuple(DeliveryResult(lane.channel, lane.notifier.target, "failed", 0, reason) for lane in lanes)
        ways = [
            asyncio.create_task(self._one(lane, turn, notice, message, before, began))
            for lane, turn in zip(lanes, turns, strict=True)
        ]
        self._ways.update(ways)
        try:
            results = await asyncio.gather(*ways)
        finally:
            self._ways.difference_update(ways)
        reached = {(r.channel, r.target): r for r in results if r.state == "delivered"}
        if reached:
            self._delivered[notice.id] = reached
            self._delivered.move_to_end(notice.id)
            while len(self._delivered) > _REMEMBERED:
                self._delivered.popitem(last=False)
        return (*results, *failed)

    async def _one(
        self,
        lane: Lane,
        turn: Turn,
        notice: Notice,
        message: Message | None,
        before: Mapping[tuple[str, str], DeliveryResult],
        began: float,
    ) -> DeliveryResult:
        told: list[str] = []
        try:
            if turn.before is not None:
                await turn.before.wait()
            return await self._tried(lane, notice, message, before, began, told)
        except asyncio.CancelledError:
            if not self._closed:
                raise
            reason = f"{told[-1]}; no time was left to try again" if told else _CLOSED
            self._warn("delivery failed", notice, lane.channel, lane.notifier.target, reason, len(told))
            return DeliveryResult(lane.channel, lane.notifier.target, "failed", len(told), reason)
        finally:
            lane.forget(notice.id)
            lane.leave(notice.incident, turn)

    async def _tried(
        self,
        lane: Lane,
        notice: Notice,
        message: Message | None,
        before: Mapping[tuple[str, str], DeliveryResult],
        began: float,
        told: list[str],
    ) -> DeliveryResult:
        """Try until it is through or given up; puts why each attempt failed into `told`."""
        target, limits = lane.notifier.target, self._retries
        if (known := before.get((lane.channel, target))) is not None or message is None:
            return known or DeliveryResult(lane.channel, target, "failed", 0, "nothing to send")
        while True:
            attempt = await lane.attempt(notice.id, message)
            done = len(told) + 1
            if attempt.ending is Ending.DELIVERED:
                return DeliveryResult(lane.channel, target, "delivered", done)
            wait = limits.wait(attempt, done)
            late = time.monotonic() - began + wait > limits.max_age
            if attempt.ending is Ending.PERMANENT or done >= limits.attempts or late:
                self._warn("delivery failed", notice, lane.channel, target, attempt.reason, done)
                return DeliveryResult(lane.channel, target, "failed", done, attempt.reason)
            if attempt.reason not in told[-1:]:
                self._warn("delivery failed, will retry", notice, lane.channel, target, attempt.reason, done, wait)
            told.append(attempt.reason)
            await asyncio.sleep(wait)

    def _unknown(self, name: str) -> DeliveryResult:
        known = ", ".join(sorted(name for name, lanes in self._lanes.items() if lanes)) or "none"
        return DeliveryResult(name, "", "failed", 0, f"unknown channel {name!r}; known are {known}")

    @staticmethod
    def _warn(
        text: str, notice: Notice, channel: str, target: str, reason: str, attempt: int, retry: float | None = None
    ) -> None:
        run = notice.decision.run
        more = f" retry_in_s={retry:.1f}" if retry is not None else ""
        log.warning(
            "%s policy=%s run=%s/%s channel=%s target=%r reason=%r attempt=%d%s",
            *(text, notice.decision.policy, run.namespace, run.job, channel, target, reason, attempt, more),
        )
