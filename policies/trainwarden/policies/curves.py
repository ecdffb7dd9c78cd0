"""A metric's history made small enough for a picture, with the envelope of what was merged."""

from __future__ import annotations

from trainwarden.policies.decision import Window
from trainwarden.policies.directions import higher_is_better
from trainwarden.policies.metrics import Metrics
from trainwarden.policies.notice import Curve

__all__ = ["curve_of"]


def curve_of(
    metrics: Metrics, metric: str, *, window: Window | None, fired_at: int | None, points: int
) -> Curve | None:
    """At most `points` points (2 or more) from all of a metric's history; None when it has no finite value."""
    series = metrics.series(metric)
    if series is None or not series.count:
        return None
    rows = series.whole().rows
    size = len(rows.counts)
    share = -(-size // max(points, 2))  # rows that become one point
    steps: list[int] = []
    values: list[float] = []
    lows: list[float] = []
    highs: list[float] = []
    for start in range(0, size, share):
        part = slice(start, start + share)
        counts = rows.counts[part]
        total = sum(counts)
        steps.append(round(sum(n * s for n, s in zip(counts, rows.steps[part], strict=True)) / total))
        values.append(sum(n * m for n, m in zip(counts, rows.means[part], strict=True)) / total)
        lows.append(min(rows.lows[part]))
        highs.append(max(rows.highs[part]))
    best = series.best(higher=higher_is_better(metric))
    mine = window is not None and window.metric == metric
    return Curve(
        metric=metric,
        steps=tuple(steps),
        values=tuple(values),
        lows=tuple(lows),
        highs=tuple(highs),
        window_from=window.from_step if window is not None and mine else None,
        window_to=window.to_step if window is not None and mine else None,
        fired_at=fired_at,
        best_step=best.step if best is not None else None,
    )
