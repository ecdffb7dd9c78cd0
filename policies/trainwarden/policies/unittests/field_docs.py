"""The fields of a test file as Markdown tables, for docs/policy-tests.md."""

from __future__ import annotations

from datetime import datetime, timedelta

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from trainwarden.policies.durations import duration_text
from trainwarden.policies.unittests.models import (
    BudgetFacts,
    Change,
    Executor,
    Expectation,
    Facts,
    JobFacts,
    PolicyTests,
    UnitTest,
)

__all__ = ["field_tables"]

_MODELS: tuple[tuple[str, type[BaseModel], frozenset[str]], ...] = (
    ("The file", PolicyTests, frozenset()),
    ("A test", UnitTest, frozenset()),
    ("`expect`: what is expected of a rule", Expectation, frozenset()),
    ("`job`", JobFacts, frozenset()),
    ("`changes`: those of `job` that may change on the way, and", Change, frozenset(Facts.model_fields)),
    ("`budget`", BudgetFacts, frozenset()),
    ("`executor`", Executor, frozenset()),
)


def field_tables() -> str:
    """A table for each part of a test file, under its heading: field, default, meaning."""
    lines: list[str] = []
    for title, model, told in _MODELS:
        rows = [
            (f"`{field.alias or name}`", _default(field), field.description or "")
            for name, field in model.model_fields.items()
            if name not in told
        ]
        lines += [f"### {title}", "", "| field | default | meaning |", "| --- | --- | --- |"]
        lines += ["| " + " | ".join(row) + " |" for row in rows]
        lines.append("")
    return "\n".join(lines)


def _default(field: FieldInfo) -> str:
    value = field.default
    if field.is_required():
        return "needed"
    if isinstance(value, timedelta):
        return f"`{duration_text(value)}`"
    if isinstance(value, datetime):
        return f"`{value.isoformat()}`"
    if isinstance(value, str | int) and value != "":
        return f"`{value}`"
    return ""
