"""A training whose loss goes flat, in plain Python: for a TrainJob that trainwarden watches.

It keeps its checkpoints in the folder that CHECKPOINTS names, and goes on from the newest one when it is started again:
nothing else restores a TrainJob that was suspended.
"""

import json
import math
import os
import random
import time
from pathlib import Path

from trainwarden.reporters.loop import TrainingLoop

FOLDER = Path(os.environ.get("CHECKPOINTS", "checkpoints"))
TOTAL = int(os.environ.get("STEPS", "100000"))
SECONDS = float(os.environ.get("STEP_SECONDS", "0.01"))


def save(step: int) -> Path:
    """Write a checkpoint whole: under another name first."""
    path = FOLDER / f"step-{step:08d}.json"
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps({"step": step}))
    unfinished.rename(path)
    return path


def main() -> None:
    """Train until the plan is done."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    chance = random.Random(0)
    with TrainingLoop(total=TOTAL, save=save) as loop:
        newest = max(FOLDER.glob("step-*.json"), default=None)
        if newest is not None:
            loop.step = json.loads(newest.read_text())["step"]
            print(f"going on at step {loop.step}", flush=True)
        for step, _ in loop.steps(range(loop.step, TOTAL)):
            time.sleep(SECONDS)
            if step % 5 == 0:
                loop.log(loss=1.0 + 2.0 * math.exp(-step / 60) + chance.gauss(0, 0.0005))
    print("complete", flush=True)


if __name__ == "__main__":
    main()
