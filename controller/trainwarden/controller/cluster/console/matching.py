"""Which policies are for a job, and why the others are not, as far as the caller may read them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trainwarden.controller.cluster.console.reading import Object, clean, items, text
from trainwarden.policies.facts import JobPhase, RunFacts
from trainwarden.policies.loading import policy_from_body
from trainwarden.policies.models import ClusterTrainingPolicy, LabelSelector, Operator, Policy
from trainwarden.policies.problems import PolicyInvalidError
from trainwarden.policies.selecting import selects

__all__ = ["Candidate", "JobLabels", "candidates"]


@dataclass(frozen=True, slots=True)
class JobLabels:
    """What selectors look at."""

    namespace: str
    job: str
    labels: Mapping[str, str]
    namespace_labels: Mapping[str, str] | None
    """None when the caller may not read the namespace."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A policy, seen from one job."""

    name: str  # as TrainingRuns name it: `namespace/name`, or `name` of a cluster policy
    kind: str
    why_not: str
    """Why it is not for the job; empty when it is."""
    policy: Policy | None
    """None when it can't be read as a policy."""


def candidates(bodies: Sequence[Object], job: JobLabels, now: datetime) -> list[Candidate]:
    """Each policy with the reason why it is not for the job.

    Args:
        bodies: TrainingPolicies and ClusterTrainingPolicies as the API has them.
        job: The job's labels.
        now: Any time; selectors don't depend on it.
    """
    facts = RunFacts(
        namespace=job.namespace,
        job=job.job,
        uid="",
        phase=JobPhase.RUNNING,
        time=now,
        created_at=now,
        attempt="",
        labels=dict(job.labels),
        namespace_labels=dict(job.namespace_labels or {}),
    )
    return [_candidate(body, job, facts) for body in bodies]


def _candidate(body: Object, job: JobLabels, facts: RunFacts) -> Candidate:
    metadata, kind = body["metadata"], str(body["kind"])
    name = f"{metadata['namespace']}/{metadata['name']}" if kind == "TrainingPolicy" else str(metadata["name"])
    ready = next((each for each in items(body.get("status") or {}, "conditions") if each.get("type") == "Ready"), None)
    refused = ready is not None and ready.get("status") == "False"
    try:
        policy = policy_from_body(_plain({key: value for key, value in body.items() if key != "status"}))
    except PolicyInvalidError as error:
        why = text(ready, "message") if ready is not None and refused else clean(str(error))
        return Candidate(name, kind, f"it can't be used: {why}", None)
    if refused and ready is not None:
        return Candidate(name, kind, f"it can't be used: {text(ready, 'message')}", policy)
    if selects(policy, facts):
        return Candidate(name, kind, "", policy)
    return Candidate(name, kind, "; ".join(_missed(policy, job, facts)), policy)


def _missed(policy: Policy, job: JobLabels, facts: RunFacts) -> Iterator[str]:
    """Each condition on labels that does not hold."""
    if isinstance(policy, ClusterTrainingPolicy):
        if job.namespace_labels is None and policy.spec.namespace_selector != LabelSelector():
            yield f"it may be: it selects namespaces by labels, and you may not read those of {job.namespace}"
            return
        for one in _single(policy.spec.namespace_selector):
            if not selects(_with(policy, selector=LabelSelector(), namespace_selector=one), facts):
                yield f"it wants namespaces with {_asked(one)}; {job.namespace} has {_has(one, facts.namespace_labels)}"
        base: Policy = _with(policy, namespace_selector=LabelSelector())
    else:
        base = policy
    for one in _single(policy.spec.selector):
        if not selects(_with(base, selector=one), facts):
            yield f"it wants jobs with {_asked(one)}; this one has {_has(one, facts.labels)}"


def _single(selector: LabelSelector) -> Iterator[LabelSelector]:
    for key, value in selector.match_labels.items():
        yield LabelSelector(match_labels={key: value})
    for each in selector.match_expressions:
        yield LabelSelector(match_expressions=(each,))


def _with(policy: Policy, **fields: Any) -> Policy:
    return policy.model_copy(update={"spec": policy.spec.model_copy(update=fields)})


def _asked(selector: LabelSelector) -> str:
    for key, value in selector.match_labels.items():
        return f"{key}={value}"
    each = selector.match_expressions[0]
    values = f"({', '.join(each.values)})"
    match each.operator:
        case Operator.IN:
            return f"{each.key} in {values}"
        case Operator.NOT_IN:
            return f"{each.key} not in {values}"
        case Operator.EXISTS:
            return f"a label {each.key}"
        case Operator.DOES_NOT_EXIST:
            return f"no label {each.key}"


def _has(selector: LabelSelector, labels: Mapping[str, str]) -> str:
    key = next(iter(selector.match_labels), "") or selector.match_expressions[0].key
    return f"{key}={labels[key]}" if key in labels else "no such label"


def _plain(value: Any) -> Any:
    """Plain dicts and lists of what the client gives."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
