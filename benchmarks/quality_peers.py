"""The defaults of other tools' stop rules, after their documentation: where each would stop a curve of evaluations.

Values come with lower as better. Lightning and transformers look at each validation, Keras at the end of each epoch,
Ray Tune at each result; here each recorded value is one of these.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

__all__ = ["CRUDE", "PEERS"]

StopRule = Callable[[Sequence[float], Sequence[int], int], int | None]
"""Values with lower as better, their steps, and the last step of the plan; place of the stop or None."""


def _patience(checks: int, *, from_second: bool = False) -> StopRule:
    """Stop after so many values in a row that are not below the best. With 0 the first such value is enough."""

    def stop(values: Sequence[float], steps: Sequence[int], plan: int) -> int | None:
        best, waited = float("inf"), 0
        for place, value in enumerate(values):
            if value < best:
                best, waited = value, 0
                continue
            waited += 1
            if waited >= checks and (place > 0 or not from_second):
                return place
        return None

    return stop


def _ray(values: Sequence[float], steps: Sequence[int], plan: int) -> int | None:
    """TrialPlateauStopper: standard deviation of the newest 4 results at most 0.01, whatever their scale."""
    for place in range(3, len(values)):
        if statistics.pstdev(values[place - 3 : place + 1]) < 0.01:
            return place
    return None


def _z_score(values: Sequence[float], steps: Sequence[int], plan: int) -> int | None:
    """A value more than 3 standard deviations from the mean of the 30 before it, on either side."""
    for place in range(30, len(values)):
        window = values[place - 30 : place]
        deviation = statistics.stdev(window)
        if deviation > 0 and abs(values[place] - statistics.fmean(window)) > 3 * deviation:
            return place
    return None


def _crude(values: Sequence[float], steps: Sequence[int], plan: int) -> int | None:
    """Half of the run so far brought less than 0.3 % of the improvement so far, and 30 % of the plan is done."""
    best: list[float] = []
    for place, (value, step) in enumerate(zip(values, steps, strict=True)):
        best.append(min(value, best[-1]) if best else value)
        half = next((at for at in range(place, -1, -1) if steps[at] <= step / 2), None)
        gained = values[0] - best[-1]
        if place < 3 or half is None or step < 0.3 * plan or gained <= 0:
            continue
        if best[half] - best[-1] < 0.003 * gained:
            return place
    return None


PEERS: dict[str, StopRule] = {
    "Lightning EarlyStopping (patience 3, min_delta 0)": _patience(3),
    "Keras EarlyStopping (patience 0, min_delta 0)": _patience(1, from_second=True),
    "transformers EarlyStoppingCallback (patience 1, threshold 0)": _patience(1),
    "Ray Tune TrialPlateauStopper (std 0.01, 4 results)": _ray,
    "W&B z-score automation (window 30, threshold 3)": _z_score,
}
"""Each with its defaults."""

CRUDE: StopRule = _crude
