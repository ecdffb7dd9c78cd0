"""A training whose data stops coming: it hangs inside a step, alive and doing nothing."""

import argparse
import json
import threading
from collections.abc import Iterator
from pathlib import Path

from trainwarden.reporters.loop import TrainingLoop


def batches(count: int, pause: float, hang_after: int) -> Iterator[int]:
    """Batches from a data source that delivers no more after a while, and doesn't say so."""
    never = threading.Event()
    for number in range(count):
        if number == hang_after:
            never.wait()
        never.wait(pause)
        yield number


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--hang-after", type=int, default=100, help="step after which no data comes any more")
    parser.add_argument("--pause", type=float, default=0.02, help="seconds a step takes")
    parser.add_argument("--output", type=Path, default=Path("checkpoints/hang"))
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)

    def save(step: int) -> Path:
        path: Path = options.output / f"step-{step}.json"
        path.write_text(json.dumps({"step": step}))
        return path

    with TrainingLoop(total=options.steps, save=save, save_every=50) as loop:
        start = json.loads(Path(loop.resume_path).read_text())["step"] if loop.resume_path else 0
        data = batches(options.steps - start, options.pause, options.hang_after)
        for step, _ in loop.steps(data, start=start):
            loop.log(loss=4.0 / (1.0 + step / 50))


if __name__ == "__main__":
    main()
