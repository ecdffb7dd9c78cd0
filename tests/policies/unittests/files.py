"""Test files for tests: written in YAML, made ready, run."""

from __future__ import annotations

from typing import Any

from tests.policies.judging import policy

from trainwarden.policies.compiling import CompiledPolicy
from trainwarden.policies.problems import Problem
from trainwarden.policies.unittests.reading import make_ready, read_tests
from trainwarden.policies.unittests.running import Outcome, run_test

HIGH = policy("when: metrics.loss > 2.0")


def problems(text: str, *policies: CompiledPolicy) -> list[Problem]:
    """All that is wrong with a file."""
    file, found = read_tests(text, source="t.yaml")
    if file is not None:
        _, wrong = make_ready(file, policies or (HIGH,))
        found += wrong
    return found


def outcomes(text: str, *policies: CompiledPolicy) -> list[Outcome]:
    """What becomes of the tests of a file that is right."""
    file, found = read_tests(text, source="t.yaml")
    assert [str(problem) for problem in found] == []
    assert file is not None
    ready, found = make_ready(file, policies or (HIGH,))
    assert [str(problem) for problem in found] == []
    return [run_test(each) for each in ready]


def failures(test: str, *policies: CompiledPolicy) -> list[str]:
    """What fails in one test, given by its fields: `when at 5m: expected true, found false`."""
    lines = "\n".join(f"  {line}" for line in test.strip().splitlines())
    (outcome,) = outcomes(f"policies: [p.yaml]\ntests:\n- name: one\n{lines}\n", *policies)
    return [
        f"{each.mismatch.key} {each.mismatch.when}: expected {each.mismatch.expected}, found {each.mismatch.found}"
        for each in outcome.failures
    ]


def rule(text: str, **spec: Any) -> CompiledPolicy:
    """A policy of one rule, or of several."""
    return policy(text, **spec)
