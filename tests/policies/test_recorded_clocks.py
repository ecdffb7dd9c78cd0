"""The time left and divergence on recorded trainings, which are not part of the repository."""

from __future__ import annotations

import os
import statistics

import pytest
from benchmarks.eta_and_divergence import (
    CURVES,
    Kind,
    Timeline,
    Watch,
    forecasts,
    histories,
    runs,
    spoilt,
    steady,
    timeline,
)

pytestmark = pytest.mark.skipif(
    not CURVES.is_dir() and "CI" not in os.environ, reason=f"recorded curves are not in {CURVES}"
)


@pytest.fixture(scope="module")
def clocks() -> list[Timeline]:
    """Clocks of many kinds of models."""
    return [line for source, run in runs(CURVES, "algoperf", 40) if (line := timeline(source, run)) is not None]


@pytest.mark.parametrize("kind", ["as recorded", "resumed", "evaluations", "unnamed pauses"])
def test_the_time_left_is_right_within_a_twentieth(clocks: list[Timeline], kind: Kind) -> None:
    found = [forecast for line in clocks for place, forecast in forecasts(line, kind) if place >= 0.25]

    assert len(found) >= 3 * len(clocks)
    assert statistics.median(forecast.error for forecast in found) < 0.05
    assert sum(forecast.covered for forecast in found) > 0.7 * len(found)


@pytest.mark.parametrize("kind", ["not a number", "level x 2", "level x 3", "level x 10"])
def test_a_lost_language_model_is_found_within_a_hundredth_of_the_run(kind: str) -> None:
    cases = [each for source, run in runs(CURVES, "nanogpt", 20) for each in histories(source, run, dense=True)]

    for history in cases:
        assert steady(history)
        half, watch = len(history.values) // 2, Watch(history, None)
        healthy = [watch.fires(*pair) for pair in zip(history.steps[:half], history.values[:half], strict=True)]
        soon = max(len(history.values) // 100, 1)
        tail = spoilt(history.values[half : half + soon], kind, len(history.values))
        found = [watch.fires(step, bad) for step, bad in zip(history.steps[half : half + soon], tail, strict=True)]

        assert not any(healthy), history.id
        assert any(found), history.id
