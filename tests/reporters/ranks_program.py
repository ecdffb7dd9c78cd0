"""One rank of a training that tests start: `ranks_program.py FOLDER WHAT`; each rank writes what it saw to FOLDER."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

from trainwarden.reporters import Recorder
from trainwarden.reporters.agreement import Agreement
from trainwarden.reporters.torch import TrainingLoop
from trainwarden.reporters.wire import Command, Reply

STEPS = 400


def die() -> None:
    os._exit(9)


def main(folder: Path, what: str) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    alone = what in ("dies alone", "silent")  # no collective, so that the ranks don't need each other
    if rank == 1 and what.startswith("dies"):
        Agreement._promise = lambda self, command: die()  # type: ignore[method-assign]  # in the middle of a hand-shake
    if rank == 1 and what == "silent":
        Agreement._promise = lambda self, command: None  # type: ignore[method-assign]

    saved: list[int] = []

    def save(step: int) -> Path:
        saved.append(step)
        path = folder / f"step-{step}"
        path.mkdir(exist_ok=True)
        time.sleep(0.3 * rank)  # rank 0 is done long before rank 1
        (path / f"rank-{rank}").write_text(str(step))
        return path

    replies: list[list[Reply]] = []
    with Recorder() as recorder, TrainingLoop(total=STEPS, save=save) as loop:
        loss = torch.zeros(1)
        for step, _ in loop.steps(range(STEPS)):
            if rank == 0 and step == 5:
                brief = Command(id="c1", run="", op="checkpoint", hold=True, timeout=4.0, holdFor=60.0)
                replies.append(recorder.send(brief))
                threading.Thread(target=release, args=(recorder, replies[0])).start()
            if rank == 0 and step == STEPS // 2 and not alone:
                replies.append(recorder.send(Command(id="c2", run="", op="stop", timeout=20.0)))
            if rank == 1:
                time.sleep(0.02 if what in ("slow", "silent") else 0.002)
            else:
                time.sleep(0.005)
            if not alone:
                dist.all_reduce(loss)
    finals = [recorder.wait(each) for each in replies]
    seen = {
        "saved": saved,
        "steps": loop.step,
        "replies": [
            [final.state, final.reason, final.checkpoint and final.checkpoint.digest] for final in finals if final
        ],
        "phases": [report.phase for report in recorder.reports],
    }
    (folder / f"seen-{rank}.json").write_text(json.dumps(seen))


def release(recorder: Recorder, replies: list[Reply]) -> None:
    """As trainwarden does: once the checkpoint is proven."""
    if recorder.wait(replies, timeout=30.0) is not None:
        recorder.send(Command(id="r", run="", op="release"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
