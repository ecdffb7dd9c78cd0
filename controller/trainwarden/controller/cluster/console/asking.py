"""What a command asks of the cluster, in several requests: explanations, decisions, answers, resumes, silences."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from trainwarden.controller.cluster.console.answering import check_answer, check_resume, question
from trainwarden.controller.cluster.console.deciding import Entry, decisions
from trainwarden.controller.cluster.console.errors import ConsoleError
from trainwarden.controller.cluster.console.explanation import Explained, explain
from trainwarden.controller.cluster.console.matching import JobLabels, candidates
from trainwarden.controller.cluster.console.reaching import Cluster, Object
from trainwarden.controller.cluster.console.reading import identity
from trainwarden.controller.cluster.resources import TrainingRun, TrainJob
from trainwarden.controller.exit_codes import ExitCode
from trainwarden.policies.training_run import RESUME
from trainwarden.policies.wishes import SILENCE

__all__ = ["Given", "answer", "decided", "explained", "resume", "silence"]

_TRIES = 8  # of a write, when the object changes between reading and writing
_LOOKS = 0.25  # seconds between looks whether an answer was taken


@dataclass(frozen=True, slots=True)
class Given:
    """An answer that stands in the cluster."""

    job: str
    question: str
    taken: bool
    """trainwarden has read it."""


def explained(cluster: Cluster, name: str, now: datetime) -> tuple[Object, Explained]:
    """A TrainingRun, and its explanation from all that the caller may read."""
    run = cluster.run(name)
    unread: list[str] = []
    metadata = run["metadata"]
    trainjob = _allowed(lambda: cluster.trainjob(name), unread)
    of_job = (trainjob or run)["metadata"]
    labels = JobLabels(
        namespace=str(metadata["namespace"]),
        job=name,
        labels={str(key): str(value) for key, value in (of_job.get("labels") or {}).items()},
        namespace_labels=_allowed(lambda: cluster.namespace_labels(str(metadata["namespace"])), unread),
    )
    bodies: list[Object] = []
    for everywhere in (False, True):
        bodies += _allowed(lambda everywhere=everywhere: cluster.policies(everywhere=everywhere), unread) or []  # type: ignore[misc]
    annotations: Mapping[str, str] = (trainjob or {"metadata": {}})["metadata"].get("annotations") or {}
    return run, explain(run, annotations, candidates(bodies, labels, now), unread, now)


def decided(cluster: Cluster, name: str) -> tuple[list[Entry], list[str]]:
    """What was decided about a job, and what the caller may not read."""
    run = cluster.run(name)
    unread: list[str] = []
    uid = str(run["spec"]["uid"])
    return decisions(run, _allowed(lambda: cluster.events(uid), unread) or []), unread


def answer(cluster: Cluster, name: str, wanted: str | None, annotation: str, wait: timedelta) -> Given:
    """Approve or deny an action of a job.

    Args:
        cluster: Where the job is.
        name: The job's.
        wanted: The action; None for the only one that waits.
        annotation: APPROVE or DENY.
        wait: How long to wait until it is taken.

    Raises:
        ConsoleError: Nothing waits for it, or it was refused.
    """
    told = ""
    for _ in range(_TRIES):
        run = cluster.run(name)
        asked = question(run, wanted)
        told = str(asked)
        if check_answer(run, annotation, asked.id):
            break
        if cluster.annotate(TrainingRun, run, {annotation: asked.id}) is not None:
            break
    else:
        raise _busy(cluster, name)
    return Given(identity(run), told, _taken(cluster, run, annotation, wait))


def resume(cluster: Cluster, name: str, wait: timedelta) -> Given:
    """Ask for the resume of a run that trainwarden has suspended.

    Raises:
        ConsoleError: It is not one, or it was refused.
    """
    for _ in range(_TRIES):
        run = cluster.run(name)
        if check_resume(run) or cluster.annotate(TrainingRun, run, {RESUME: _text(datetime.now(UTC))}) is not None:
            break
    else:
        raise _busy(cluster, name)
    return Given(identity(run), "", _taken(cluster, run, RESUME, wait))


def silence(cluster: Cluster, name: str, length: timedelta | None) -> str:
    """Silence a TrainJob; gives until when, RFC 3339, and nothing when a silence was ended.

    Args:
        cluster: Where the job is.
        name: The job's.
        length: From now; None ends it.

    Raises:
        ConsoleError: There is no such TrainJob, or it was refused.
    """
    until = _text(datetime.now(UTC) + length) if length is not None else None
    for _ in range(_TRIES):
        trainjob = cluster.trainjob(name)
        if until is None and SILENCE not in (trainjob["metadata"].get("annotations") or {}):
            return ""
        if cluster.annotate(TrainJob, trainjob, {SILENCE: until}) is not None:
            return until or ""
    raise _busy(cluster, name)


def _allowed(read: Callable[[], Any], unread: list[str]) -> Any:
    """What can be read; None, and why among the unread, when the caller may not."""
    try:
        return read()
    except ConsoleError as error:
        if error.passing:
            raise
        unread.append(str(error))
        return None


def _taken(cluster: Cluster, run: Object, annotation: str, wait: timedelta) -> bool:
    """Whether trainwarden has taken an annotation away, which it does once it has read it."""
    until = time.monotonic() + wait.total_seconds()
    while True:
        time.sleep(min(_LOOKS, max(0.0, until - time.monotonic())))
        now = cluster.run(str(run["metadata"]["name"]))
        if annotation not in (now["metadata"].get("annotations") or {}):
            return True
        if time.monotonic() >= until:
            return False


def _busy(cluster: Cluster, name: str) -> ConsoleError:
    text = f"{cluster.namespace}/{name} changed between reading and writing {_TRIES} times; try again"
    return ConsoleError(text, ExitCode.FAILED, passing=True)


def _text(when: datetime) -> str:
    return when.isoformat(timespec="seconds").replace("+00:00", "Z")
