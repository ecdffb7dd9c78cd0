"""Random expressions that the checker accepts most of the time, grown type by type."""

from __future__ import annotations

from hypothesis import strategies as st

__all__ = ["any_expression"]

_COMPARE = ("<", "<=", ">", ">=", "==", "!=")

_LEAVES: dict[str, tuple[str, ...]] = {
    "num": (
        "metrics.loss", "metrics.bad", "metrics.zero", "progress.percent", "variables.limit", "2.5", "1e308", "9.3e18",
        'metrics["eval/loss"]', 'mean("loss", 5)', 'slope("loss", 5)',
    ),
    "int": (
        "job.gpus", "progress.step", "2", "0", "-1", "9223372036854775807", "-9223372036854775808", "variables.unset",
        "size(metrics)",
    ),
    "text": (
        '"loss"', '"bad"', '""', "job.name", "variables.watched", "job.labels.tier", 'job.labels["no"]', '"12"',
        '"日本"', '"nan"', '"1_0"', '"1h"', "'a\"b\\\\n'",
    ),
    "duration": (
        "progress.sinceBest", 'duration("1h")', 'duration("-90m")', 'duration("2000000h")', 'duration("1.5s")',
        "progress.eta",
    ),
    "moment": (
        "now", "job.deadline", 'timestamp("2026-01-01T12:30:00.25Z")', 'timestamp("9999-12-31T23:59:59Z")',
        'timestamp("2026-06-01T12:30:00+02:00")',
    ),
    "list": ("[1, 2, 3]", "[job.gpus, variables.unset]", "[5] + [6]"),
    "bool": (
        "true", "false", '"loss" in metrics', '"zz" in metrics', 'nonFinite("bad")', 'spike("loss", 9)',
        "has(job.labels.no)",
    ),
}  # fmt: skip
_SHAPES: dict[str, tuple[str, ...]] = {
    "num": (
        "({num} + {num})", "({num} - {num})", "({num} * {num})", "({num} / {num})", "-{num}",
        "({bool} ? {num} : {int})", "double({int})", "double({text})", "[{num}, {num}][{int}]", "metrics[{text}]",
    ),
    "int": (
        "({int} + {int})", "({int} - {int})", "({int} * {int})", "({int} / {int})", "({int} % {int})", "-{int}",
        "int({num})", "int({text})", "size({text})", "{moment}.getHours()", '{moment}.getDayOfYear("Europe/Berlin")',
        '{moment}.getMonth("-05:30")', "{duration}.getMinutes()", "int({moment})", "size({list})", "{list}[{int}]",
    ),
    "text": (
        "({text} + {text})", "string({num})", "string({int})", "string({bool})", "string({duration})",
        "string({moment})", "human({num})", "human({duration})", "({bool} ? {text} : {text})",
    ),
    "duration": ("({duration} + {duration})", "({duration} - {duration})", "({moment} - {moment})", "duration({text})"),
    "moment": ("({moment} + {duration})", "({moment} - {duration})", "({duration} + {moment})", "timestamp({text})"),
    "list": ("[{int}, {int}]", "{list}.filter(f, f > {int})", "{list}.map(p, p + {int})", "({list} + {list})"),
    "bool": (
        "({bool} && {bool})", "({bool} || {bool})", "!({bool})", "({bool} ? {bool} : {bool})", "({num} ~ {num})",
        "({num} ~ {int})", "({int} ~ {num})", "({int} ~ {int})", "({text} ~ {text})", "({duration} ~ {duration})",
        "({moment} ~ {moment})", "({int} in {list})", "({int} in [{num}, {int}])", "({text} in metrics)",
        "({text} in job.labels)", "{text}.contains({text})", "{text}.startsWith({text})", '{text}.matches("^.o+")',
        "metrics.exists(m, metrics[m] > {num})", "metrics.all(a, mean(a, 5) > {num})", "nonFinite({text})",
        "{list}.exists(x, x > {int})", "{list}.exists_one(o, o > {int})", "({list} == {list})", "([{num}] == [{num}])",
    ),
}  # fmt: skip


@st.composite
def any_expression(draw: st.DrawFn, depth: int = 3) -> str:
    """The text of an expression of any type."""

    def grow(kind: str, left: int) -> str:
        shape = draw(st.sampled_from(_LEAVES[kind] if left <= 0 else (*_SHAPES[kind], *_LEAVES[kind][:2])))
        if left <= 0:
            return shape
        for part in _LEAVES:
            while f"{{{part}}}" in shape:
                shape = shape.replace(f"{{{part}}}", grow(part, left - 1), 1)
        return shape.replace("~", draw(st.sampled_from(_COMPARE)))

    return grow(draw(st.sampled_from(["bool", "bool", "bool", *sorted(_LEAVES.keys() - {"list"})])), depth)
