"""Cut a payload that is too large for a stream: its longest texts and lists, and it says where and how much."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["cut"]

_STEPS = ((4_000, 400), (1_000, 100), (400, 20))  # characters of a text and entries of a list or map that are left


def cut(data: bytes, most: int, *, entries: bool = True) -> bytes:
    """The JSON in at most `most` bytes, or as short as it gets; as it is when it fits.

    A text that was cut ends with `… (cut from 20000 characters)`. A map says of its missing entries under
    `… (cut)`; of a list of texts or objects only its first ones stay. Ids and names are far shorter than what is cut.

    Args:
        data: A payload.
        most: Bytes that it may have.
        entries: Whether lists and maps may lose some of theirs. A state may not: the engine goes on from it.
    """
    if len(data) <= most:
        return data
    whole = msgspec.json.decode(data)
    shorter = data
    for characters, left in _STEPS:
        shorter = msgspec.json.encode(_cut(whole, characters, left if entries else len(data)))
        if len(shorter) <= most:
            break
    return shorter


def _cut(value: Any, characters: int, entries: int) -> Any:
    if isinstance(value, str):
        if len(value) <= characters:
            return value
        return f"{value[:characters]}… (cut from {len(value)} characters)"
    if isinstance(value, list):
        return [_cut(item, characters, entries) for item in (value if _numbers(value) else value[:entries])]
    if isinstance(value, dict):
        kept = {_cut(key, characters, entries): _cut(item, characters, entries) for key, item in _first(value, entries)}
        if len(value) > entries:
            kept["… (cut)"] = f"{len(value) - entries} of {len(value)} are left out"
        return kept
    return value


def _numbers(items: list[Any]) -> bool:
    """Whether it is a curve's: these lists go with each other, and are short."""
    return bool(items) and isinstance(items[0], int | float)


def _first(value: dict[str, Any], entries: int) -> list[tuple[str, Any]]:
    return list(value.items())[:entries]
