"""The policies of a backtest, from files and presets: in Audit mode, and for every run."""

from __future__ import annotations

from collections.abc import Sequence

from trainwarden.policies.compiling import CompiledPolicy, compile_policy
from trainwarden.policies.decision import Mode
from trainwarden.policies.expressions.engines import engine
from trainwarden.policies.models import ClusterTrainingPolicy, LabelSelector, Policy

__all__ = ["RepeatedNameError", "as_judges", "compiled"]


class RepeatedNameError(ValueError):
    """Two policies have one name, so that what they find could not be told apart."""

    def __init__(self, name: str) -> None:
        super().__init__(f"two policies of the name {name!r}; give each its own")


def as_judges(policies: Sequence[Policy], *, by_labels: bool) -> list[Policy]:
    """The policies as they judge recordings: only telling, in any namespace, named by their name alone.

    Args:
        policies: As written.
        by_labels: Keep their selectors, since the labels of the runs are given; else each is for every run.

    Raises:
        RepeatedNameError: Two have one name.
    """
    made: list[Policy] = []
    names: set[str] = set()
    for policy in policies:
        name = policy.metadata.name
        if name in names:
            raise RepeatedNameError(name)
        names.add(name)
        spec: dict[str, object] = {"mode": Mode.AUDIT}
        if not by_labels:
            spec["selector"] = LabelSelector()
        if isinstance(policy, ClusterTrainingPolicy):
            spec["namespace_selector"] = LabelSelector()
        made.append(
            policy.model_copy(
                update={
                    "metadata": policy.metadata.model_copy(update={"namespace": "", "uid": f"backtest/{name}"}),
                    "spec": policy.spec.model_copy(update=spec),
                }
            )
        )
    return made


def compiled(policies: Sequence[Policy]) -> list[CompiledPolicy]:
    """Compile them, each of which is known to be right."""
    cel = engine(None)
    return [compile_policy(policy, cel) for policy in policies]
