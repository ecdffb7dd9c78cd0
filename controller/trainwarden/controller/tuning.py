"""A tuning of a policy: labels of runs read from a file, and what was found as a table or JSON."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from io import StringIO
from pathlib import Path
from typing import Any, Self

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from trainwarden.policies.backtest.outcome import Replay
from trainwarden.policies.tuning.choosing import Validation, best_of, cross_validate
from trainwarden.policies.tuning.scoring import Score, effect_of, runs_needed, score

__all__ = ["Conditional", "LabelError", "Tuning", "as_json", "as_text", "head", "read_labels"]

_HEAD = ["run", "usefulUntilStep"]
_WIDTH = 120
_FEW_GROUPS = 5  # fewer than these tell little of how runs differ


class LabelError(ValueError):
    """A file of labels can't be used: where, what was found, what would be right."""


def read_labels(path: Path) -> dict[str, int | None]:
    """The step up to which each run was worth its time; None where the cell is empty: up to its end.

    Raises:
        LabelError: The file can't be read, or a line is not right.
    """
    found: dict[str, int | None] = {}
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise LabelError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from error
    except OSError as error:
        raise LabelError(f"{path}: {error.strerror}; name a CSV file") from error
    rows = csv.reader(StringIO(text))
    head = next(rows, [])
    if [each.strip() for each in head] != _HEAD:
        raise LabelError(f"{path}:1: {','.join(head)!r}; the columns {','.join(_HEAD)} are right")
    for row in rows:
        place = f"{path}:{rows.line_num}"
        if not row:
            continue
        step = row[-1].strip()
        if len(row) != len(_HEAD) or not row[0].strip() or not (step == "" or (step.isascii() and step.isdecimal())):
            raise LabelError(f"{place}: {','.join(row)!r}; a run's id and a step, or nothing, are right")
        if row[0].strip() in found:
            raise LabelError(f"{place}: {row[0].strip()!r} is there twice; one line for each run is right")
        found[row[0].strip()] = int(step) if step else None
    return found


@dataclass(frozen=True, slots=True)
class Conditional:
    """A parameter that depends on a condition, and which of its branches was varied."""

    parameter: str
    where: str  # CEL of the branch's condition; empty: all branches have become one value
    runs: int  # to which the branch applied at their end
    of: int  # runs
    was: str  # CEL of the parameter as it was

    def __str__(self) -> str:
        if not self.where:
            return (
                f"{self.parameter} is the same value wherever it was {self.was}, "
                "since the names of metrics do not tell which branch applies"
            )
        kept = f"; elsewhere it stays as in {self.was}"
        return f"{self.parameter} is varied where {self.where}, as in {self.runs:,} of {self.of:,} runs{kept}"


@dataclass(frozen=True, slots=True)
class Tuning:
    """All that a tuning found."""

    tried: Sequence[Mapping[str, str]]
    scores: Sequence[Score]  # of each candidate, over all runs
    chosen: int | None
    validation: Validation | None  # None with a single group
    most_wrong: float
    confidence: float
    groups: Sequence[str]  # their names, each once
    conditionals: Sequence[Conditional]

    @classmethod
    def of(
        cls,
        replays: Sequence[Replay],
        tried: Sequence[Mapping[str, str]],
        groups: Sequence[str],
        useful: Mapping[str, int | None],
        *,
        gpus: int,
        most_wrong: float,
        confidence: float,
        folds: int,
        conditionals: Sequence[Conditional] = (),
    ) -> Self:
        """Sum up replays, each with an outcome for each candidate and in the order of `groups`."""
        effects = [
            [
                effect_of(replay, replay.outcomes[index], group, useful)
                for replay, group in zip(replays, groups, strict=True)
            ]
            for index in range(len(tried))
        ]
        scores = [score(each, gpus=gpus, confidence=confidence) for each in effects]
        validation = cross_validate(effects, folds=folds, most_wrong=most_wrong, gpus=gpus, confidence=confidence)
        chosen, names = best_of(scores, most_wrong), tuple(dict.fromkeys(groups))
        return cls(tried, scores, chosen, validation, most_wrong, confidence, names, conditionals)


def as_json(tuning: Tuning) -> bytes:
    """`candidates`, `conditional`, `chosen` and `crossValidation`; keys in camelCase, told in docs/tune.md."""
    validation = tuning.validation
    body = {
        "mostWrong": tuning.most_wrong,
        "confidence": tuning.confidence,
        "candidates": [
            {"parameters": dict(values), **_camel(each)}
            for values, each in zip(tuning.tried, tuning.scores, strict=True)
        ],
        "conditional": [
            {"parameter": each.parameter, "where": each.where or None, "runs": each.runs}
            for each in tuning.conditionals
        ],
        "chosen": tuning.chosen,
        "crossValidation": validation
        and {"folds": validation.folds, "chosen": validation.chosen, **_camel(validation.score)},
    }
    return msgspec.json.format(msgspec.json.encode(body), indent=2) + b"\n"


def _camel(score_: Score) -> dict[str, Any]:
    return {_camel_name(name): value for name, value in asdict(score_).items()}


def _camel_name(name: str) -> str:
    """`wrong_low` as `wrongLow`."""
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)


def as_text(tuning: Tuning, *, color: bool) -> str:
    """The candidates, which is chosen, and what choosing so is worth on runs not seen."""
    out = StringIO()
    console = Console(file=out, width=_WIDTH, force_terminal=color, no_color=not color, highlight=False)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for name in tuning.tried[0]:
        table.add_column(escape(name), overflow="fold")
    for name in ("stops", "wrong", "wrong, of all runs", "saved, of the idle time", "GPU-h saved", "GPU-h lost"):
        table.add_column(name, justify="right")
    for index, (values, each) in enumerate(zip(tuning.tried, tuning.scores, strict=True)):
        mark = "→" if index == tuning.chosen else ""
        table.add_row(mark, *map(escape, values.values()), *_cells(each), style="bold" if mark else "")
    console.print(table)
    console.print("\n".join(_told(tuning)), markup=False)
    return out.getvalue()


def _cells(each: Score) -> tuple[str, ...]:
    return (
        f"{each.stops:,}",
        f"{each.wrong:,}",
        _between(each.wrong / each.runs, each.wrong_low, each.wrong_high),
        _between(each.saved, each.saved_low, each.saved_high),
        f"{each.hours_saved:,.1f}",
        f"{each.hours_lost:,.1f}",
    )


def _between(share: float | None, low: float | None, high: float | None) -> str:
    if share is None:
        return ""
    if low is None or high is None:
        return f"{share:.1%}"
    return f"{share:.1%} ({low:.1%} to {high:.1%})"


def _told(tuning: Tuning) -> list[str]:
    first, limit = tuning.scores[0], _percent(tuning.most_wrong)
    alone = first.groups == first.runs
    counted = f"{first.runs:,} runs" + ("" if alone else f" in {first.groups:,} groups, such as {tuning.groups[0]}")
    lines = [f"{counted}; intervals of {_percent(tuning.confidence)}: Wilson, and bootstrap of groups"]
    lines += map(str, tuning.conditionals)
    if 1 < first.groups < _FEW_GROUPS or (alone and first.runs > 1):
        found = "each run counts as a group" if alone else f"{first.groups} groups tell little of other runs"
        lines.append(f"{found}; --group REGEX says what of an id names its group")
    unjudged = max(each.unjudged for each in tuning.scores)
    if unjudged:
        lines.append(f"up to {unjudged:,} stops of a candidate can't be judged, and count as right")
    if tuning.chosen is None:
        lines.append(f"none chosen: {_why_none(tuning)}")
    else:
        values = _values(tuning.tried[tuning.chosen])
        lines.append(f"chosen: {values}: saves most with an upper bound of wrong stops within {limit}")
    return [*lines, _validated(tuning)]


def _why_none(tuning: Tuning) -> str:
    """Why no candidate could be chosen, and what would help."""
    scores, limit = tuning.scores, _percent(tuning.most_wrong)
    runs, needed = scores[0].runs, runs_needed(tuning.most_wrong, tuning.confidence)
    if not any(each.stops for each in scores):
        return "no candidate stops a run"
    if not any(each.saved for each in scores):
        return "no candidate saves time"
    none = f"none saves time with an upper bound of wrong stops within {limit}"
    if needed is None:
        return f"{none}, which no number of runs can bear out"
    if runs < needed:
        return f"{none}, which takes {needed:,} runs without a wrong stop, and {runs:,} are there"
    least = min(each.wrong_high for each in scores if each.saved)
    return f"{none}; the least is {least:.1%}"


def _validated(tuning: Tuning) -> str:
    """What choosing is worth on runs that it has not seen."""
    validation = tuning.validation
    if validation is None:
        return "not cross-validated: all runs are one group; --group REGEX says what of an id parts them"
    without = sum(each is None for each in validation.chosen)
    if without == validation.folds:
        return f"not cross-validated: without any one of {without} parts, nothing could be chosen on the rest"
    parts = f"each of {validation.folds} parts"
    if without:
        parts = f"{validation.folds - without} of {validation.folds} parts, as nothing could be chosen for the others"
    return f"chosen on the rest and measured on {parts}: {_shares(validation.score)}"


def _shares(score_: Score) -> str:
    return (
        f"wrong {_between(score_.wrong / score_.runs, score_.wrong_low, score_.wrong_high)}, "
        f"saved {_between(score_.saved, score_.saved_low, score_.saved_high) or 'nothing'}"
    )


def _values(tried: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in tried.items())


def _percent(share: float) -> str:
    return f"{100 * share:.4g} %"


def head(tuning: Tuning, source: str) -> list[str]:
    """What stands at the head of the policy that was chosen: what it is, and what it was found to do.

    Args:
        tuning: With a choice.
        source: What was tuned, such as `preset balanced`.
    """
    assert tuning.chosen is not None  # noqa: S101 - told above
    best = tuning.scores[tuning.chosen]
    return [
        f"{source} with {_values(tuning.tried[tuning.chosen])}",
        f"{best.runs:,} runs in {best.groups:,} groups: {_shares(best)}",
        _validated(tuning),
        *map(str, tuning.conditionals),
    ]
