"""The metrics of a run: one series for each name, up to a limit; beyond it only the newest value."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trainwarden.policies.readable import not_finite
from trainwarden.policies.report import ReportLike
from trainwarden.policies.series import Series

__all__ = ["HUGE", "MOST_NAMES", "MOST_SERIES", "Metrics", "Newest"]

MOST_SERIES = 256
"""Metrics of one run whose history is kept; of further names only the newest value is."""

MOST_NAMES = 4096
"""Metrics of one run that are kept at all."""

HUGE = 1e150
"""A number this large counts as infinite: its square is not far from where numbers end."""


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest value of a metric, finite or not."""

    value: float
    step: int
    time: float  # running time


class Metrics:
    """Series by name, in the order in which the names were first reported."""

    __slots__ = ("_loose", "_names", "_series", "left_out")

    def __init__(self) -> None:
        self._series: dict[str, Series] = {}
        self._loose: dict[str, Newest] = {}
        self._names: frozenset[str] | None = None  # None: to be made anew
        self.left_out = 0  # values of names beyond MOST_NAMES

    def take(self, report: ReportLike, passed: float) -> None:
        """Take the metrics of a report at the running time `passed`."""
        series, step = self._series, report.step
        for name, value in report.metrics.items():
            known = series.get(name)
            if known is None:
                known = self._admit(name)
            if not -HUGE < value < HUGE:
                text = not_finite(value)
                if known is None:
                    self._keep(name, float(text), step, passed)
                else:
                    known.add_nonfinite(step, passed, text)
            elif known is None:
                self._keep(name, value, step, passed)
            else:
                known.add(step, passed, value)
        for name, text in report.nonfinite.items():
            known = series.get(name) or self._admit(name)
            if known is not None:
                known.add_nonfinite(step, passed, text)
            elif text in ("NaN", "Infinity", "-Infinity"):
                self._keep(name, float(text), step, passed)

    def rewind(self, step: int) -> None:
        """Forget what came after a step. A metric of which nothing is left is forgotten whole."""
        self._names = None
        for name, series in list(self._series.items()):
            series.rewind(step)
            if not series.count and series.nonfinite is None:
                del self._series[name]
        self._loose = {name: newest for name, newest in self._loose.items() if newest.step <= step}

    def series(self, name: str) -> Series | None:
        """History of a metric; None when it was never reported, or is beyond the limit."""
        return self._series.get(name)

    def newest(self, name: str) -> Newest | None:
        """Newest value of a metric, finite or not; None when it was never reported."""
        series = self._series.get(name)
        return self._loose.get(name) if series is None else _newest(series)

    def newest_values(self) -> dict[str, float]:
        """Newest value of every metric, NaN and infinities included."""
        found = {name: newest.value for name, series in self._series.items() if (newest := _newest(series)) is not None}
        found.update((name, newest.value) for name, newest in self._loose.items())
        return found

    def names(self) -> frozenset[str]:
        """Every metric ever reported; the same object until that changes."""
        if self._names is None:
            self._names = frozenset(self._series).union(self._loose)
        return self._names

    def all_series(self) -> Mapping[str, Series]:
        """The series by name."""
        return self._series

    def __contains__(self, name: object) -> bool:
        return name in self._series or name in self._loose

    def __iter__(self) -> Iterator[str]:
        yield from self._series
        yield from self._loose

    def __len__(self) -> int:
        return len(self._series) + len(self._loose)

    def _admit(self, name: str) -> Series | None:
        if len(self._series) >= MOST_SERIES or name in self._loose:
            return None
        self._names = None
        series = self._series[name] = Series()
        return series

    def _keep(self, name: str, value: float, step: int, passed: float) -> None:
        known = self._loose.get(name)
        if known is None and len(self._loose) >= MOST_NAMES - MOST_SERIES:
            self.left_out += 1
        elif known is None or step >= known.step:
            if known is None:
                self._names = None
            self._loose[name] = Newest(value, step, passed)


def _newest(series: Series) -> Newest | None:
    odd, finite = series.nonfinite, series.newest()
    if odd is not None and (finite is None or series.streak):
        return Newest(float(odd.text) if odd.text in _TEXTS else math.nan, odd.step, odd.time)
    return Newest(finite[2], finite[0], finite[1]) if finite is not None else None


_TEXTS = frozenset({"NaN", "Infinity", "-Infinity"})
