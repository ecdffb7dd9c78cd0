"""The demo's training where torch is not installed: a classifier in plain Python, trained for too many steps."""

from __future__ import annotations

import argparse
import json
import math
import random
from pathlib import Path

from trainwarden.reporters.loop import TrainingLoop

_RATE = 0.1
_BATCH = 50  # the loss is logged once for all the data


def _points(count: int) -> list[tuple[list[float], int]]:
    """Points inside (1) or outside (0) a noisy ellipse, as features and label."""
    chance = random.Random(1)  # noqa: S311 - data for a training
    places = [(chance.uniform(-2, 2), chance.uniform(-2, 2)) for _ in range(count)]
    return [([1.0, x, y, x * x, y * y], int(x * x + 2 * y * y + chance.gauss(0, 0.8) < 2)) for x, y in places]


def _train_on(batch: list[tuple[list[float], int]], weights: list[float]) -> float:
    """One step of logistic regression by gradient descent, in place; gives the mean loss before it."""
    loss = 0.0
    gradient = [0.0] * len(weights)
    for features, label in batch:
        score = sum(weight * feature for weight, feature in zip(weights, features, strict=True))
        guess = 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, score))))
        loss -= math.log(guess if label else 1.0 - guess)
        for index, feature in enumerate(features):
            gradient[index] += (guess - label) * feature
    for index, slope in enumerate(gradient):
        weights[index] -= _RATE * slope / len(batch)
    return loss / len(batch)


def main() -> None:
    """Train, and save when asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=250_000)
    options = parser.parse_args()
    folder = Path("checkpoints")
    folder.mkdir(exist_ok=True)
    data, weights = _points(2_000), [0.0] * 5

    def save(step: int) -> Path:
        path = folder / f"step-{step}.json"
        path.write_text(json.dumps({"step": step, "weights": weights}))
        return path

    with TrainingLoop(total=options.steps, save=save) as loop:
        if loop.resume_path:
            saved = json.loads(Path(loop.resume_path).read_text())
            loop.step, weights = saved["step"], saved["weights"]
            print(f"training: going on at step {loop.step}", flush=True)
        chance = random.Random(loop.step)  # noqa: S311 - order of the data
        while not loop.over:
            chance.shuffle(data)
            losses = []
            for _, batch in loop.steps(data[at : at + _BATCH] for at in range(0, len(data), _BATCH)):
                losses.append(_train_on(batch, weights))
                if len(losses) * _BATCH == len(data):
                    loop.log(loss=sum(losses) / len(losses))
    print(f"training: ended at step {loop.step}", flush=True)


if __name__ == "__main__":
    main()
