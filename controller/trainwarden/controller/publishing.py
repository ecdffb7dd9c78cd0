"""What operator and local mode tell the engine: facts of jobs, and policies.

Of these the newest counts, so each has an id of its own: the same policy put back within minutes is no repetition.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from trainwarden.controller.bus import Bus
from trainwarden.controller.payloads import encode, encode_policy
from trainwarden.controller.subjects import job_subject, policy_subject
from trainwarden.policies.decision import ActionResult
from trainwarden.policies.facts import RunFacts
from trainwarden.policies.memory import derived_id
from trainwarden.policies.models import Policy

__all__ = ["delete_policy", "publish_facts", "publish_policy", "publish_result", "told_policies", "withdraw_policies"]


async def publish_facts(bus: Bus, facts: RunFacts) -> None:
    """Tell what is known of a job now."""
    await bus.store(job_subject("facts", facts.namespace, facts.job), encode(facts), message_id=uuid.uuid4().hex)


async def publish_policy(bus: Bus, policy: Policy) -> None:
    """Tell that a policy is there, or was changed."""
    await bus.store(policy_subject(policy), encode_policy(policy), message_id=uuid.uuid4().hex)


async def delete_policy(bus: Bus, policy: Policy) -> None:
    """Tell that a policy is gone."""
    await bus.store(policy_subject(policy), b"", message_id=uuid.uuid4().hex)


async def told_policies(bus: Bus) -> set[str]:
    """Subjects of the policies that are told to be there."""
    info = await bus.request("$JS.API.STREAM.INFO.TW_POLICIES", {"subjects_filter": ">"})
    return set(info["state"].get("subjects") or ())


async def withdraw_policies(bus: Bus, subjects: Iterable[str]) -> None:
    """Tell that the policies of some subjects are gone."""
    for subject in subjects:
        await bus.store(subject, b"", message_id=uuid.uuid4().hex)


async def publish_result(bus: Bus, result: ActionResult) -> None:
    """Tell what became of an action."""
    subject = job_subject("result", result.namespace, result.job)
    await bus.store(
        subject,
        encode(result),
        message_id=derived_id("result", result.action_id or result.notice_id, result.state, result.reason),
    )
