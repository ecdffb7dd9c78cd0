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
from trainwarden.policies.tuning.scoring import Score, effect_of, score

__all__ = ["LabelError", "Tuning", "as_json", "as_text", "read_labels"]

_HEAD = ["run", "usefulUntilStep"]
_WIDTH = 120


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
class Tuning:
    """All that a tuning found."""

    tried: Sequence[Mapping[str, str]]
    scores: Sequence[Score]  # of each candidate, over all runs
    chosen: int | None
    validation: Validation | None  # None with a single group
    most_wrong: float
    confidence: float

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
        return cls(tried, scores, best_of(scores, most_wrong), validation, most_wrong, confidence)


def as_json(tuning: Tuning) -> bytes:
    """`candidates`, `chosen` and `crossValidation`; keys in camelCase, told in docs/tune.md."""
    validation = tuning.validation
    body = {
        "mostWrong": tuning.most_wrong,
        "confidence": tuning.confidence,
        "candidates": [
            {"parameters": dict(values), **_camel(each)}
            for values, each in zip(tuning.tried, tuning.scores, strict=True)
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
    first, limit = tuning.scores[0], f"{100 * tuning.most_wrong:.4g} %"
    counted = f"{first.runs:,} runs in {first.groups:,} groups"
    lines = [f"{counted}; intervals of {100 * tuning.confidence:.4g} %: Wilson, and bootstrap of groups"]
    unjudged = max(each.unjudged for each in tuning.scores)
    if unjudged:
        lines.append(f"up to {unjudged:,} stops of a candidate can't be judged, and count as right")
    if tuning.chosen is None:
        lines.append(f"none chosen: none saves time with an upper bound of wrong stops within {limit}")
    else:
        values = ", ".join(f"{name}={value}" for name, value in tuning.tried[tuning.chosen].items())
        lines.append(f"chosen: {values}: saves most with an upper bound of wrong stops within {limit}")
    validation = tuning.validation
    if validation is None:
        lines.append("not cross-validated: all runs are one group; --group says what parts them")
        return lines
    found = validation.score
    lines.append(
        f"chosen on the rest and measured on each of {validation.folds} parts: "
        f"wrong {_between(found.wrong / found.runs, found.wrong_low, found.wrong_high)}, "
        f"saved {_between(found.saved, found.saved_low, found.saved_high) or 'nothing'}"
    )
    without = sum(each is None for each in validation.chosen)
    if without:
        lines.append(f"in {without} of these parts nothing could be chosen, and nothing was stopped")
    return lines
