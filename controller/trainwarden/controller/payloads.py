"""What is on the streams, as bytes: structs of the policies part as JSON, and policies as the objects they are."""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec

from trainwarden.policies.loading import policy_from_body
from trainwarden.policies.models import Policy

__all__ = ["decode", "decode_policy", "encode", "encode_policy"]

S = TypeVar("S", bound=msgspec.Struct)
_encode = msgspec.json.Encoder().encode
_decoders: dict[type[msgspec.Struct], msgspec.json.Decoder[Any]] = {}


def encode(value: msgspec.Struct) -> bytes:
    """A struct as JSON."""
    return _encode(value)


def decode(data: bytes, kind: type[S]) -> S:
    """A struct from JSON.

    Raises:
        msgspec.DecodeError: It is not one.
    """
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    value: S = decoder.decode(data)
    return value


def encode_policy(policy: Policy) -> bytes:
    """A policy as the object that a user wrote, with its uid and generation."""
    return policy.model_dump_json(by_alias=True, exclude_unset=True).encode()


def decode_policy(data: bytes) -> Policy:
    """A policy from such an object.

    Raises:
        PolicyInvalidError: It is not a valid one.
        ValueError: It is not JSON.
    """
    return policy_from_body(json.loads(data))
