"""The pulse that an engine puts into the stream of reports, which proves that reports are stored and read."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from typing import Final

from nats.errors import Error as NatsError

from trainwarden.controller.bus import Bus

__all__ = ["PULSE", "keep_pulse"]

PULSE: Final = "tw.pulse"
"""Subject of all pulses; each engine reads those of all."""

_EVERY = 1.0  # seconds


async def keep_pulse(bus: Bus) -> None:
    """Publish a pulse a second until cancelled. Its text names the connection, so that an interruption shows.

    Nothing is sent, or kept to be sent, while there is no connection.
    """
    engine = uuid.uuid4().hex
    while True:
        with contextlib.suppress(NatsError, OSError, TimeoutError):
            client = await bus.client()
            if client.is_connected:
                await client.publish(PULSE, f"{engine}.{bus.connections}".encode())
        await asyncio.sleep(_EVERY)
