"""The time at the NATS server, which stamps all input: one clock for reports, waits and ages."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import datetime

from nats.errors import Error as NatsError

from trainwarden.controller.bus import Bus, BusError

__all__ = ["ServerClock", "server_time"]

log = logging.getLogger(__name__)

_AGAIN = 1.0  # seconds between two tries to ask

_WINDOW = 10.0  # seconds after which an older sight of the server's clock counts no more
_STEP = 1.0  # seconds that the clock goes back before it counts as set back


class ServerClock:
    """Tells the server's Unix time from the stamps of its messages, whatever clock this machine has.

    A stamp is never later than the moment we see it, so the latest of some seconds is the nearest to the truth. It may
    be much earlier, as those of a replay are. Between messages the time goes on with the monotonic clock.

    Args:
        monotonic: Seconds that never go back.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._offset: float | None = None  # server time less monotonic time
        self._best: float | None = None  # of this window
        self._since = monotonic()
        self._told = 0.0

    def see(self, stamp: float) -> None:
        """Take the stamp of a message that was read."""
        at = self._monotonic()
        offset = stamp - at
        if self._best is None or offset > self._best:
            self._best = offset
        if self._offset is None or offset > self._offset:
            self._offset = offset
        if at - self._since >= _WINDOW:
            self._offset, self._best, self._since = self._best, None, at

    def now(self) -> float:
        """Unix seconds at the server; 0 before the first message."""
        return self._monotonic() + self._offset if self._offset is not None else 0.0

    def was_set_back(self) -> bool:
        """Whether the time is earlier than when this was last asked."""
        now, before = self.now(), self._told
        self._told = now
        return now < before - _STEP


async def server_time(bus: Bus) -> float:
    """Unix seconds at the server, asked until it answers."""
    told_of = ""
    while True:
        try:
            told = await bus.request("$JS.API.STREAM.INFO.TW_RESULTS", None)
            return datetime.fromisoformat(str(told["ts"])).timestamp()
        except (BusError, NatsError, OSError, TimeoutError) as error:
            why = str(error) or type(error).__name__
            if why != told_of:
                log.warning("the server does not tell its time, will retry reason=%s", why)
                told_of = why
            await asyncio.sleep(_AGAIN)
