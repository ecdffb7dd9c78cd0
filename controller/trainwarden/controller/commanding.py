"""Ask a training for something over the command subject, and hear what becomes of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from trainwarden.controller.bus import Bus
from trainwarden.reporters.wire import Command, Reply, WireError, command_subject, decode_reply, encode

__all__ = ["ask"]

_AGAIN = 3.0  # seconds after which a command that nobody has accepted is sent again
_MARGIN = 5.0  # beyond the training's own time-out


async def ask(
    bus: Bus,
    namespace: str,
    job: str,
    command: Command,
    *,
    accepted: Callable[[], None] | None = None,
    patience: float = 30.0,
) -> Reply:
    """Send a command and wait for its final reply; nobody answering gives a reply `failed` that says so.

    Args:
        bus: The connection.
        namespace: Of the job.
        job: Its name.
        command: What is asked; sent again with the same id until it is accepted.
        accepted: Called once when the training has accepted it.
        patience: Seconds to wait until it is accepted.
    """
    replies: asyncio.Queue[Reply] = asyncio.Queue()

    async def heard(message: Msg) -> None:
        with contextlib.suppress(WireError):
            reply = decode_reply(message.data)
            if reply.id == command.id:
                replies.put_nowait(reply)

    client = await bus.client()
    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox, cb=heard)
    loop = asyncio.get_running_loop()
    data, subject = encode(command), command_subject(namespace, job)
    until, was_accepted = loop.time() + patience, False
    try:
        while True:
            if not was_accepted:
                with contextlib.suppress(NatsError, OSError, TimeoutError):
                    await bus.publish(subject, data, reply=inbox)
            left = until - loop.time()
            if left <= 0:
                return Reply(command.id, command.run, "failed", reason=_nobody(was_accepted, command, patience))
            try:
                reply = await asyncio.wait_for(replies.get(), left if was_accepted else min(_AGAIN, left))
            except TimeoutError:
                continue
            if reply.state != "accepted":
                return reply
            if not was_accepted:
                was_accepted, until = True, loop.time() + command.timeout + _MARGIN
                if accepted is not None:
                    accepted()
    finally:
        with contextlib.suppress(NatsError, OSError):
            await subscription.unsubscribe()


def _nobody(was_accepted: bool, command: Command, patience: float) -> str:
    if was_accepted:
        return f"the training accepted the command but did not save within {command.timeout:g} s"
    return f"the training did not answer within {patience:g} s"
