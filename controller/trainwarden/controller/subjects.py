"""Subjects of the streams, and the partition a job belongs to. The reporter's own subjects are in the wire schema."""

from __future__ import annotations

from trainwarden.policies.models import Policy
from trainwarden.reporters.wire import subject_token

__all__ = [
    "PARTITIONS",
    "job_of",
    "job_subject",
    "partition_of",
    "policy_subject",
    "policy_subject_of",
    "stored_reports",
]

PARTITIONS = 16
"""Fixed number of partitions that jobs are spread over."""


def job_subject(kind: str, namespace: str, job: str) -> str:
    """`tw.<kind>.<namespace>.<job>`, for facts, decision, action, result, notice, state and rejected."""
    return f"tw.{kind}.{subject_token(namespace)}.{subject_token(job)}"


def policy_subject(policy: Policy) -> str:
    """`tw.policy.<namespace or _>.<name>` of a policy."""
    return policy_subject_of(policy.metadata.namespace, policy.metadata.name)


def policy_subject_of(namespace: str, name: str) -> str:
    """`tw.policy.<namespace or _>.<name>`; a dot in a name is put as two underscores, which no name has."""
    return f"tw.policy.{namespace or '_'}.{name.replace('.', '__')}"


def stored_reports(partition: int) -> str:
    """Subject under which the reports of a partition are stored."""
    return f"tw.p.{partition}.report.>"


def job_of(subject: str) -> tuple[str, str]:
    """Namespace and job, which are the last two tokens of every job's subject."""
    namespace, job = subject.rsplit(".", 2)[-2:]
    return namespace, job


def partition_of(namespace: str, job: str) -> int:
    """The partition that nats-server's `partition(16,1,2)` gives: FNV-1a of both tokens, modulo the number."""
    value = 0x811C9DC5
    for byte in f"{namespace}{job}".encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value % PARTITIONS
