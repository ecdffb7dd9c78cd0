"""YAML text to a test file, and the test file made ready for its policies; problems carry their place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainwarden.policies.compiling import CompiledPolicy, CompiledRule
from trainwarden.policies.documents import Document, Path, Place, close, read_documents, validated, yaml_type
from trainwarden.policies.problems import Problem
from trainwarden.policies.unittests.comparing import Watch
from trainwarden.policies.unittests.models import Expectation, PolicyTests, UnitTest
from trainwarden.policies.unittests.names import is_beside, metrics_read
from trainwarden.policies.unittests.plan import Plan, PlanError, plan

__all__ = ["PolicyTestFile", "Ready", "make_ready", "read_tests"]

_PAGE = "docs/policy-tests.md"
_MOST_NAMED = 12  # metrics that are read, in a remedy


@dataclass(frozen=True, slots=True)
class PolicyTestFile:
    """A test file that was read."""

    document: Document
    tests: PolicyTests


@dataclass(frozen=True, slots=True)
class Ready:
    """One test, ready to be run."""

    test: UnitTest
    place: Place
    plan: Plan
    policies: Sequence[CompiledPolicy]
    watches: tuple[Watch, ...]
    places: tuple[dict[str, Place], ...]  # of each watch: where its keys stand


def read_tests(text: str, *, source: str) -> tuple[PolicyTestFile | None, list[Problem]]:
    """Read a test file. Never raises: what is wrong is among the problems."""
    documents, problems = read_documents(text, source=source, wanted="test file", verbatim=_is_row)
    if problems:
        return None, problems
    if len(documents) != 1:
        found = f"{len(documents)} documents" if documents else "no tests"
        return None, [Problem(source, 1, 1, "", found, "a test file is one document with policies and tests")]
    (document,) = documents
    if not isinstance(document.body, dict):
        return None, [document.problem((), f"a {yaml_type(document.body)}", "a test file has policies and tests")]
    tests, problems = validated(PolicyTests, document, page=_PAGE)
    return (PolicyTestFile(document, tests) if tests is not None else None), problems


def _is_row(path: Path) -> bool:
    """Rows are taken as they are written: `0x10` is ten zeros, not sixteen."""
    if len(path) < 3 or path[0] != "tests":
        return False
    return path[2:] in (("run",), ("epoch",)) or (len(path) == 4 and path[2] == "series")


def make_ready(file: PolicyTestFile, policies: Sequence[CompiledPolicy]) -> tuple[list[Ready], list[Problem]]:
    """Lay out all tests of a file, and find the rules that they expect something of."""
    ready: list[Ready] = []
    problems: list[Problem] = []
    document = file.document
    known = metrics_read(policies)
    for index, test in enumerate(file.tests.tests):
        path: Path = ("tests", index)
        for name in test.series:
            if known is not None and name not in known and not is_beside(name):
                at_name: Path = (*path, "series", name)
                problems.append(document.problem(at_name, "a metric that no policy here reads", _near(name, known)))
        try:
            laid_out = plan(file.tests, test)
        except PlanError as error:
            found, _, remedy = str(error).partition("; ")
            problems.append(document.problem((*path, *error.path), found, remedy))
            continue
        watches: list[Watch] = []
        places: list[dict[str, Place]] = []
        for number, expectation in enumerate(test.expect):
            at: Path = (*path, "expect", number)
            rule = _rule_of(expectation, policies)
            if isinstance(rule, _NoRule):
                problems.append(document.problem((*at, rule.key), rule.found, rule.remedy))
                continue
            watches.append(Watch(expectation, *rule, laid_out.length))
            keys = {str(key[-1]): place for key, place in document.keys.items() if key[:-1] == at}
            places.append({"": document.places[at], **keys})
        ready.append(Ready(test, document.places[path], laid_out, policies, tuple(watches), tuple(places)))
    return ready, problems


def _near(name: str, known: frozenset[str]) -> str:
    """What would be right instead of a metric that no rule reads."""
    read = sorted(known)
    more = f" and {len(read) - _MOST_NAMED} more" if len(read) > _MOST_NAMED else ""
    return close(name, read) or f"leave it out, or write one of {', '.join(read[:_MOST_NAMED])}{more}"


@dataclass(frozen=True, slots=True)
class _NoRule:
    key: str
    found: str
    remedy: str


def _rule_of(
    expectation: Expectation, policies: Sequence[CompiledPolicy]
) -> tuple[CompiledPolicy, CompiledRule] | _NoRule:
    """The rule that something is expected of."""
    chosen = policies
    if expectation.policy is not None:
        chosen = [each for each in policies if each.ref.name == expectation.policy]
        if not chosen:
            names = sorted({each.ref.name for each in policies})
            known = close(expectation.policy, names) or f"there are {', '.join(names)}"
            return _NoRule("policy", f"the policy {expectation.policy!r}", known)
    rules = [(policy, rule) for policy in chosen for rule in policy.rules]
    names = sorted({rule.spec.name for _, rule in rules})
    if expectation.rule is None:
        if len(rules) > 1:
            return _NoRule("rule", "no rule, and there are several", f"add one of {', '.join(names)}")
        return rules[0]
    found = [each for each in rules if each[1].spec.name == expectation.rule]
    if not found:
        known = close(expectation.rule, names) or f"there are {', '.join(names)}"
        return _NoRule("rule", f"the rule {expectation.rule!r}", known)
    if len(found) > 1:
        owners = ", ".join(policy.ref.name for policy, _ in found)
        return _NoRule("rule", f"the rule {expectation.rule!r} of several policies", f"add policy: one of {owners}")
    return found[0]
