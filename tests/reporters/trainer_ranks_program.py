"""One rank of a transformers Trainer on several: `trainer_ranks_program.py FOLDER WHAT`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch.distributed as dist
from tests.reporters.tiny_gpt import At, trainer
from transformers import TrainerCallback

from trainwarden.reporters import Recorder
from trainwarden.reporters.transformers import TrainwardenCallback
from trainwarden.reporters.wire import Command, Reply


class Saves(TrainerCallback):  # type: ignore[misc]  # transformers has no types
    """Notes after which steps this rank saved."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.steps.append(state.global_step)


def main(folder: Path, what: str) -> None:
    sent: list[list[Reply]] = []
    saves = Saves()
    with Recorder() as recorder:

        def ask() -> None:
            if dist.get_rank() == 0:
                sent.append(recorder.send(Command(id="c", run="", op="stop", timeout=30.0)))
            elif what == "slow":
                time.sleep(1.0)

        training = trainer(folder / "out", saves, At(5, ask), TrainwardenCallback(), max_steps=100_000)
        training.train()
        rank = dist.get_rank()
        finals = [recorder.wait(each) for each in sent]
    seen = {
        "saved": saves.steps,
        "step": training.state.global_step,
        "replies": [[final.state, final.checkpoint and final.checkpoint.digest] for final in finals if final],
        "end": [report.phase for report in recorder.reports][-1:],
    }
    (folder / f"seen-{rank}.json").write_text(json.dumps(seen))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
