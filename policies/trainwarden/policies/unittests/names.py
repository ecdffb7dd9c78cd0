"""Which metrics policies can read, so that a mistyped one in a test is found."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from trainwarden.policies.compiling import CompiledPolicy
from trainwarden.policies.expressions.protocol import Expression, Limits
from trainwarden.policies.expressions.syntax import (
    Binary,
    Call,
    Index,
    Listing,
    Literal,
    Logic,
    Name,
    Node,
    Select,
    Syntax,
    Ternary,
    Unary,
)
from trainwarden.policies.variables import MAIN_LOSSES
from trainwarden.policies.vocabulary import FUNCTIONS, Type

__all__ = ["is_beside", "metrics_read"]

_MACROS = ("all", "exists", "exists_one", "filter", "map")
_BESIDE = re.compile(
    r"grad_norm|(?:.*[/_ -])?(?:lr|learning[-_ ]rate)(?:[/-].*)?"
)  # functions of the loss see these, too
_OF_METRICS = tuple(
    f"{function.name}()"
    for function in FUNCTIONS
    if any(name == "metric" for way in function.overloads for name, _ in way.parameters)
)
_TEXTS = ("job.labels", "job.annotations", "job.name", "job.namespace", "job.queue", "job.owner", "job.gpuType")


def is_beside(name: str) -> bool:
    """Whether functions of other metrics look at this one, too: the norm of gradients, or the learning rate."""
    return _BESIDE.fullmatch(name) is not None


def metrics_read(policies: Sequence[CompiledPolicy]) -> frozenset[str] | None:
    """Names of the metrics that some policies read, and all else that they have in quotes; None when any may be one.

    Policies that read none judge time, money and steps alone: to them, any metric is one that the training reports.
    """
    found: set[str] = set()
    if not any(_reads(policy) for policy in policies):
        return None
    for policy in policies:
        judged = [rule.when for rule in policy.rules] + ([policy.match] if policy.match is not None else [])
        variables = [expression for _, expression in policy.variables]
        told = [rule.message for rule in policy.rules if rule.message is not None]
        if any(map(_made, [*judged, *variables])):
            return None
        for expression in (*judged, *variables, *told):
            names = expression.names
            found.update(name.removeprefix("metrics.") for name in names if name.startswith("metrics."))
            found.update(MAIN_LOSSES if "progress.sinceBest" in names else ())
        for expression in (*judged, *variables):
            found.update(filter(None, map(_text, _nodes(_tree(expression)))))
    return frozenset(found)


def _reads(policy: CompiledPolicy) -> bool:
    """Whether it asks for a metric, by its name or by one that is found."""
    judged = [*(rule.when for rule in policy.rules), *(expression for _, expression in policy.variables)]
    if policy.match is not None:
        judged.append(policy.match)
    return any(
        name.startswith("metrics") or name in (*_OF_METRICS, "progress.sinceBest")
        for expression in judged
        for name in expression.names
    )


def _made(expression: Expression) -> bool:
    """Whether it may make the name of a metric from others, or from what is known of the job."""
    reads = "metrics" in expression.names or expression.type is Type.STRING
    if reads and any(name.startswith(_TEXTS) for name in expression.names):
        return True
    for node in _nodes(_tree(expression)):
        if isinstance(node, Call) and node.function in _MACROS and _is_metrics(node.target):
            return True
        if isinstance(node, Binary) and node.operator == "+" and (_text(node.left) or _text(node.right)):
            return True
    return False


def _is_metrics(node: Node | None) -> bool:
    return isinstance(node, Name) and node.name == "metrics"


def _text(node: Node) -> str:
    """What is in quotes; empty for all else."""
    return node.value if isinstance(node, Literal) and isinstance(node.value, str) else ""


def _tree(expression: Expression) -> Node:
    return Syntax(expression.source, field="", limits=Limits()).read()


def _nodes(node: Node) -> Iterator[Node]:
    """A node and all below it."""
    yield node
    for part in _parts(node):
        yield from _nodes(part)


def _parts(node: Node) -> Sequence[Node]:
    match node:
        case Select(operand=operand) | Unary(operand=operand):
            return (operand,)
        case Index(operand=operand, key=key):
            return (operand, key)
        case Call(function="duration" | "timestamp"):
            return ()
        case Call(target=target, arguments=arguments):
            return arguments if target is None else (target, *arguments)
        case Listing(items=items) | Logic(items=items):
            return items
        case Binary(left=left, right=right):
            return (left, right)
        case Ternary(condition=condition, then=then, otherwise=otherwise):
            return (condition, then, otherwise)
        case _:
            return ()
