"""What operator and local mode tell the engine: facts of jobs, and policies.

Of these the newest counts, so each has an id of its own: the same policy put back within minutes is no repetition.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection

from trainwarden.controller.bus import Bus
from trainwarden.controller.payloads import encode, encode_policy
from trainwarden.controller.subjects import job_subject, policy_subject, policy_subject_of
from trainwarden.policies.decision import ActionResult
from trainwarden.policies.facts import RunFacts
from trainwarden.policies.memory import derived_id
from trainwarden.policies.models import Policy

__all__ = ["delete_policy", "keep_only_policies", "publish_facts", "publish_policy", "publish_result"]


async def publish_facts(bus: Bus, facts: RunFacts) -> None:
    """Tell what is known of a job now."""
    await bus.store(job_subject("facts", facts.namespace, facts.job), encode(facts), message_id=uuid.uuid4().hex)


async def publish_policy(bus: Bus, policy: Policy) -> None:
    """Tell that a policy is there, or was changed."""
    await bus.store(policy_subject(policy), encode_policy(policy), message_id=uuid.uuid4().hex)


async def delete_policy(bus: Bus, policy: Policy) -> None:
    """Tell that a policy is gone."""
    await bus.store(policy_subject(policy), b"", message_id=uuid.uuid4().hex)


async def keep_only_policies(bus: Bus, present: Collection[tuple[str, str]]) -> None:
    """Tell that all other policies are gone.

    Args:
        bus: The connection.
        present: Namespace, empty for the cluster kind, and name of those that are there.
    """
    info = await bus.request("$JS.API.STREAM.INFO.TW_POLICIES", {"subjects_filter": ">"})
    kept = {policy_subject_of(*each) for each in present}
    for subject in (info["state"].get("subjects") or {}).keys() - kept:
        await bus.store(subject, b"", message_id=uuid.uuid4().hex)


async def publish_result(bus: Bus, result: ActionResult) -> None:
    """Tell what became of an action."""
    subject = job_subject("result", result.namespace, result.job)
    await bus.store(
        subject,
        encode(result),
        message_id=derived_id("result", result.action_id or result.notice_id, result.state, result.reason),
    )
