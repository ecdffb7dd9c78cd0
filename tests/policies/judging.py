"""A run under policies, walked through time: what every test about rules and ladders needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec
import yaml
from tests.policies.runs import T0, Training

from trainwarden.policies.compiling import CompiledPolicy, compile_policy
from trainwarden.policies.decision import ActionResult, ActionState, Decision, Proof
from trainwarden.policies.expressions.engines import engine
from trainwarden.policies.judge import Judgement, apply_result, judge
from trainwarden.policies.loading import policy_from_body
from trainwarden.policies.memory import RunMemory

PROOF = Proof(step=7, path="/ckpt/7", bytes=10, digest="sha256:00")


def policy(rule: str, *, name: str = "guard", generation: int = 1, **spec: Any) -> CompiledPolicy:
    """A policy of one rule, or of several, in YAML; Enforce."""
    given = yaml.safe_load(rule)
    rules = given if isinstance(given, list) else [given]
    body = {
        "apiVersion": "trainwarden.dev/v1alpha1",
        "kind": "TrainingPolicy",
        "metadata": {"name": name, "namespace": "team-a", "uid": f"uid-{name}", "generation": generation},
        "spec": {"mode": "Enforce", "selector": {}, "rules": [{"name": "bad", **each} for each in rules], **spec},
    }
    return compile_policy(policy_from_body(body), engine())


@dataclass
class Walk:
    """A training, its policies and what they have decided so far. Seconds are since T0."""

    policies: list[CompiledPolicy]
    training: Training = field(default_factory=Training)
    memory: RunMemory = field(default_factory=RunMemory)
    all: list[Judgement] = field(default_factory=list)

    def report(self, loss: float, at: float, **more: Any) -> Judgement:
        """A report of a loss, and a look."""
        wait = T0 + timedelta(seconds=at) - self.training.at
        step = (self.training.state.step() or 0) + 1
        self.training.report(more.pop("step", step), {"loss": loss}, wait=wait, **more)
        return self.look(at)

    def look(self, at: float) -> Judgement:
        return self._keep(judge(self.policies, self.training.state, self.memory, moment(at)))

    def result(
        self,
        action_id: str,
        state: ActionState,
        at: float,
        *,
        proof: Proof | None = None,
        reason: str = "Tried",
        by: str = "",
    ) -> Judgement:
        outcome = ActionResult(
            action_id=action_id,
            namespace="team-a",
            job="llama",
            state=state,
            reason=reason,
            message=f"{reason.lower()} by {by}" if by else f"it is {state.value}",
            time=moment(at),
            proof=proof,
            resume_command="resume it" if proof else "",
        )
        return self._keep(apply_result(outcome, self.policies, self.training.state, self.memory, moment(at)))

    def restart(self) -> None:
        """What an engine does that comes up again: memory goes through JSON."""
        self.memory = msgspec.json.decode(msgspec.json.encode(self.memory), type=RunMemory)

    def _keep(self, judgement: Judgement) -> Judgement:
        assert judgement.decisions or not (judgement.requests or judgement.notices)
        self.all.append(judgement)
        return judgement

    @property
    def decisions(self) -> list[Decision]:
        return [decision for judgement in self.all for decision in judgement.decisions]


def moment(at: float) -> datetime:
    return T0 + timedelta(seconds=at)


def told(judgement: Judgement) -> list[str]:
    """Verdicts and action states, in order: `Firing`, `Suspend Requested Due`."""
    return [
        f"{d.action.type.value} {d.action_state.value} {d.reason}" if d.action and d.action_state else d.verdict.value
        for d in judgement.decisions
    ]
