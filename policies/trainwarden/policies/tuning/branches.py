"""The branches of a parameter that depends on the run: `variables.metric == variables.training ? 0.7 : 0.5`."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from trainwarden.policies.compiling import CompiledPolicy
from trainwarden.policies.expressions.errors import ExpressionError
from trainwarden.policies.expressions.protocol import CelEngine, CelValue, Limits, UnknownValueError
from trainwarden.policies.expressions.syntax import Node, Syntax, Ternary
from trainwarden.policies.vocabulary import Type

__all__ = ["Branch", "applying", "branches_of", "with_branch"]


@dataclass(frozen=True, slots=True)
class Branch:
    """One value that a parameter may have."""

    condition: str  # CEL: when it has it; empty when it always has
    text: str
    start: int  # of the text within the expression
    end: int


def branches_of(expression: str) -> tuple[Branch, ...]:
    """The branches of an expression, in order; a single one when it does not depend on a condition, or is not CEL."""
    syntax = Syntax(expression, field="", limits=Limits())
    try:
        tree = syntax.read()
    except ExpressionError:
        return (Branch("", expression, 0, len(expression)),)
    return _branches(syntax, tree, ())


def _branches(syntax: Syntax, node: Node, conditions: tuple[tuple[str, str], ...]) -> tuple[Branch, ...]:
    """Those below a node; each condition is a sign, `!` or none, and what is asked."""
    if not isinstance(node, Ternary):
        alone = len(conditions) == 1
        asked = (f"{sign}({text})" if sign or not alone else text for sign, text in conditions)
        return (Branch(" && ".join(asked), syntax.text(node.place), node.place.start, node.place.end),)
    text = " ".join(syntax.text(node.condition.place).split())
    then = _branches(syntax, node.then, (*conditions, ("", text)))
    return then + _branches(syntax, node.otherwise, (*conditions, ("!", text)))


def with_branch(expression: str, branch: Branch, value: str) -> str:
    """The expression with another value in one of its branches; a value that has branches itself replaces it whole."""
    if not branch.condition or len(branches_of(value)) > 1:
        return value
    return expression[: branch.start] + value + expression[branch.end :]


def applying(policy: CompiledPolicy, engine: CelEngine, branches: tuple[Branch, ...], names: Set[str]) -> int | None:
    """The branch that applies to a run with metrics of these names; None when more must be known of it."""
    scope = _Names(frozenset(names))
    types: dict[str, Type] = {}
    values: dict[str, CelValue | UnknownValueError] = {}
    for name, expression in policy.variables:
        found = expression.evaluate(scope, values)
        types[name] = expression.type
        values[name] = found.value if found.value is not None else UnknownValueError(found.unknown)
    for index, branch in enumerate(branches):
        try:
            asked = engine.compile(branch.condition, field="", result=Type.BOOL, variables=types)
        except ExpressionError:
            return None
        value = asked.evaluate(scope, values).value
        if value is None:
            return None
        if value:
            return index
    return None


class _Names:
    """A Scope that knows the names of a run's metrics, and nothing else."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def variable(self, name: str) -> CelValue:
        raise UnknownValueError(f"{name} is another one at each moment of a run")

    def metric(self, name: str) -> float:
        raise UnknownValueError(f"{name} is another one at each moment of a run")

    def metric_names(self) -> frozenset[str]:
        return self._names

    def call(self, function: str, arguments: tuple[CelValue, ...]) -> CelValue:
        raise UnknownValueError(f"{function} gives another value at each moment of a run")
