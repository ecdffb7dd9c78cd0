"""How NATS is told who one is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

__all__ = ["login"]


def login(servers: Sequence[str], token: str | None) -> dict[str, Any]:
    """Options of `nats.connect` for a token.

    Args:
        servers: URLs. Where the first one names a user without a password (`nats://training@nats:4222`), the token is
            that user's password: a server with users, each with rights of its own, knows no tokens.
        token: None where the URLs hold all that is needed.
    """
    if token is None:
        return {}
    place = urlsplit(servers[0]) if servers else urlsplit("")
    if place.username and place.password is None:
        return {"user": place.username, "password": token}
    return {"token": token}
