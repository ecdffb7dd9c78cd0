"""Numbers and lengths of time as people read them: one form for messages, reasons, the terminal and `human(...)`."""

from __future__ import annotations

import math

__all__ = ["duration", "not_finite", "number"]

_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_SHORT = 10.0  # seconds below which a tenth is told


def number(value: float) -> str:
    """At most four significant digits: `2.346`, `12,800`, `1.2e-05`; NaN and infinities by their names."""
    if not math.isfinite(value):
        return not_finite(value)
    if value == 0:
        return "0"
    if abs(value) >= 1e15 or abs(value) < 1e-3:
        return f"{value:.3g}"
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def duration(seconds: float) -> str:
    """The two largest units: `2h 5m`, `3d 4h`, `45s`, `0.4s`; `unknown` when it is not finite."""
    if not math.isfinite(seconds):
        return "unknown"
    sign, seconds = ("-" if seconds < 0 else ""), abs(seconds)
    if seconds < _SHORT and seconds != int(seconds):
        return f"{sign}{seconds:.1f}s"
    left, parts = round(seconds), []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
        elif parts:
            break
        if len(parts) == 2:
            break
    return sign + (" ".join(parts) or "0s")


def not_finite(value: float) -> str:
    """`NaN`, `Infinity` or `-Infinity`, as JSON texts have them."""
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
