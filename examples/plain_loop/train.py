"""A loop without torch: a classifier in the standard library alone, with checkpoints in JSON."""

import argparse
import json
import math
import random
from collections.abc import Iterator
from pathlib import Path

from trainwarden.reporters.loop import TrainingLoop

Point = tuple[list[float], int]


def batches(first: int, size: int = 16) -> Iterator[list[Point]]:
    """Batches without end of points inside (1) or outside (0) a noisy ellipse; number n is always the same one."""
    number = first
    while True:
        chance = random.Random(number)
        points = [(chance.uniform(-2, 2), chance.uniform(-2, 2)) for _ in range(size)]
        yield [([1.0, x, y, x * x, y * y], int(x * x + 2 * y * y + chance.gauss(0, 0.4) < 2)) for x, y in points]
        number += 1


def train_on(batch: list[Point], weights: list[float], rate: float) -> float:
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
        weights[index] -= rate * slope / len(batch)
    return loss / len(batch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500_000)
    parser.add_argument("--output", type=Path, default=Path("checkpoints/plain_loop"))
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    weights = [0.0] * 5

    def save(step: int) -> Path:
        path: Path = options.output / f"step-{step}.json"
        path.write_text(json.dumps({"step": step, "weights": weights}))
        return path

    with TrainingLoop(total=options.steps, save=save) as loop:
        start = 0
        if loop.resume_path:
            saved = json.loads(Path(loop.resume_path).read_text())
            start, weights = saved["step"], saved["weights"]
        losses: list[float] = []
        for step, batch in loop.steps(batches(start), start=start):
            losses.append(train_on(batch, weights, rate=0.02))
            if step % 50 == 0:
                loop.log(loss=sum(losses) / len(losses))
                losses.clear()


if __name__ == "__main__":
    main()
