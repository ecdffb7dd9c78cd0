"""Values for the parameters of a policy, as people give them on a command line: checked, and one error for a fault."""

from __future__ import annotations

import re
from collections.abc import Iterable

from trainwarden.policies.compiling import CompiledPolicy, CompiledRule, compile_policy
from trainwarden.policies.expressions.errors import ExpressionError
from trainwarden.policies.expressions.parts import a, quoted
from trainwarden.policies.expressions.protocol import CelEngine, Expression
from trainwarden.policies.expressions.types import CelType
from trainwarden.policies.problems import PolicyInvalidError
from trainwarden.policies.tuning.branches import branches_of
from trainwarden.policies.vocabulary import VARIABLES, Type

__all__ = ["ParameterError", "check_value", "example_of", "parameters_read"]

_TEXT = re.compile(r"[\w./:@%-]+(?: [\w./:@%-]+)*")
_WORD = re.compile(r"[A-Za-z_][\w./-]*")
_ROOTS = ("variables", *sorted({each.name.partition(".")[0] for each in VARIABLES}))
_MOST_WAYS = 2  # of a call, in a remedy
_EXAMPLES = {
    Type.BOOL: ("a bool", "true"),
    Type.INT: ("a whole number", "500"),
    Type.DOUBLE: ("a number", "0.01"),
    Type.STRING: ("a text", "eval/loss"),
    Type.DURATION: ("a duration", 'duration("2h")'),
}


class ParameterError(ValueError):
    """A parameter can't have a value. Its author must act; the text is `found; remedy`."""


def check_value(policy: CompiledPolicy, engine: CelEngine, name: str, text: str) -> str:
    """The CEL of a value for a parameter, known to fit; a bare text such as `eval/wer` is one where a text belongs.

    Args:
        policy: As it is without the value.
        engine: That compiled it.
        name: A variable of it.
        text: What was given: CEL, or a bare text.

    Raises:
        ParameterError: It is no CEL, or not of a type that the policy can use there.
    """
    types: dict[str, Type] = {}
    for variable, expression in policy.variables:
        if variable == name:
            break
        types[variable] = expression.type
    own = dict(policy.variables)[name]
    try:
        given = engine.compile(text, field=name, result=None, variables=types)
    except ExpressionError as error:
        if own.type is Type.STRING and _TEXT.fullmatch(text) and text.partition(".")[0] not in _ROOTS:
            return quoted(text)
        where = f"at {error.line}:{error.column}: " if (error.line, error.column) != (1, 1) else ""
        raise ParameterError(f"{where}{error.found}; {_remedy(name, text, own, error)}") from error
    if given.type is own.type or _fits(policy, engine, name, text):
        return text
    if own.type is Type.DOUBLE and re.fullmatch(r"-?\d+", text):
        return f"{text}.0"
    right = _name_alone(name, text) if own.type is Type.STRING else ""
    raise ParameterError(f"it is {a(CelType(given.type.value))}; {right or example_of(name, own)}")


def example_of(name: str, own: Expression) -> str:
    """What would be right for a parameter, by what it is now: `a number is right, such as tolerance=0.0055`."""
    what, example = _EXAMPLES.get(own.type, (f"a {own.type.value}", own.source))
    last = branches_of(own.source)[-1].text
    if re.fullmatch(r"[\d.]+|duration\(\"\w+\"\)|true|false", last):
        example = last
    return f"{what} is right, such as {name}={example if re.fullmatch(_TEXT, example) else _in_shell(example)}"


def _name_alone(name: str, text: str) -> str:
    """What would be right where the value of a metric was given for its name; nothing for another text."""
    bare = text.removeprefix("metrics.")
    right = bare != text and _TEXT.fullmatch(bare) and bare.partition(".")[0] not in _ROOTS
    return f"the name alone is right: {name}={bare}" if right else ""


def _in_shell(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _remedy(name: str, text: str, own: Expression, error: ExpressionError) -> str:
    if own.type is Type.STRING:
        return _name_alone(name, text) or error.remedy
    if _WORD.fullmatch(text) and error.found.startswith("unknown name"):
        return example_of(name, own)
    first, *ways = error.remedy.split("; ")
    if len(ways) >= _MOST_WAYS:
        return f"{first}, or in {len(ways)} other ways, which docs/expressions.md tells"
    return error.remedy


def _fits(policy: CompiledPolicy, engine: CelEngine, name: str, text: str) -> bool:
    """Whether the policy takes a value of another type, as it takes a number of steps for a duration."""
    written = policy.policy
    variables = tuple(
        each.model_copy(update={"expression": text}) if each.name == name else each for each in written.spec.variables
    )
    spec = written.spec.model_copy(update={"variables": variables})
    try:
        compile_policy(written.model_copy(update={"spec": spec}), engine)
    except PolicyInvalidError:
        return False
    return True


def parameters_read(policy: CompiledPolicy, rules: Iterable[CompiledRule]) -> frozenset[str]:
    """Parameters on which it depends whether some rules fire, also through others and through the policy's match."""
    known = dict(policy.variables)
    left = [rule.when for rule in rules]
    if policy.match is not None and left:
        left.append(policy.match)
    found: set[str] = set()
    while left:
        for name in left.pop().names:
            variable = name.removeprefix("variables.")
            if variable != name and variable in known and variable not in found:
                found.add(variable)
                left.append(known[variable])
    return frozenset(found)
