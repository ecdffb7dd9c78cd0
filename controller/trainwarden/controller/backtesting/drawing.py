"""One metric of one run as SVG: its curve with the spread of what was merged, and marks at steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from trainwarden.policies.backtest.outcome import Curve

__all__ = ["drawing"]

_WIDTH, _HEIGHT = 400, 170
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 6, 8, 20
_CUT = 0.04  # share of the values, at the beginning of most runs, that may leave the picture so that the rest is seen


def drawing(curve: Curve, marks: Sequence[tuple[int, str]], last_step: int) -> str:
    """An SVG element; its colours are those of the page's classes.

    Args:
        curve: At least one point.
        marks: Steps, and the class of each: bad, good or told. What follows the first bad or good one is shaded.
        last_step: Where the axis ends.
    """
    low, high = _range(curve)
    first = min(curve.steps[0], 0)
    width = max(last_step - first, 1)

    def x(step: float) -> float:
        return _LEFT + (step - first) / width * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        inside = min(max(value, low), high)
        return _TOP + (high - inside) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    def path(steps: Sequence[int], values: Sequence[float]) -> str:
        return " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in zip(steps, values, strict=True))

    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(curve.metric, quote=True)}">']
    bottom = _HEIGHT - _BOTTOM
    stops = [step for step, kind in marks if kind != "told"]
    if stops:
        left = x(stops[0])
        size = f'width="{_WIDTH - _RIGHT - left:.1f}" height="{bottom - _TOP}"'
        parts.append(f'<rect class="rest" x="{left:.1f}" y="{_TOP}" {size}/>')
    for value in (low, (low + high) / 2, high):
        at = y(value)
        parts.append(f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 5}" y="{at + 4:.1f}" text-anchor="end">{_short(value)}</text>')
    band = path(curve.steps, curve.highs) + " " + path(curve.steps[::-1], curve.lows[::-1])
    parts.append(f'<polygon class="band" points="{band}"/>')
    parts.append(f'<polyline class="curve" points="{path(curve.steps, curve.values)}"/>')
    for step, kind in sorted(set(marks), key=lambda mark: mark[1] != "told"):
        at = x(step)
        parts.append(f'<line class="mark {kind}" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{bottom}"/>')
    end = _HEIGHT - 6
    parts.append(f'<text x="{_LEFT}" y="{end}">{escape(curve.metric)}</text>')
    parts.append(f'<text x="{_WIDTH - _RIGHT}" y="{end}" text-anchor="end">step {last_step:,}</text></svg>')
    return "".join(parts)


def _range(curve: Curve) -> tuple[float, float]:
    """What the vertical axis shows: all means but a few at either end, with a margin."""
    values = sorted(curve.values)
    cut = int(len(values) * _CUT)
    low, high = values[cut], values[len(values) - 1 - cut]
    span = high - low
    low, high = max(values[0], low - span), min(values[-1], high + span)
    margin = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    return low - margin, high + margin


def _short(value: float) -> str:
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:.3g}" if 1e-3 <= abs(value) < 1e5 else f"{value:.1e}"
