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
_RECALL = 10.0  # and one that was accepted: a final reply that was lost on the way is given again from memory
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

    The final reply to a `release` is `accepted`.

    Args:
        bus: The connection.
        namespace: Of the job.
        job: Its name.
        command: What is asked; sent again with the same id until the final reply is there.
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
    until, send_at, was_accepted = loop.time() + patience, loop.time(), False
    try:
        while True:
            now = loop.time()
            if now >= until:
                return Reply(command.id, command.run, "failed", reason=_nobody(was_accepted, command, patience))
            if now >= send_at:
                send_at = now + (_RECALL if was_accepted else _AGAIN)
                with contextlib.suppress(NatsError, OSError, TimeoutError):
                    await bus.publish(subject, data, reply=inbox)
            try:
                async with asyncio.timeout_at(min(send_at, until)):
                    reply = await replies.get()
            except TimeoutError:
                continue
            if reply.state != "accepted" or command.op == "release":
                return reply
            if not was_accepted:
                was_accepted, until = True, loop.time() + command.timeout + _MARGIN
                send_at = loop.time() + _RECALL
                if accepted is not None:
                    accepted()
    finally:
        with contextlib.suppress(NatsError, OSError):
            await subscription.unsubscribe()


def _nobody(was_accepted: bool, command: Command, patience: float) -> str:
    if was_accepted:
        return f"the training accepted the command but did not save within {command.timeout:g} s"
    return f"the training did not answer within {patience:g} s"
