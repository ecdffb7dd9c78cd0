"""What operator and local mode tell the engine: facts of jobs, and policies."""

from __future__ import annotations

import hashlib

from trainwarden.controller.bus import Bus
from trainwarden.controller.payloads import encode, encode_policy
from trainwarden.controller.subjects import job_subject, policy_subject
from trainwarden.policies.decision import ActionResult
from trainwarden.policies.facts import RunFacts
from trainwarden.policies.memory import derived_id
from trainwarden.policies.models import Policy

__all__ = ["delete_policy", "publish_facts", "publish_policy", "publish_result"]


async def publish_facts(bus: Bus, facts: RunFacts) -> None:
    """Tell what is known of a job now."""
    data = encode(facts)
    subject = job_subject("facts", facts.namespace, facts.job)
    await bus.store(subject, data, message_id=hashlib.sha256(data).hexdigest()[:32])


async def publish_policy(bus: Bus, policy: Policy) -> None:
    """Tell that a policy is there, or was changed."""
    data = encode_policy(policy)
    await bus.store(policy_subject(policy), data, message_id=hashlib.sha256(data).hexdigest()[:32])


async def delete_policy(bus: Bus, policy: Policy) -> None:
    """Tell that a policy is gone."""
    meta = policy.metadata
    await bus.store(policy_subject(policy), b"", message_id=derived_id("gone", meta.uid, meta.name, meta.generation))


async def publish_result(bus: Bus, result: ActionResult) -> None:
    """Tell what became of an action."""
    subject = job_subject("result", result.namespace, result.job)
    await bus.store(subject, encode(result), message_id=derived_id("result", result.action_id, result.state))
