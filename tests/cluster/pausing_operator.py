"""The operator, which waits at one point of each action, so that a test can kill it or another role right there.

A job is named after its point, with or without a prefix that ends in a dash. At its point a file `<job>.met` is made in
the folder that TRAINWARDEN_PAUSES names, and the job goes on when there is a file `go`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from trainwarden.controller import executor, publishing
from trainwarden.controller.bus import Bus
from trainwarden.controller.cli import main
from trainwarden.controller.cluster.target import TrainJobTarget
from trainwarden.policies.decision import ActionResult

POINTS = ("begin", "begun", "saved", "ending", "asked", "ended", "done")
"""Before it is told begun, after; before it is told that the end comes, after; the effect was asked for but has not
been seen; it was seen but is not told; it is told."""


async def _pause(job: str, point: str) -> None:
    folder = Path(os.environ["TRAINWARDEN_PAUSES"])
    if job.rpartition("-")[2] != point or (folder / f"{job}.met").exists():
        return
    (folder / f"{job}.met").touch()
    while not (folder / "go").exists():
        await asyncio.sleep(0.05)


_publish, _tried = publishing.publish_result, TrainJobTarget._tried
_BEFORE = {"Begun": "begin", "Ending": "saved", "Suspended": "ended", "Deleted": "ended"}
_AFTER = {"Begun": "begun", "Ending": "ending", "Suspended": "done", "Deleted": "done"}


async def publish(bus: Bus, result: ActionResult) -> None:
    await _pause(result.job, _BEFORE.get(result.reason, ""))
    await _publish(bus, result)
    await _pause(result.job, _AFTER.get(result.reason, ""))


async def tried(self: TrainJobTarget, write: object) -> None:
    await _tried(self, write)  # type: ignore[arg-type]
    await _pause(self._key[1], "asked")


if __name__ == "__main__":
    executor.publish_result = publish  # type: ignore[attr-defined]
    TrainJobTarget._tried = tried  # type: ignore[method-assign]
    sys.exit(main())
