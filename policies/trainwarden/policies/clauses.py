"""The clauses that a condition is made of: which of them hold, and what one that holds says in a few words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from trainwarden.policies.expressions.protocol import CelValue, Expression, Limits, Outcome, Scope, UnknownValueError
from trainwarden.policies.expressions.syntax import Binary, Call, Literal, Logic, Name, Node, Select, Syntax, Unary

__all__ = ["Clause", "clauses_of"]

Variables = Mapping[str, CelValue | UnknownValueError]

_FUNCTIONS = {  # what a call that is true says of its first metric
    "plateau": "its {metric} went flat",
    "divergence": "its {metric} diverged",
    "spike": "its {metric} spiked",
    "nonFinite": "its {metric} was not finite",
    "overfitting": "it began to overfit",
    "throughputDrop": "it slowed down",
    "frozen": "its {metric} froze",
    "maskedLoss": "its {metric} hid what is lost",
    "missing": "its {metric} went missing",
    "scaleChange": "its {metric} changed its scale",
    "explosion": "its {metric} exploded",
    "collapse": "its {metric} collapsed",
}
_TOO_MUCH = {  # what stands on the greater side of a comparison
    "progress.sinceStep": "its steps stood still",
    "progress.sinceReport": "it fell silent",
    "progress.sinceBest": "it got no better",
    "checkpoint.age": "it went without a checkpoint",
    "progress.eta": "its end moved out of reach",
    "progress.etaLow": "its end moved out of reach",
    "progress.etaHigh": "its end moved out of reach",
    "progress.finish": "its end moved out of reach",
    "job.cost": "its cost passed a limit",
    "job.projectedCost": "its cost passed a limit",
    "job.gpuHours": "its cost passed a limit",
    "budget.used": "its cost passed a limit",
    "budget.percent": "its cost passed a limit",
}
_TOO_LITTLE = {  # on the lesser side
    "progress.stepsPerSecond": "it slowed down",
    "budget.remaining": "its cost passed a limit",
}
_INVERSE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}


@dataclass(frozen=True, slots=True)
class Clause:
    """A part of a condition that && and || join."""

    text: str  # as written, without a `!` before it
    wanted: bool  # the value with which it speaks for the condition
    test: Expression
    phrase: str = ""  # what it says when it holds, with {metric}; empty when that is not known
    metric: str = ""  # name of the metric of the phrase
    variable: str = ""  # or the policy's variable that has the name

    def look(self, scope: Scope, variables: Variables) -> Outcome:
        """Its value now."""
        return self.test.evaluate(scope, variables)

    def words(self, variables: Variables) -> str:
        """The phrase with the metric's name."""
        name = variables.get(self.variable, "metric") if self.variable else self.metric
        return self.phrase.format(metric=name if isinstance(name, str) else "metric")


def clauses_of(source: str, compiled: Callable[[str], Expression]) -> tuple[Clause, ...]:
    """The clauses of a condition, in order.

    Args:
        source: A condition that has been checked.
        compiled: Makes a part of it ready.
    """
    syntax = Syntax(source, field="", limits=Limits())
    found = []
    for node, wanted in _leaves(syntax.read(), wanted=True):
        text = syntax.text(node.place)
        phrase, metric, variable = _phrase(node, wanted=wanted)
        found.append(Clause(text, wanted, compiled(text), phrase, metric, variable))
    return tuple(found)


def _leaves(node: Node, *, wanted: bool) -> Iterator[tuple[Node, bool]]:
    match node:
        case Logic():
            for item in node.items:
                yield from _leaves(item, wanted=wanted)
        case Unary(operator="!"):
            yield from _leaves(node.operand, wanted=not wanted)
        case _:
            yield node, wanted


def _phrase(node: Node, *, wanted: bool) -> tuple[str, str, str]:
    """Phrase, metric's name and variable of a clause; empty ones when nothing is known of it."""
    match node:
        case Call(target=None) if wanted and node.function in _FUNCTIONS:
            first = node.arguments[0] if node.arguments else None
            metric = first.value if isinstance(first, Literal) and isinstance(first.value, str) else ""
            variable = (_dotted(first) or "").partition("variables.")[2] if first is not None else ""
            return _FUNCTIONS[node.function], metric or "metric", variable
        case Binary() if node.operator in _INVERSE:
            operator = node.operator if wanted else _INVERSE[node.operator]
            greater, lesser = (node.left, node.right) if operator[0] == ">" else (node.right, node.left)
            phrases = [_TOO_MUCH[name] for name in _terms(greater) if name in _TOO_MUCH]
            phrases += [_TOO_LITTLE[name] for name in _terms(lesser) if name in _TOO_LITTLE]
            return (phrases[0] if phrases else ""), "", ""
        case _:
            return "", "", ""


def _terms(node: Node) -> Iterator[str]:
    """Names that make a side greater as they grow."""
    match node:
        case Name() | Select():
            yield _dotted(node) or ""
        case Binary(operator="+"):
            yield from _terms(node.left)
            yield from _terms(node.right)
        case Binary(operator="-" | "*" | "/"):
            yield from _terms(node.left)
        case Call(target=None, function="double" | "int"):
            yield from (name for argument in node.arguments for name in _terms(argument))
        case _:
            return


def _dotted(node: Node) -> str | None:
    """`job.gpus` for a chain of plain names."""
    if isinstance(node, Name):
        return node.name
    if isinstance(node, Select):
        before = _dotted(node.operand)
        return None if before is None else f"{before}.{node.field}"
    return None
