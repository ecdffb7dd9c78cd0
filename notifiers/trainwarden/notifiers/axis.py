"""Ranges and ticks of an axis: round numbers, few of them, logarithmic where the values ask for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Axis", "for_values", "linear"]


@dataclass(frozen=True, slots=True)
class Axis:
    """A range with labelled ticks. `place` gives 0 at its low and 1 at its high end."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    log: bool = False

    def place(self, value: float) -> float:
        if self.log:
            low, high = math.log10(self.low), math.log10(self.high)
            return (math.log10(max(value, self.low)) - low) / (high - low)
        # Halves, since the difference of two finite numbers may not be finite.
        return (value / 2 - self.low / 2) / (self.high / 2 - self.low / 2)


def linear(low: float, high: float, *, whole: bool = False) -> Axis:
    """An axis from low to high with 3 to 7 ticks inside; `whole` keeps ticks at integers."""
    if high <= low:
        high = low + (1 if whole else max(abs(low), 1.0) * 0.5)
    step = _round_step((high / 2 - low / 2) / 6 * 2)  # halves: see `place`
    step = max(1.0, step) if whole else step
    first, ticks = math.ceil(low / step), []
    for index in range(12):
        value = (first + index) * step
        if not value <= high * (1 + 1e-12) + 1e-300:
            break
        ticks.append((value, _label(value, step, whole=whole)))
    return Axis(low, high, tuple(ticks))


def for_values(values: Sequence[float]) -> Axis:
    """An axis for n >= 1 finite values, with room around them; logarithmic for positive ones over two decades."""
    low, high = min(values), max(values)
    if low > 0 and high / low > 100 and math.isfinite(high / low):
        return _logarithmic(low, high)
    margin = (high / 2 - low / 2) * 0.12 if high > low else abs(low) * 0.1 or 1.0
    bound = 1.7e308
    return linear(max(low - margin, -bound), min(high + margin, bound))


def _logarithmic(low: float, high: float) -> Axis:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    stride = max(1, math.ceil((last - first) / 6))
    ticks = tuple(
        (float(f"1e{power}"), _power(power)) for power in range(first, last + 1, stride) if -308 < power < 308
    )
    return Axis(
        max(float(f"1e{first}"), 5e-324), min(float(f"1e{last}") if last < 308 else 1.7e308, 1.7e308), ticks, True
    )


def _power(power: int) -> str:
    return f"{10.0**power:g}" if -4 <= power <= 5 else f"1e{power}"


def _round_step(rough: float) -> float:
    """The smallest of 1, 2, 2.5, 5 times a power of ten that is at least `rough`."""
    base = 10.0 ** math.floor(math.log10(max(rough, 1e-300)))
    return next((base * times for times in (1, 2, 2.5, 5, 10) if base * times >= rough * (1 - 1e-9)), base * 10)


def _label(value: float, step: float, *, whole: bool) -> str:
    if whole:
        return f"{int(value):,}"
    if value == 0:
        return "0"
    if not 1e-4 <= abs(step) < 1e6 and (abs(value) >= 1e6 or abs(value) < 1e-3):
        return f"{value:.3g}"
    if abs(value) >= 1e6:
        return f"{value:.6g}"
    decimals = max(0, 1 - math.floor(math.log10(step))) if step < 10 else 0
    text = f"{value:,.{min(decimals, 10)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
