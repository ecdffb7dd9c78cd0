"""What a job's owner wishes in annotations of the TrainJob: to be left alone, for ever or for a while."""

from __future__ import annotations

from datetime import UTC, datetime

from trainwarden.policies.facts import RunFacts
from trainwarden.policies.models import ClusterTrainingPolicy, Policy

__all__ = ["OPT_OUT", "SILENCE", "SILENCED", "is_silenced", "opted_out", "silenced_until"]

OPT_OUT = "trainwarden.dev/opt-out"
"""Annotation: "true" makes policies only say what they would have done."""
SILENCE = "trainwarden.dev/silence-until"
"""Annotation: nothing is told or done until then, RFC 3339."""

SILENCED = "the job's owner has silenced its policies"
"""Why a step waits then."""


def opted_out(policy: Policy, facts: RunFacts) -> bool:
    """Whether a policy may only say what it would have done to a job."""
    return facts.annotations.get(OPT_OUT, "").lower() == "true" and not _overrules(policy)


def silenced_until(policy: Policy, facts: RunFacts) -> datetime | None:
    """Until when a policy is silent about a job; None when it is not, or the annotation is no moment."""
    text = facts.annotations.get(SILENCE)
    if text is None or _overrules(policy):
        return None
    try:
        until = datetime.fromisoformat(text)
    except ValueError:
        return None
    return until if until.tzinfo is not None else until.replace(tzinfo=UTC)


def is_silenced(policy: Policy, facts: RunFacts, now: datetime) -> bool:
    """Whether a policy is silent about a job now."""
    until = silenced_until(policy, facts)
    return until is not None and now < until


def _overrules(policy: Policy) -> bool:
    return isinstance(policy, ClusterTrainingPolicy) and policy.spec.overrules_owners
