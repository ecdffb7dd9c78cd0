"""Sizes, sums and moments as people read them, and untrusted text made safe for chat."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from trainwarden.policies.readable import duration, number

__all__ = ["chat", "code", "duration", "line", "moment", "money", "number", "short_digest", "size"]

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\s]+")
_CALL = re.compile(r"!(?=\s*(?:channel|here|everyone)\b)", re.IGNORECASE)
_ZERO = "\u200b"  # zero-width space: breaks a mention or a link without a visible mark


def line(text: str, limit: int = 400) -> str:
    """Text on one line without control or direction characters, cut at `limit` characters."""
    flat = _CONTROL.sub(" ", text).strip()
    return flat if len(flat) <= limit else flat[: limit - 1].rstrip() + "…"


def chat(text: str, limit: int = 400) -> str:
    """Untrusted text for Markdown and mrkdwn: no markup, link, or mention survives in it."""
    flat = line(text, limit).replace("`", "'").replace("*", "∗").replace("<", "＜").replace("~~", "~" + _ZERO + "~")
    flat = flat.replace("](", "]" + _ZERO + "(").replace("://", ":" + _ZERO + "//").replace("||", "|" + _ZERO + "|")
    flat = re.sub(r"(?<!\w)_|_(?!\w)", _ZERO + "_" + _ZERO, flat)
    flat = re.sub(r"([@&])(?=[\w!@#/:])", r"\1" + _ZERO, flat)
    return _CALL.sub("!" + _ZERO, flat)


def code(text: str, limit: int = 400) -> str:
    """Untrusted text for a code span or block, which it can't leave; it stays fit for copying."""
    flat = line(text, limit).replace("`", "'")
    flat = re.sub(r"<(?=[!@#/\w])|@(?=(?:everyone|here|channel|all)\b)", lambda found: found[0] + _ZERO, flat)
    return _CALL.sub("!" + _ZERO, flat)


def size(count: int) -> str:
    """Bytes in decimal units: `412 B`, `1.4 GB`."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 999.5 or unit == "TB":
            return f"{value:.0f} {unit}" if unit == "B" or value >= 99.5 else f"{value:.3g} {unit}"
        value /= 1000
    raise AssertionError


def money(value: float) -> str:
    """An amount without a currency, since prices carry none: `12.40`, `1,240`."""
    return f"{value:,.2f}" if abs(value) < 1000 else f"{value:,.0f}"


def moment(time: datetime) -> str:
    """`Sat 2026-11-28 03:14 UTC`."""
    utc = time.astimezone(UTC)
    return f"{['Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat', 'Sun'][utc.weekday()]} {utc:%Y-%m-%d %H:%M} UTC"


def short_digest(digest: str) -> str:
    """`sha256:0123456789ab`: enough to compare by eye."""
    kind, _, value = digest.rpartition(":")
    return f"{kind}:{value[:12]}" if kind else value[:12]
