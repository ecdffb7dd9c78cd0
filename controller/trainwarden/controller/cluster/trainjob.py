"""Reads one TrainJob and what belongs to it as RunFacts. Pure; right for Trainer 2.0 to 2.3, with Kueue or without.

Trainer has no Running condition, no start time and no restart count. So the phase comes from the conditions and the
pods, and an attempt is known by the pod of rank 0: a restart, a resume or a new JobSet each make a new one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from trainwarden.policies.facts import JobPhase, RunFacts

__all__ = [
    "DEADLINE",
    "MANAGED_BY_KUEUE",
    "OWNER",
    "PRICE",
    "Related",
    "conditions_of",
    "facts_of",
    "trainer_pods",
]

Object = Mapping[str, Any]

DEADLINE = "trainwarden.dev/deadline"
"""Annotation of a TrainJob: when it must be done, RFC 3339."""
PRICE = "trainwarden.dev/price-per-hour"
"""Annotation of a TrainJob: price of the whole job per hour."""
_OURS = "trainwarden.dev/"
OWNER = "trainwarden.dev/owner"
"""Annotation of a TrainJob: who is asked about it."""
MANAGED_BY_KUEUE = "kueue.x-k8s.io/queue-name"
_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
_INDEX = "batch.kubernetes.io/job-completion-index"
_MOST = 1_000_000
_MOST_TEXT = 64 * 1024  # characters of all annotations of a job together
_INITIALIZERS = frozenset({"dataset-initializer", "model-initializer"})


@dataclass(frozen=True, slots=True)
class Related:
    """What belongs to a TrainJob in the cluster now."""

    jobset: Object | None = None
    pods: Sequence[Object] = ()
    workload: Object | None = None
    namespace: Object | None = None


def facts_of(
    trainjob: Object,
    related: Related,
    before: RunFacts | None,
    now: datetime,
    *,
    price_per_gpu_hour: float | None = None,
) -> RunFacts:
    """All that is known of a job.

    Args:
        trainjob: The TrainJob.
        related: What belongs to it.
        before: The facts before these; attempts and running time go on from them.
        now: The time.
        price_per_gpu_hour: For jobs that carry no price of their own.
    """
    metadata = trainjob["metadata"]
    if before is not None and before.uid != metadata["uid"]:
        before = None
    pods = trainer_pods(related.pods)
    phase = _phase(trainjob, related, pods)
    first = next((pod for pod in pods if _is_first(pod)), None)
    ready = first is not None and phase is JobPhase.RUNNING and all(_is_ready(pod) for pod in pods)
    ending = phase in (JobPhase.SUSPENDED, JobPhase.QUEUED, JobPhase.DELETING)
    attempt, started = _attempt(related.jobset, None if ending else first, before)
    same = before is not None and before.attempt == attempt
    if phase is not JobPhase.RUNNING:
        started = None
    elif ready and started is None:
        started = max(map(_ready_since, pods), default=now)
    annotations = metadata.get("annotations") or {}
    gpus = _gpus(pods) or _gpus_of_workload(related.workload) or (before.gpus if before else 0) or _gpus_asked(trainjob)
    names = tuple(str(pod["spec"].get("hostname") or pod["metadata"]["name"]) for pod in pods)
    return RunFacts(
        namespace=str(metadata["namespace"]),
        job=str(metadata["name"]),
        uid=str(metadata["uid"]),
        phase=phase,
        time=now,
        created_at=_time(metadata["creationTimestamp"]),
        attempt=attempt,
        attempt_started_at=started,
        ready=ready,
        pods=names if names or before is None or not same else before.pods,
        restarts=int(((related.jobset or {}).get("status") or {}).get("restarts") or 0),
        labels=dict(metadata.get("labels") or {}),
        annotations=_bounded(annotations),
        namespace_labels=dict(((related.namespace or {}).get("metadata") or {}).get("labels") or {}),
        gpus=gpus,
        gpu_type=_gpu_type(pods) or (before.gpu_type if before else ""),
        nodes=max(1, len(pods)) if pods else (before.nodes if before else _nodes_asked(trainjob)),
        queue=str((metadata.get("labels") or {}).get(MANAGED_BY_KUEUE, "")),
        owner=str(annotations.get(OWNER, "")),
        running_seconds=_running_before(before, attempt, phase, now),
        price_per_hour=_price(annotations, gpus, price_per_gpu_hour),
        deadline=_deadline(annotations),
    )


def trainer_pods(pods: Sequence[Object]) -> list[Object]:
    """Pods that train and are not on their way out, rank 0 first; initializers are none of them."""
    chosen = [
        pod
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"]
        and (pod["metadata"].get("labels") or {}).get(_JOB) not in _INITIALIZERS
        and (pod.get("status") or {}).get("phase") not in ("Failed", "Succeeded")
    ]
    return sorted(chosen, key=_rank)


def conditions_of(item: Object | None) -> dict[str, Object]:
    """The conditions of an object that are True, by type."""
    listed = ((item or {}).get("status") or {}).get("conditions") or []
    return {each["type"]: each for each in listed if each.get("status") == "True"}


def _phase(trainjob: Object, related: Related, pods: Sequence[Object]) -> JobPhase:
    if "deletionTimestamp" in trainjob["metadata"]:
        return JobPhase.DELETING
    holding = conditions_of(trainjob)
    if "Failed" in holding:
        return JobPhase.FAILED
    if "Complete" in holding:
        return JobPhase.COMPLETE
    if (trainjob.get("spec") or {}).get("suspend"):
        workload = related.workload
        waiting = workload is not None and (workload.get("spec") or {}).get("active", True)
        return JobPhase.QUEUED if waiting else JobPhase.SUSPENDED
    if pods and all((pod.get("status") or {}).get("phase") == "Running" for pod in pods):
        return JobPhase.RUNNING
    return JobPhase.PENDING


def _attempt(jobset: Object | None, first: Object | None, before: RunFacts | None) -> tuple[str, datetime | None]:
    """Name of the attempt and since when its pods are ready.

    It is that of the pod of rank 0. Where there is none, as while pods go away one by one, it is still the one before.
    """
    if first is None:
        return (before.attempt, before.attempt_started_at) if before else ("none", None)
    uid = str(((jobset or {}).get("metadata") or {}).get("uid", ""))[:8]
    attempt = f"{uid}-{str(first['metadata']['uid'])[:8]}"
    return attempt, before.attempt_started_at if before is not None and before.attempt == attempt else None


def _running_before(before: RunFacts | None, attempt: str, phase: JobPhase, now: datetime) -> float:
    """Seconds of all attempts that are over."""
    if before is None:
        return 0.0
    over = before.attempt != attempt or (phase is not JobPhase.RUNNING and before.phase is JobPhase.RUNNING)
    if over and before.attempt_started_at is not None and before.phase is JobPhase.RUNNING:
        return before.running_seconds + max(0.0, (now - before.attempt_started_at).total_seconds())
    return before.running_seconds


def _is_ready(pod: Object) -> bool:
    return "Ready" in conditions_of(pod)


def _ready_since(pod: Object) -> datetime:
    return _time(str(conditions_of(pod)["Ready"]["lastTransitionTime"]))


def _rank(pod: Object) -> tuple[str, int, str]:
    labels = pod["metadata"].get("labels") or {}
    job, index = str(labels.get(_JOB, "")), str(labels.get(_INDEX, "0"))
    return ("" if job == "launcher" else job, int(index) if index.isdigit() else 0, str(pod["metadata"]["name"]))


def _is_first(pod: Object) -> bool:
    """Whether a pod has rank 0, or no rank at all."""
    return _rank(pod)[1] == 0


def _gpus(pods: Sequence[Object]) -> int:
    return sum(_gpus_of_spec(pod["spec"]) for pod in pods)


def _gpus_of_spec(spec: Object) -> int:
    limits = ((each.get("resources") or {}).get("limits") or {} for each in spec.get("containers") or ())
    return sum(_count(value) for each in limits for name, value in each.items() if name.endswith("/gpu"))


def _gpus_of_workload(workload: Object | None) -> int:
    sets = ((workload or {}).get("spec") or {}).get("podSets") or ()
    return sum(_count(each.get("count", 1)) * _gpus_of_spec(each["template"]["spec"]) for each in sets)


def _gpus_asked(trainjob: Object) -> int:
    trainer = (trainjob.get("spec") or {}).get("trainer") or {}
    limits = (trainer.get("resourcesPerNode") or {}).get("limits") or {}
    each = sum(_count(value) for name, value in limits.items() if name.endswith("/gpu"))
    return each * _nodes_asked(trainjob)


def _nodes_asked(trainjob: Object) -> int:
    return max(1, _count(((trainjob.get("spec") or {}).get("trainer") or {}).get("numNodes") or 1))


def _gpu_type(pods: Sequence[Object]) -> str:
    selectors = (pod["spec"].get("nodeSelector") or {} for pod in pods)
    return next((str(each[key]) for each in selectors for key in each if key.endswith("gpu.product")), "")


def _count(quantity: object) -> int:
    """A number of GPUs or nodes that somebody has written, at most what no cluster has."""
    text = str(quantity)
    return min(int(text), _MOST) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def _bounded(annotations: Object) -> dict[str, str]:
    """Annotations as policies see them: where they are too many, without the largest; an owner's wishes stay."""
    by_size = sorted(annotations.items(), key=lambda each: (not each[0].startswith(_OURS), len(str(each[1]))))
    left, kept = _MOST_TEXT, {}
    for name, value in by_size:
        left -= len(name) + len(str(value))
        if left < 0:
            break
        kept[name] = str(value)
    return {name: kept[name] for name in annotations if name in kept}


def _price(annotations: Object, gpus: int, per_gpu: float | None) -> float | None:
    try:
        price = float(annotations[PRICE])
    except (KeyError, ValueError):
        return per_gpu * gpus if per_gpu is not None and gpus else None
    return price if 0 <= price < float("inf") else None


def _deadline(annotations: Object) -> datetime | None:
    text = annotations.get(DEADLINE)
    if text is None:
        return None
    try:
        deadline = _time(str(text))
    except ValueError:
        return None
    return deadline if deadline.tzinfo is not None else deadline.replace(tzinfo=UTC)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
