"""What a service account's token says of itself, before anybody has checked it. Pure.

Good for refusing what Kubernetes would refuse too, without asking it. Of a token that it has checked the claims hold.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated

import msgspec
from msgspec import Meta

from trainwarden.controller.bridge.gate import ForbiddenError

__all__ = ["Claims", "refuse_hopeless"]

_MOST_BYTES = 16 * 1024


class _Object(msgspec.Struct, frozen=True):
    name: str
    uid: str


class _Kubernetes(msgspec.Struct, frozen=True):
    namespace: str
    pod: _Object | None = None


class Claims(msgspec.Struct, frozen=True):
    """The claims that matter here."""

    aud: list[str] | str
    exp: Annotated[float, Meta(ge=0)]  # Unix seconds
    kubernetes: _Kubernetes = msgspec.field(name="kubernetes.io")


_decode = msgspec.json.Decoder(Claims).decode


def refuse_hopeless(token: str, namespace: str, *, audience: str, now: float) -> Claims:
    """The claims of a token that Kubernetes may find good.

    Raises:
        ForbiddenError: It can't: the text says which claim is wrong and what would be right, and holds no token.
    """
    claims = _read(token)
    given = [claims.aud] if isinstance(claims.aud, str) else claims.aud
    if audience not in given:
        raise ForbiddenError(f"the token's audience is {', '.join(given)[:200] or 'empty'}; {audience} is right")
    if claims.exp <= now:
        raise ForbiddenError(f"the token expired {now - claims.exp:.0f} s ago; read it anew from its file")
    found = claims.kubernetes.namespace
    if found != namespace:
        raise ForbiddenError(f"the token is of namespace {found[:63]!r}; one of {namespace!r} is right")
    if claims.kubernetes.pod is None:
        raise ForbiddenError("the token is bound to no pod; one from a projected volume of the pod is right")
    return claims


def _read(token: str) -> Claims:
    parts = token.split(".")
    if len(parts) != 3 or len(token) > _MOST_BYTES:  # of header, claims, signature
        raise ForbiddenError("the token is no JSON Web Token; one from a projected service account volume is right")
    try:
        return _decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error, RecursionError) as error:
        raise ForbiddenError("the token's claims can't be read; one of a service account is right") from error
