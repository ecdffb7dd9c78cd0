"""Progress that stands on the TrainJob itself, taken as if it had been posted to the bridge.

`status.trainerStatus` is what Trainer's status server was told; Open Data Hub's annotation is what its controller has
read from the pod. Both stay with their last values when a training hangs, is suspended or ends, and the time in the
annotation is that of the look: so only a change is news. A reporter of ours in the same pod wins over both.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from trainwarden.controller.bridge.pending import Pending
from trainwarden.controller.bridge.protocol import PostedMetric, TrainerStatus
from trainwarden.controller.bridge.training import Post, Sender
from trainwarden.controller.cluster.reflector import Key, Object
from trainwarden.controller.cluster.trainjob import trainer_pods
from trainwarden.controller.cluster.watching import Watcher

__all__ = ["OPEN_DATA_HUB", "PostedProgress", "told_by"]

log = logging.getLogger(__name__)

OPEN_DATA_HUB = "trainer.opendatahub.io/trainerStatus"
_LONGEST = 64  # characters of a metric's name or value, as in Trainer's own status


def told_by(trainjob: Mapping[str, Any]) -> tuple[TrainerStatus | None, str]:
    """What a TrainJob says of its progress, and where; `trainerStatus`, `opendatahub`, or nothing.

    Raises:
        ValueError: It says something that can't be read.
    """
    status = (trainjob.get("status") or {}).get("trainerStatus")
    if status:
        return msgspec.convert(status, TrainerStatus, strict=False), "trainerStatus"
    text = ((trainjob.get("metadata") or {}).get("annotations") or {}).get(OPEN_DATA_HUB)
    return (_open_data_hub(text), "opendatahub") if text else (None, "")


class PostedProgress:
    """Takes what TrainJobs say whenever it is news.

    Args:
        watcher: That knows the pods.
        pending: Where posts wait for their publisher.
    """

    def __init__(self, watcher: Watcher, pending: Pending) -> None:
        self._watcher, self._pending = watcher, pending
        self._said: dict[Key, tuple[str, object]] = {}  # UID of the TrainJob, and what was said last

    def seen(self, key: Key, trainjob: Object | None) -> None:
        """Look at a TrainJob that has changed; None when it is gone."""
        if trainjob is None:
            self._said.pop(key, None)
            return
        try:
            status, where = told_by(trainjob)
        except ValueError as error:
            log.warning("what a TrainJob says of its progress can't be read job=%s reason=%s", "/".join(key), error)
            return
        said: object = None
        if status is not None:
            said = msgspec.structs.replace(status, last_updated_time=datetime.min.replace(tzinfo=UTC))
        uid, before = str(trainjob["metadata"]["uid"]), self._said.get(key)
        self._said[key] = (uid, said)
        pods = trainer_pods(self._watcher.related(key).pods)
        if status is None or not pods:
            return
        if before is not None and before[0] == uid:
            news = before[1] != said  # else it is what an earlier pod has left there
        else:  # seen for the first time: nobody takes away what an earlier attempt has said
            began = datetime.fromisoformat(str(pods[0]["metadata"]["creationTimestamp"]))
            news = where == "trainerStatus" and status.last_updated_time >= began
        if news:
            host = str(pods[0]["spec"].get("hostname") or pods[0]["metadata"]["name"])
            self._pending.offer(Post(Sender(key[0], key[1], str(pods[0]["metadata"]["uid"]), host), status))


class _OpenDataHub(msgspec.Struct, rename="camel"):
    """What stands in the annotation; metrics that were no number are null."""

    progress_percentage: float | None = None
    current_step: int | None = None
    total_steps: int | None = None
    current_epoch: float | None = None
    train_metrics: dict[str, float | str | None] | None = None
    eval_metrics: dict[str, float | str | None] | None = None

    def texts(self) -> dict[str, str]:
        counted = {
            "current_step": self.current_step,
            "total_steps": self.total_steps,
            "current_epoch": self.current_epoch,
        }
        evaluated = {f"eval_{name}": value for name, value in (self.eval_metrics or {}).items()}
        told = {**counted, **(self.train_metrics or {}), **evaluated}
        return {name: f"{value}" for name, value in told.items() if value is not None}


def _open_data_hub(text: str) -> TrainerStatus:
    said = msgspec.json.decode(text, type=_OpenDataHub)
    percent = said.progress_percentage
    return TrainerStatus(
        last_updated_time=datetime.now(UTC),
        progress_percentage=int(percent) if percent is not None and 0 <= percent <= 100 else None,
        metrics=[
            PostedMetric(name=name, value=value)
            for name, value in said.texts().items()
            if len(name) <= _LONGEST and len(value) <= _LONGEST
        ],
    )
