"""Detectors on recorded trainings, which are not part of the repository."""

from __future__ import annotations

import os
from itertools import islice

import pytest
from benchmarks.detector_quality import CURVES, History, find, judge, read

pytestmark = pytest.mark.skipif(
    not CURVES.is_dir() and "CI" not in os.environ, reason=f"recorded curves are not in {CURVES}"
)


@pytest.fixture(scope="module")
def trainings() -> list[History]:
    """Training losses of healthy language models, some thousand values each."""
    histories = read(CURVES / "nanogpt.jsonl.gz", 13)
    return list(islice((history for history in histories if history.metric == "train_loss"), 6))


@pytest.fixture(scope="module")
def evaluations() -> list[History]:
    """Evaluations of many kinds of models."""
    histories = read(CURVES / "algoperf.jsonl.gz", 60)
    return [history for history in histories if history.metric != "loss"]


@pytest.mark.parametrize("share", [0.05, 0.1, 0.2])
@pytest.mark.parametrize("function", ["plateau", "divergence"])
def test_healthy_language_models_are_left_alone(trainings: list[History], function: str, share: float) -> None:
    stops = [judge((history, function, share)) for history in trainings]

    assert len(stops) == 6
    assert [(stop.history.id, stop.at) for stop in stops if stop.to_come > 0.01] == []


@pytest.mark.parametrize("kind", ["not a number", "level x 3", "grows by 1 %"])
def test_every_spoilt_training_is_found(trainings: list[History], kind: str) -> None:
    found = [find((history, "divergence", kind, 0.05)) for history in trainings]

    assert all(delay is not None and 0 <= delay < 2 for _, _, delay, _ in found)


def test_few_stops_of_evaluations_are_wrong(evaluations: list[History]) -> None:
    """Patience of 10 evaluations, the best of the usual rules, is wrong in 14 % of its stops."""
    stops = [judge((history, "plateau", share)) for history in evaluations for share in (0.1, 0.2)]

    stopped = [stop for stop in stops if stop.at is not None]
    assert len(stopped) >= len(stops) // 10, "a detector that never fires is of no use"
    assert sum(stop.to_come > 0.01 for stop in stopped) <= 0.05 * len(stopped)
