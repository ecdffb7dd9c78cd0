"""What was ended before this start, told to the brakes from the stream of results."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

import msgspec

from trainwarden.controller.bus import Bus, Entry, Reading
from trainwarden.controller.cancelling import end_all
from trainwarden.controller.cluster.brakes import HOUR, Brakes
from trainwarden.controller.payloads import decode
from trainwarden.controller.server_clock import server_time
from trainwarden.policies.decision import ActionResult, ActionState

__all__ = ["recall"]

_NOT_ENDED = (ActionState.REFUSED, ActionState.WAITING)


async def recall(bus: Bus, brakes: Brakes, gpus_of: Callable[[str, str], int]) -> None:
    """Tell the brakes what was ended in the last hour, on the monotonic clock, which no step of a clock moves.

    Args:
        bus: Where results are read.
        brakes: That count.
        gpus_of: GPUs of the job with a namespace and name; 0 when there is none.
    """
    since_server = time.monotonic() - await server_time(bus)

    def take(entry: Entry) -> None:
        at = entry.time + since_server
        if at < time.monotonic() - HOUR:
            return
        with contextlib.suppress(msgspec.DecodeError):
            result = decode(entry.data, ActionResult)
            if result.reason in ("Ending", "Suspended", "Stopped", "Deleted"):
                brakes.ended(result.action_id, gpus_of(result.namespace, result.job), at)
            elif result.state in _NOT_ENDED:
                brakes.forget(result.action_id)

    reading = Reading(bus, "TW_RESULTS", take=take)
    task = asyncio.create_task(reading.run())
    try:
        await reading.caught_up.wait()
    finally:
        await end_all([task])
