"""Lengths of time as people read them."""

from __future__ import annotations

__all__ = ["ago"]


def ago(seconds: float) -> str:
    """A length of time in at most two units, such as `1h30m`."""
    left = round(seconds)
    if left < 1:
        return f"{max(seconds, 0.0):.2g}s"
    parts: list[str] = []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m"), (1, "s")):
        number, left = divmod(left, size)
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts[:2])
