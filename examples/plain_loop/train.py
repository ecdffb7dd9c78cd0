"""A loop without torch: a classifier in the standard library alone, with checkpoints in JSON."""

import argparse
import json
import math
import random
from pathlib import Path

from trainwarden.reporters.loop import TrainingLoop

Point = tuple[list[float], int]


def points(count: int) -> list[Point]:
    """Points inside (1) or outside (0) a noisy ellipse."""
    chance = random.Random(1)
    places = [(chance.uniform(-2, 2), chance.uniform(-2, 2)) for _ in range(count)]
    return [([1.0, x, y, x * x, y * y], int(x * x + 2 * y * y + chance.gauss(0, 0.4) < 2)) for x, y in places]


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
    parser.add_argument("--steps", type=int, default=1_500_000)
    parser.add_argument("--output", type=Path, default=Path("checkpoints/plain_loop"))
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    weights = [0.0] * 5
    data = points(512)
    batches = [data[at : at + 16] for at in range(0, len(data), 16)]

    def save(step: int) -> Path:
        path: Path = options.output / f"step-{step}.json"
        path.write_text(json.dumps({"step": step, "weights": weights}))
        return path

    with TrainingLoop(total=options.steps, save=save) as loop:
        start = 0
        if loop.resume_path:
            saved = json.loads(Path(loop.resume_path).read_text())
            start, weights = saved["step"], saved["weights"]
        loop.step = start
        while not loop.over:
            losses = []
            for _, batch in loop.steps(batches):
                losses.append(train_on(batch, weights, rate=0.05))
                if len(losses) == len(batches):
                    loop.log(loss=sum(losses) / len(losses))


if __name__ == "__main__":
    main()
