"""Whether a policy is for a job, by labels."""

from __future__ import annotations

from collections.abc import Mapping

from trainwarden.policies.facts import RunFacts
from trainwarden.policies.models import ClusterTrainingPolicy, LabelSelector, Operator, Policy, Requirement

__all__ = ["holds", "selects"]


def selects(policy: Policy, facts: RunFacts) -> bool:
    """Whether namespace and labels are those that the policy is for; `match` is asked elsewhere."""
    if isinstance(policy, ClusterTrainingPolicy):
        if not holds(policy.spec.namespace_selector, facts.namespace_labels):
            return False
    elif policy.metadata.namespace not in ("", facts.namespace):
        return False
    return holds(policy.spec.selector, facts.labels)


def holds(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Whether labels are those that a selector picks."""
    for key, value in selector.match_labels.items():
        if labels.get(key) != value:
            return False
    return not selector.match_expressions or all(_meets(each, labels) for each in selector.match_expressions)


def _meets(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case Operator.IN:
            return value in requirement.values
        case Operator.NOT_IN:  # as in Kubernetes, also true without the label
            return value not in requirement.values
        case Operator.EXISTS:
            return value is not None
        case Operator.DOES_NOT_EXIST:
            return value is None
