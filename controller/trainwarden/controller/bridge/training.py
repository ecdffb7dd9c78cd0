"""From what a pod posts to reports of a run: which run it is, its step, and what was logged since. Pure.

A post has no run id, no sequence number, and repeats metrics that were logged long ago. Transformers' KubeflowCallback,
which most posts come from, says 0 % without a step when a training begins, also one that resumes; then the step and the
newest value of all it has ever logged; at the end 100 % without a step, also when the training stopped early.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime

import msgspec

from trainwarden.controller.bridge.numbers import count, split
from trainwarden.controller.bridge.protocol import TrainerStatus
from trainwarden.reporters.wire import Phase, Report

__all__ = ["RUN_PREFIX", "Post", "Sender", "Stored", "Training", "follow", "recover"]

RUN_PREFIX = "bridge."
"""Begins the id of each run that is reported through the bridge."""

_STEP, _TOTAL, _EPOCH, _LOGGED_AT = "current_step", "total_steps", "current_epoch", "epoch"
_WHOLE = 100  # per cent
_GROUPS = ("eval_", "train_", "test_")  # transformers' prefixes of what is logged together


@dataclass(frozen=True, slots=True)
class Sender:
    """A pod that may report for a job."""

    namespace: str
    job: str
    pod_uid: str
    host: str  # its host name, which ties a run to an attempt


@dataclass(frozen=True, slots=True)
class Post:
    """One post, and what is owed from those that it stands in for because NATS was away."""

    sender: Sender
    status: TrainerStatus
    dropped: int = 0  # posts before it that will not be sent
    began: datetime | None = None  # one of those said that a training began, then

    @property
    def begins(self) -> bool:
        """Whether it says that a training begins."""
        status, texts = self.status, self.status.texts()
        return (
            status.progress_percentage == 0
            and status.estimated_remaining_seconds is None
            and not texts.keys() - {_TOTAL}
        )

    def after(self, earlier: Post) -> Post:
        """This post when it is sent in place of an earlier one."""
        if earlier.sender != self.sender:
            return self
        began = self.began or (earlier.status.last_updated_time if earlier.begins else earlier.began)
        return replace(self, dropped=self.dropped + earlier.dropped + 1, began=began)


class Stored(msgspec.Struct, frozen=True):
    """What is read of the newest report that the stream has of a job, whoever sent it."""

    run: str
    seq: int
    pod: str
    phase: Phase
    step: int
    total: int | None = None
    epoch: float | None = None
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Training:
    """What is known of one run."""

    run: str
    seq: int = 0  # of its next report
    step: int = 0
    total: int | None = None
    epoch: float | None = None
    dropped: int = 0
    stepped: bool = False  # it has said its step, so that without one it has none, and its metrics are a collection
    by_percent: bool = False  # it has said percents alone: these are its steps, of 100
    fresh: bool = True  # nothing but its beginning is known
    late: int = 0  # posts in a row that seemed to come late
    texts: dict[str, str] = field(default_factory=dict)  # metrics of the newest post
    newest: TrainerStatus | None = None


def recover(stored: Stored, pod_uid: str) -> Training | None:
    """What is known of a pod's run after a restart of ours; None when the newest report is of another one."""
    if not stored.run.startswith(f"{RUN_PREFIX}{pod_uid}."):
        return None
    return Training(
        run=stored.run,
        seq=stored.seq + 1,
        step=stored.step,
        total=stored.total,
        epoch=stored.epoch,
        dropped=stored.dropped,
        stepped=stored.epoch is not None,
        by_percent=stored.epoch is None and stored.total == _WHOLE,
        fresh=stored.phase == "init",
    )


def follow(training: Training | None, post: Post) -> tuple[Training, Report | None]:
    """What is known after a post, and the report to send; None for a post that came before, or late."""
    status, texts = post.status, post.status.texts()
    known = training
    if known is not None and known.newest == status and not post.dropped:
        return known, None
    step = count(texts.get(_STEP))
    if known is not None and known.stepped and step is not None and step < known.step:
        before = known.newest
        if before is not None and status.last_updated_time < before.last_updated_time and not known.late:
            return replace(known, late=1), None  # a second one is no accident: the pod's clock was set back
        known = None  # a training whose beginning was not heard
    if post.began is not None and (known is None or not known.fresh):
        known = Training(run_id(post.sender.pod_uid, post.began))
    if known is None or (post.begins and not known.fresh):
        known = Training(run_id(post.sender.pod_uid, status.last_updated_time))
    after = replace(
        _progressed(known, status, texts, step), dropped=known.dropped + post.dropped, newest=status, late=0
    )
    finite, nonfinite = split(_logged(known.texts, texts, after))
    report = Report(
        run=after.run,
        seq=after.seq,
        ts=status.last_updated_time.timestamp(),
        pod=post.sender.host,
        phase=_phase(post, after),
        step=after.step,
        total=after.total,
        epoch=after.epoch,
        metrics=finite,
        nonfinite=nonfinite,
        dropped=after.dropped,
    )
    return replace(after, seq=after.seq + 1, texts=texts), report


def run_id(pod_uid: str, began: datetime) -> str:
    """Another pod has another uid, another training in the same pod another beginning, by that pod's clock."""
    return f"{RUN_PREFIX}{pod_uid}.{int(began.timestamp() * 1e6)}"


def _progressed(known: Training, status: TrainerStatus, texts: dict[str, str], step: int | None) -> Training:
    total = count(texts.get(_TOTAL)) or None
    finite, _ = split({name: texts[name] for name in (_EPOCH, _LOGGED_AT) if name in texts})
    epoch = finite.get(_EPOCH, finite.get(_LOGGED_AT, known.epoch))
    stepped = known.stepped or step is not None
    by_percent = known.by_percent and not stepped and total is None
    percent = status.progress_percentage
    if step is None:
        if stepped or percent is None:
            step = known.step
        elif total is not None:
            step = total * percent // _WHOLE
        elif known.total is not None and not known.by_percent:
            step = known.step  # it counts steps, and does not say which one this is
        else:
            step, total, by_percent = percent, _WHOLE, True
    return replace(
        known,
        step=step,
        total=total or known.total,
        epoch=epoch,
        stepped=stepped,
        by_percent=by_percent,
        fresh=known.fresh and not step and not texts.keys() - {_TOTAL},
    )


def _logged(before: dict[str, str], now: dict[str, str], training: Training) -> dict[str, str]:
    """The metrics that were logged since the post before.

    In a collection these are the changed ones. When something was logged, as its `epoch` tells, those that are logged
    together with a changed one have not changed but come again; when none has, the losses have not.
    """
    metrics = {name: text for name, text in now.items() if name not in (_STEP, _TOTAL, _EPOCH, _LOGGED_AT)}
    if not training.stepped:
        return metrics
    changed = {name for name, text in metrics.items() if before.get(name) != text}
    if now.get(_LOGGED_AT) == before.get(_LOGGED_AT):
        return {name: metrics[name] for name in metrics if name in changed}
    groups = {_group(name) for name in changed} or {""}
    return {name: text for name, text in metrics.items() if _group(name) in groups}


def _group(name: str) -> str:
    return next((prefix for prefix in _GROUPS if name.startswith(prefix)), "")


def _phase(post: Post, training: Training) -> Phase:
    if training.fresh:
        return "init"
    status = post.status
    over = status.progress_percentage == _WHOLE and status.estimated_remaining_seconds == 0
    return "done" if over and training.stepped and _STEP not in status.texts() else "train"
