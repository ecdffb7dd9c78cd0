"""How long ago something was, as people read it."""

from __future__ import annotations

from trainwarden.policies.readable import duration

__all__ = ["ago"]


def ago(seconds: float) -> str:
    """A length of time, such as `1h 30m`; one that is negative counts as none."""
    return duration(max(seconds, 0.0))
