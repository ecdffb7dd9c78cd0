"""Policies that stand in the API: read, told to the engine, and marked Ready or not, by kopf handlers."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import kopf
from lightkube import AsyncClient

from trainwarden.controller.bus import Bus
from trainwarden.controller.cluster.resources import ClusterTrainingPolicy, TrainingPolicy
from trainwarden.controller.publishing import publish_policy, told_policies, withdraw_policies
from trainwarden.controller.subjects import policy_subject_of
from trainwarden.policies.compiling import compile_policy
from trainwarden.policies.condition import Condition
from trainwarden.policies.crd import PolicyStatus
from trainwarden.policies.decision import Mode
from trainwarden.policies.expressions.protocol import CelEngine
from trainwarden.policies.loading import policy_from_body
from trainwarden.policies.models import GROUP, VERSION, Policy
from trainwarden.policies.problems import PolicyInvalidError

__all__ = ["PolicyKinds", "problems_of"]

log = logging.getLogger(__name__)

PLURALS = ("trainingpolicies", "clustertrainingpolicies")


def problems_of(body: Mapping[str, Any], cel: CelEngine) -> tuple[Policy | None, str]:
    """The policy that an object holds, and what is wrong with it; one of the two is empty."""
    cleaned = {name: value for name, value in body.items() if name != "status"}
    try:
        policy = policy_from_body(cleaned)
        compile_policy(policy, cel)
    except PolicyInvalidError as error:
        return None, str(error)
    except Exception as error:  # a policy is what a user wrote
        return None, f"{type(error).__name__}: {error}"
    return policy, ""


class PolicyKinds:
    """Registers the handlers of TrainingPolicy and ClusterTrainingPolicy.

    Args:
        bus: Where policies are told.
        cel: That they are checked with.
        audit: Whether the engine is told that all are in Audit, whatever they say.
    """

    def __init__(self, bus: Bus, cel: CelEngine, *, audit: bool = False) -> None:
        self._bus, self._cel, self._audit = bus, cel, audit
        self._told: dict[str, tuple[str, int, bool]] = {}
        self._published: set[str] = set()  # subjects of policies that were told since the newest comparison began
        self._gone: set[str] = set()  # subjects of policies that are not there, and are told to be gone

    def register(self, registry: kopf.OperatorRegistry) -> None:
        """Add the handlers."""
        for plural in PLURALS:
            kopf.on.event(GROUP, VERSION, plural, id=f"{plural}-changed", registry=registry)(self._changed)

    async def withdraw_missing(self, client: AsyncClient) -> None:
        """Make what the engine is told the same as what is there, whatever a watch or a stream has lost.

        Policies whose deletion was missed are taken back; those that are there and are not told, are.

        Raises:
            lightkube.ApiError: They can't be read.
        """
        reader: Any = client
        self._published.clear()
        told = await told_policies(self._bus)  # before the list, and what is made meanwhile is not taken back
        kinds: tuple[tuple[Any, dict[str, str]], ...] = (
            (TrainingPolicy, {"namespace": "*"}),
            (ClusterTrainingPolicy, {}),
        )
        for kind, options in kinds:
            async for body in reader.list(kind, **options):
                if _subject_of(body) in told:
                    told.discard(_subject_of(body))
                elif "deletionTimestamp" not in body["metadata"]:
                    await self._tell(dict(body))
        for subject in told - self._gone:
            if subject not in self._published:
                await withdraw_policies(self._bus, [subject])
        self._gone = told - self._published

    async def _tell(self, body: dict[str, Any]) -> None:
        policy, _ = problems_of(body, self._cel)
        if policy is not None:
            self._published.add(_subject_of(body))
            self._gone.discard(_subject_of(body))
            await publish_policy(self._bus, _in_audit(policy) if self._audit else policy)

    async def _changed(self, type: str | None, body: kopf.Body, patch: kopf.Patch, **_: Any) -> None:  # noqa: A002
        plain = dict(body)
        metadata = plain["metadata"]
        uid, generation = str(metadata["uid"]), int(metadata["generation"])
        policy, problem = problems_of(plain, self._cel)
        if type == "DELETED" or "deletionTimestamp" in metadata:
            self._told.pop(uid, None)
            await withdraw_policies(self._bus, [_subject_of(plain)])
            return
        if self._told.get(uid) != (str(metadata["name"]), generation, policy is not None):
            if policy is not None:
                await self._tell(plain)
            else:
                await withdraw_policies(self._bus, [_subject_of(plain)])  # nothing broken is ever acted on
            self._told[uid] = (str(metadata["name"]), generation, policy is not None)
        status = _status(plain, policy, problem, audit=self._audit)
        if not _same(plain.get("status") or {}, status):
            patch.status.update(status)


def _subject_of(body: Mapping[str, Any]) -> str:
    metadata = body["metadata"]
    return policy_subject_of(str(metadata.get("namespace", "")), str(metadata["name"]))


def _in_audit(policy: Policy) -> Policy:
    return policy.model_copy(update={"spec": policy.spec.model_copy(update={"mode": Mode.AUDIT})})


def _status(body: Mapping[str, Any], policy: Policy | None, problem: str, *, audit: bool) -> dict[str, Any]:
    generation = int(body["metadata"]["generation"])
    status = "True" if policy is not None else "False"
    known = ((body.get("status") or {}).get("conditions") or [{}])[0]
    since = known.get("lastTransitionTime") if known.get("status") == status else None
    accepted = ""
    if policy is not None:
        switched = audit and policy.spec.mode is not Mode.AUDIT
        mode = "Audit mode: the operator runs with --audit" if switched else f"{policy.spec.mode} mode"
        accepted = f"it is judged by the engine, in {mode}"
    condition = Condition(
        type="Ready",
        status="True" if policy is not None else "False",
        observed_generation=generation,
        last_transition_time=datetime.fromisoformat(since) if since else datetime.now(UTC).replace(microsecond=0),
        reason="Accepted" if policy is not None else "Invalid",
        message=accepted or problem[:30_000],
    )
    made = PolicyStatus(
        observed_generation=generation,
        rules=len(policy.spec.rules) if policy is not None else 0,
        conditions=(condition,),
    )
    return made.model_dump(mode="json", by_alias=True)


def _same(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    def told(status: Mapping[str, Any]) -> object:
        conditions = [
            {name: each.get(name) for name in ("status", "reason", "message")}
            for each in status.get("conditions") or ()
        ]
        return status.get("observedGeneration"), status.get("rules"), conditions

    return told(old) == told(new)
