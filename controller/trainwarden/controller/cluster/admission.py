"""The admission webhooks: a policy that can't be used is refused when it is applied, and answers carry their author."""

from __future__ import annotations

from typing import Any

import kopf

from trainwarden.controller.cluster.policies import PLURALS, problems_of
from trainwarden.controller.cluster.training_runs import ANSWERED_BY
from trainwarden.policies.expressions.protocol import CelEngine
from trainwarden.policies.models import GROUP, VERSION
from trainwarden.policies.training_run import APPROVE, DENY, RESUME

__all__ = ["ANSWERS_PATH", "PATHS", "register"]

PATHS = {plural: f"/check-{plural}" for plural in PLURALS}
"""Path of the webhook of each kind of policy, for the ValidatingWebhookConfiguration."""
ANSWERS_PATH = "/answers"
"""Path of the webhook that notes who answers, for the MutatingWebhookConfiguration."""

_ANSWERS = (APPROVE, DENY, RESUME)  # that one of them is taken away, as we do, is no answer


def register(registry: kopf.OperatorRegistry, cel: CelEngine) -> None:
    """Add the handlers.

    Args:
        registry: Of the operator.
        cel: That policies are checked with.
    """

    def check(body: kopf.Body, **_: Any) -> None:
        problem = problems_of(dict(body), cel)[1]
        if problem:
            raise kopf.AdmissionError(problem, code=422)

    for plural, path in PATHS.items():
        kopf.on.validate(GROUP, VERSION, plural, id=path[1:], registry=registry)(check)

    def note_author(body: kopf.Body, userinfo: kopf.UserInfo, patch: kopf.Patch, **more: Any) -> None:
        annotations = body.metadata.annotations
        old = more.get("old")
        before = ((old or {}).get("metadata") or {}).get("annotations") or {}
        answered = any(name in annotations and annotations[name] != before.get(name) for name in _ANSWERS)
        if answered:
            patch.metadata.annotations[ANSWERED_BY] = str(userinfo.get("username", ""))
        elif annotations.get(ANSWERED_BY) != before.get(ANSWERED_BY):
            patch.metadata.annotations[ANSWERED_BY] = before.get(ANSWERED_BY)

    kopf.on.mutate(GROUP, VERSION, "trainingruns", id=ANSWERS_PATH[1:], registry=registry)(note_author)
