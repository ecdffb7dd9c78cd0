"""A policy with its expressions checked and compiled, ready to judge runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from trainwarden.policies.clauses import Clause, clauses_of
from trainwarden.policies.decision import PolicyRef
from trainwarden.policies.expressions.errors import ExpressionError
from trainwarden.policies.expressions.protocol import CelEngine, Expression
from trainwarden.policies.loading import Loaded, Place
from trainwarden.policies.models import Policy, Rule
from trainwarden.policies.problems import PolicyInvalidError, Problem
from trainwarden.policies.vocabulary import Type

__all__ = ["CompiledPolicy", "CompiledRule", "compile_loaded", "compile_policy"]

_BY_TIME = (
    "progress.since", "progress.eta", "progress.finish", "job.age", "job.runningFor", "job.gpuHours", "job.cost",
    "job.projectedCost", "checkpoint.age", "now", "age()", "sinceBest()",
)  # fmt: skip

_SHOWN = 60  # characters of a message in a remedy


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """One rule, ready."""

    spec: Rule
    when: Expression
    message: Expression | None
    variables: frozenset[str]  # that `when` and `message` read, and those that these read
    condition: str  # `when` and the variables it reads, as written: what an edit of the policy may change
    by_time: bool  # `when` may become true without a report
    clauses: tuple[Clause, ...]  # of `when`


@dataclass(frozen=True, slots=True)
class CompiledPolicy:
    """One policy, ready."""

    policy: Policy
    ref: PolicyRef
    match: Expression | None
    variables: tuple[tuple[str, Expression], ...]
    rules: tuple[CompiledRule, ...]

    @property
    def uid(self) -> str:
        """Identity that outlives edits of the policy."""
        return self.ref.uid


def compile_policy(policy: Policy, engine: CelEngine) -> CompiledPolicy:
    """Check and compile all expressions of a policy.

    Raises:
        PolicyInvalidError: Some can't be used; it holds a Problem for each.
    """
    problems: list[Problem] = []
    types: dict[str, Type] = {}

    def compiled(source: str, field: str, result: Type | None) -> Expression | None:
        try:
            return engine.compile(source, field=field, result=result, variables=types)
        except ExpressionError as error:
            remedy = _as_text(source) if field.endswith(".message") and _is_prose(source) else error.remedy
            problems.append(Problem("", error.line, error.column, field, error.found, remedy))
            return None

    spec = policy.spec
    variables: list[tuple[str, Expression]] = []
    for index, variable in enumerate(spec.variables):
        expression = compiled(variable.expression, f"spec.variables[{index}].expression", None)
        if expression is not None:
            variables.append((variable.name, expression))
            types[variable.name] = expression.type
    match = compiled(spec.match, "spec.match", Type.BOOL) if spec.match else None
    rules: list[CompiledRule] = []
    known = dict(variables)
    for index, rule in enumerate(spec.rules):
        when = compiled(rule.when, f"spec.rules[{index}].when", Type.BOOL)
        message = compiled(rule.message, f"spec.rules[{index}].message", Type.STRING) if rule.message else None
        if when is not None:

            def part(text: str, whole: Expression = when, field: str = f"spec.rules[{index}].when") -> Expression:
                same = text == whole.source.strip()
                return whole if same else engine.compile(text, field=field, result=Type.BOOL, variables=types)

            rules.append(_rule(rule, when, message, match, known, clauses_of(rule.when, part)))
    if problems:
        raise PolicyInvalidError(problems)
    meta = policy.metadata
    ref = PolicyRef(
        kind=policy.kind,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid or f"{policy.kind}/{meta.namespace}/{meta.name}",
        generation=meta.generation,
        mode=spec.mode,
    )
    return CompiledPolicy(policy, ref, match, tuple(variables), tuple(rules))


def _is_prose(source: str) -> bool:
    """Whether a message is a plain sentence rather than CEL."""
    return not any(sign in source for sign in "\"'+(")


def _as_text(source: str) -> str:
    shown = source.strip() if len(source) < _SHOWN else source[:_SHOWN].strip() + "…"
    return f"a message is CEL, so plain text stands in quotes within quotes: message: '\"{shown}\"'"


def _rule(
    spec: Rule,
    when: Expression,
    message: Expression | None,
    match: Expression | None,
    variables: Mapping[str, Expression],
    clauses: tuple[Clause, ...],
) -> CompiledRule:
    judged = _variables_in(when, variables)
    told = _variables_in(message, variables) if message is not None else frozenset()
    read = [when, *(variables[name] for name in judged), *([match] if match is not None else [])]
    return CompiledRule(
        spec,
        when,
        message,
        variables=judged | told,
        condition="\n".join([spec.when, *(f"{name}: {variables[name].source}" for name in sorted(judged))]),
        by_time=any(name.startswith(_BY_TIME) for expression in read for name in expression.names),
        clauses=clauses,
    )


def _variables_in(expression: Expression, variables: Mapping[str, Expression]) -> frozenset[str]:
    """Variables that an expression reads, and those that these read."""
    found: set[str] = set()
    left = [expression]
    while left:
        for name in left.pop().names:
            variable = name.removeprefix("variables.")
            if variable != name and variable in variables and variable not in found:
                found.add(variable)
                left.append(variables[variable])
    return frozenset(found)


def compile_loaded(loaded: Loaded, engine: CelEngine, *, source: str) -> tuple[list[CompiledPolicy], list[Problem]]:
    """Compile what a file held; problems carry their place in the file."""
    compiled: list[CompiledPolicy] = []
    problems = list(loaded.problems)
    for policy, places in zip(loaded.policies, loaded.places, strict=True):
        try:
            compiled.append(compile_policy(policy, engine))
        except PolicyInvalidError as error:
            problems += [_placed(problem, places, source) for problem in error.problems]
    return compiled, problems


def _placed(problem: Problem, places: Mapping[str, Place], source: str) -> Problem:
    """The problem at its place in the file: that of the field; line and column within it go into what was found."""
    place = places.get(problem.field, Place(0, 0))
    found = f"at {problem.line}:{problem.column} of the expression: {problem.found}"
    return replace(problem, source=source, line=place.line, column=place.column, found=found)
