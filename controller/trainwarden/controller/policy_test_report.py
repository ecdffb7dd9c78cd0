"""Outcomes of policy tests as text, JSON and JUnit XML. No times of day or durations: same tests, same text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from trainwarden.policies.durations import duration_text
from trainwarden.policies.unittests.comparing import shown

if TYPE_CHECKING:
    from trainwarden.controller.cli_policy_test import FileOutcome
    from trainwarden.policies.unittests.running import Failure, Happening, Outcome

__all__ = ["as_json", "as_junit", "as_text"]

_MOST_SHOWN = 20  # happenings of a failed test
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_text(found: Sequence[FileOutcome], *, timeline: bool = False) -> str:
    """Lines for people; those of a failure begin with its place in the file."""
    lines: list[str] = []
    for each in found:
        for outcome in each.outcomes:
            lines.append(f"{'pass' if outcome.passed else 'FAIL'}  {each.file}:{outcome.place.line}: {outcome.name}")
            for failure in outcome.failures:
                lines += [f"      {line}" for line in _told(each.file, failure)]
            if timeline or not outcome.passed:
                lines += [f"      {line}" for line in _timeline(outcome.happenings, all_=timeline)]
    lines.append(_summary(found))
    return "\n".join(lines) + "\n"


def as_json(found: Sequence[FileOutcome]) -> str:
    """An object with `files`, each with its tests and their failures, and the counts."""
    outcomes = [outcome for each in found for outcome in each.outcomes]
    body = {
        "passed": sum(outcome.passed for outcome in outcomes),
        "failed": sum(not outcome.passed for outcome in outcomes),
        "files": [
            {
                "file": each.file,
                "problems": [
                    {
                        "file": problem.source,
                        "line": problem.line,
                        "column": problem.column,
                        "field": problem.field,
                        "message": f"{problem.found}; {problem.remedy}",
                    }
                    for problem in each.problems
                ],
                "tests": [_test(outcome) for outcome in each.outcomes],
            }
            for each in found
        ],
    }
    return json.dumps(body, indent=2, ensure_ascii=False) + "\n"


def as_junit(found: Sequence[FileOutcome]) -> str:
    """JUnit XML: a suite per file, a case per test; a file that is wrong is an error."""
    root = ElementTree.Element("testsuites")
    for each in found:
        failed = sum(not outcome.passed for outcome in each.outcomes)
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=_clean(each.file),
            tests=str(len(each.outcomes) + bool(each.problems)),
            failures=str(failed),
            errors=str(int(bool(each.problems))),
        )
        for outcome in each.outcomes:
            case = _case(suite, each.file, outcome.name, outcome.place.line)
            if outcome.failures:
                texts = ["\n".join(_told(each.file, failure)) for failure in outcome.failures]
                first = outcome.failures[0]
                more = f", and {len(texts) - 1} more" if len(texts) > 1 else ""
                element = ElementTree.SubElement(
                    case, "failure", type="expectation", message=_clean(_line(first) + more)
                )
                element.text = _clean("\n\n".join([*texts, "\n".join(_timeline(outcome.happenings, all_=False))]))
        if each.problems:
            case = _case(suite, each.file, "the file can be used", each.problems[0].line)
            error = ElementTree.SubElement(case, "error", type="problem", message=_clean(str(each.problems[0])))
            error.text = _clean("\n".join(map(str, each.problems)))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _case(suite: ElementTree.Element, file: str, name: str, line: int) -> ElementTree.Element:
    return ElementTree.SubElement(
        suite, "testcase", classname=_clean(file), name=_clean(name), file=_clean(file), line=str(line)
    )


def _clean(text: str) -> str:
    """Text without what XML can't hold."""
    return _NOT_XML.sub("\ufffd", text)


def _line(failure: Failure) -> str:
    mismatch = failure.mismatch
    return f"{failure.rule}, {mismatch.when}: unexpected {mismatch.key}"


def _told(file: str, failure: Failure) -> Iterator[str]:
    mismatch = failure.mismatch
    yield f"{file}:{failure.place.line}:{failure.place.column}: {_line(failure)}"
    yield f"  expected  {mismatch.expected}"
    yield f"  found     {mismatch.found}"
    values = [f"{name} = {shown(value)}" for name, value in mismatch.values.items()]
    if mismatch.step is not None:
        values.append(f"step {mismatch.step}")
    if values:
        yield f"  values    {', '.join(values)}"
    if mismatch.reason:
        yield f"  because   {mismatch.reason}"


def _timeline(happenings: Sequence[Happening], *, all_: bool) -> Iterator[str]:
    if not happenings:
        yield "nothing was decided"
        return
    yield "what happened"
    most = len(happenings) if all_ else _MOST_SHOWN
    for each in happenings[:most]:
        yield f"  {duration_text(each.at):>9}  {each.rule}  {each.what}: {each.message}"
    if len(happenings) > most:
        yield f"  and {len(happenings) - most} more; --timeline shows all"


def _summary(found: Sequence[FileOutcome]) -> str:
    outcomes = [outcome for each in found for outcome in each.outcomes]
    failed = sum(not outcome.passed for outcome in outcomes)
    wrong = sum(bool(each.problems) for each in found)
    text = f"{len(outcomes) - failed} passed, {failed} failed"
    return f"{text}, {wrong} file{'s' if wrong > 1 else ''} wrong" if wrong else text


def _test(outcome: Outcome) -> dict[str, Any]:
    return {
        "name": outcome.name,
        "line": outcome.place.line,
        "passed": outcome.passed,
        "failures": [
            {
                "line": failure.place.line,
                "column": failure.place.column,
                "rule": failure.rule,
                "key": failure.mismatch.key,
                "when": failure.mismatch.when,
                "expected": failure.mismatch.expected,
                "found": failure.mismatch.found,
                "step": failure.mismatch.step,
                "values": dict(failure.mismatch.values),
                "reason": failure.mismatch.reason,
            }
            for failure in outcome.failures
        ],
        "timeline": [
            {"at": each.at.total_seconds(), "rule": each.rule, "what": each.what, "message": each.message}
            for each in outcome.happenings
        ],
    }
