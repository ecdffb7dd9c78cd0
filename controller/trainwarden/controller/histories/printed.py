"""What trainings print: modded-nanoGPT's and verl's lines, the dicts of transformers and TRL, Megatron's iterations."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwarden.controller.histories.clocks import clocked
from trainwarden.controller.histories.files import lines
from trainwarden.controller.histories.recording import Opened, Reading
from trainwarden.controller.histories.values import merged, number, row, seconds_of, short, whole
from trainwarden.policies.backtest.recording import Row

__all__ = ["STYLES", "PrintedRun", "recordings", "style_of"]

_COUNT = (
    r"([+-]?(?:\.?\d|nan\b|inf\b)[\w.+-]*)"  # what stands where a step is told; whether it is one is found out after
)
_NANOGPT = re.compile(rf"^(?:s|step):{_COUNT}(?:/(\d\S*?))?[ ,](?!- )(.*)$")
_NANOGPT_PAIR = re.compile(r"(\w+):\s*([\w.+#-]+(?:\([\w.+-]*\))?)")
_NANOGPT_NAMES = {"trl": "train_loss", "tel": "val_loss", "eval": "hellaswag"}
_NANOGPT_CLOCKS = frozenset({"train_time", "step_avg"})
_VERL = re.compile(rf"(?:^|\s)step:{_COUNT} - (\S.*:.*)$")
_VERL_PACE = ("timing_s/step", "perf/time_per_step")
_VERL_COUNTS = frozenset({"training/global_step", "training/epoch"})
_DICT = re.compile(r"\{'[\w/.\- ]+': .*\}")
_BARE = re.compile(r"(?<=: )(-?(?:nan(?:\(\w*\))?|inf|1\.#[A-Z]+0*))(?=[,}])", re.IGNORECASE)
_DICT_SUMMARY = frozenset({"train_runtime"})
_DICT_PACE = re.compile(r".*_(runtime|samples_per_second|steps_per_second)|epoch|total_flos")
_BAR = re.compile(r"(?<!\d)(\d{1,15})/(\d{1,15}) \[((?:\d{1,9}:)?\d{1,9}:\d{1,9})<")
_BARS_WITHIN = 200  # lines before a dict in which its bar is looked for
_MEGATRON = re.compile(
    rf"(?:\[(\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d)[.\d]*\])?\s*iteration\s+{_COUNT}/\s*(\d[^\s|]*)\s*\|(.*)"
)
_MEGATRON_PACE = "elapsed time per iteration (ms)"
_MEGATRON_COUNTS = re.compile(r"consumed samples|global batch size|number of (skipped|nan) iterations|elapsed time.*")


@dataclass(slots=True)
class _Told:
    """What the lines so far have said."""

    seconds: float | None = None
    rows: int = 0
    step: int = 0
    began: float | None = None


Style = Callable[[str, _Told], Row | str | None]
"""Makes a row of a line; None: it holds none; a text: it should, and this is what is wrong."""


def _nanogpt(line: str, told: _Told) -> Row | str | None:
    """`step:125/6000 val_loss:5.64 train_time:41s step_avg:320ms`; step_avg, NaN at first, is not a metric."""
    found = _NANOGPT.match(line)
    if found is None:
        return None
    step, total = whole(found[1]), whole(found[2] or 0)
    values: dict[str, Any] = {}
    seconds = None
    for name, text in _NANOGPT_PAIR.findall(found[3]):
        if name in _NANOGPT_CLOCKS:
            if name == "train_time":
                seconds = _duration(text)
        elif number(text) is None:
            return f"{name}:{text}"
        elif (name := _NANOGPT_NAMES.get(name, name)) in values:
            return f"{name} twice: {values[name]} and {text}"
        else:
            values[name] = text
    if not values:
        return None
    if step is None or total is None:
        return f"step:{found[1]}{'/' if found[2] else ''}{found[2] or ''}"
    return row(step, values, seconds=seconds, total=total or None)


def _verl(line: str, told: _Told) -> Row | str | None:
    """`step:3 - actor/pg_loss:0.1 - critic/rewards/mean:0.5`; the time of each step adds up to a clock."""
    found = _VERL.search(line)
    if found is None:
        return None
    values: dict[str, str] = {}
    for part in found[2].split(" - "):
        name, colon, text = part.strip().rpartition(":")
        if not colon or number(text) is None:
            return part
        if name in values:
            return f"{name} twice: {values[name]} and {text}"
        values[name] = text
    step = whole(found[1])
    if step is None:
        return f"step:{found[1]}"
    pace = next((number(values[name]) for name in _VERL_PACE if name in values), None)
    if isinstance(pace, float):
        told.seconds = (told.seconds or 0.0) + pace
    return row(step, {name: text for name, text in values.items() if name not in _VERL_COUNTS}, seconds=told.seconds)


def _dicts(line: str, told: _Told) -> Row | str | None:
    """`{'loss': 1.2, 'grad_norm': 0.5, 'epoch': 0.1}`; its step is counted, as long as no progress bar tells it."""
    found = _DICT.search(line)
    if found is None:
        return None
    try:
        values = ast.literal_eval(_BARE.sub(r"'\1'", found[0]))
    except (ValueError, TypeError, OverflowError, SyntaxError, MemoryError, RecursionError):
        return found[0]
    if not isinstance(values, dict) or "epoch" not in values or _DICT_SUMMARY & values.keys():
        return None
    epoch = number(values["epoch"])
    made = row(0, {str(name): value for name, value in values.items() if not _DICT_PACE.fullmatch(str(name))})
    if not made.metrics and not made.nonfinite:
        return None
    told.rows += not any(name.startswith("eval_") for name in (*made.metrics, *made.nonfinite))
    made.step = told.rows
    made.epoch = epoch if isinstance(epoch, float) else None
    return made


def _megatron(line: str, told: _Told) -> Row | str | None:
    """`[2024-01-15 10:30:00] iteration 10/ 50 | elapsed time per iteration (ms): 1234.5 | lm loss: 8.1E+00 |`."""
    found = _MEGATRON.search(line)
    if found is None:
        return None
    step, total = whole(found[2]), whole(found[3])
    if step is None or total is None:
        return f"iteration {found[2]}/ {found[3]}"
    values: dict[str, str] = {}
    for part in found[4].split("|"):
        name, colon, text = part.strip().rpartition(":")
        if colon and number(text) is None:
            return part.strip()
        if colon and name.strip() in values:
            return f"{name.strip()} twice: {values[name.strip()]} and {text.strip()}"
        if colon:
            values[name.strip()] = text.strip()
    if found[1] is not None:
        moment = seconds_of(found[1])
        if moment is None:
            return f"[{found[1]}], which is no date and time"
        told.began = moment if told.began is None else told.began
        told.seconds = moment - told.began
    elif isinstance(pace := number(values.get(_MEGATRON_PACE)), float):
        told.seconds = (told.seconds or 0.0) + pace / 1000 * max(step - told.step, 0)
    told.step = step
    kept = {name: text for name, text in values.items() if not _MEGATRON_COUNTS.fullmatch(name)}
    return row(step, kept, seconds=told.seconds, total=total or None)


STYLES: dict[str, Style] = {"nanogpt": _nanogpt, "verl": _verl, "dicts": _dicts, "megatron-log": _megatron}
"""Readers of one line, by name."""

_RIGHT = {
    "nanogpt": "step:125/6000 val_loss:5.64 train_time:41ms is right",
    "verl": "step:3 - name:number - name:number is right",
    "dicts": "{'loss': 1.2, 'epoch': 0.1} is right",
    "megatron-log": "[2024-01-15 10:30:00] iteration 10/ 50 | name: number | is right",
}  # a step is a whole number below 2**53


@dataclass(frozen=True, slots=True)
class PrintedRun:
    """One log; lines of other kinds in it, such as the source of the script, are passed over."""

    id: str
    path: Path
    style: str

    def open(self, reading: Reading) -> Opened:
        """Read the lines."""
        rows = merged(
            _with_bars(self._rows(reading)) if self.style == "dicts" else (row_ for _, row_ in self._rows(reading))
        )
        return Opened(clocked(rows, self.id, reading))

    def _rows(self, reading: Reading) -> Iterator[tuple[str, Row]]:
        """Each row after the text that stands before it."""
        read, told = STYLES[self.style], _Told()
        before: list[str] = []
        for line, data in lines(self.path, reading):
            text = data.decode("utf-8", errors="replace")
            if self.style == "dicts":
                before.append(text)
                del before[:-_BARS_WITHIN]
            made = read(text, told)
            if isinstance(made, str):
                reading.malformed(self.path, line, short(made), _RIGHT[self.style])
            elif made is not None:
                yield "\n".join(before), made
                before.clear()


def _with_bars(rows: Iterator[tuple[str, Row]]) -> Iterator[Row]:
    """Put the step, total and clock of the training's progress bar into rows.

    tqdm draws a bar anew right after what is printed through it, and only that one is sure to be up to date.
    """
    total: int | None = None
    held: Row | None = None
    for text, made in rows:
        bars = [(int(done), int(of), _clock(passed)) for done, of, passed in _BAR.findall(text)]
        if total is None and bars:
            total = bars[0][1]  # the bars of evaluations have others
        bars = [bar for bar in bars if bar[1] == total]
        if held is not None:
            if bars:
                held.step, held.total, held.seconds = bars[0]
            yield held
            if bars and not made.total:
                made.step, made.total, made.seconds = bars[-1]
        elif bars:
            made.step, made.total, made.seconds = bars[-1]
        held = made
    if held is not None:
        yield held


def style_of(path: Path, most: int = 200_000) -> str | None:
    """How a log is printed, by the first line that tells; None when none of the first lines does.

    Where no line can be read, it is the first that should, so that it is told what is wrong there.
    """
    malformed: str | None = None
    for line, data in lines(path, Reading(skip=True)):
        text = data.decode("utf-8", errors="replace")
        for name, read in STYLES.items():
            made = read(text, _Told())
            if isinstance(made, Row):
                return name
            if isinstance(made, str) and name != "dicts":  # other programs print dicts as well
                malformed = malformed or name
        if line >= most:
            break
    return malformed


def recordings(path: Path, style: str) -> Iterator[PrintedRun]:
    """The run of a log."""
    yield PrintedRun(str(path), path, style)


def _duration(text: str) -> float | None:
    """Seconds of `245ms`, `41.5s` or `nanms`; a plain number is milliseconds."""
    for unit, parts in (("ms", 1000), ("s", 1), ("", 1000)):
        if text.endswith(unit):
            found = number(text.removesuffix(unit) if unit else text)
            return found / parts if isinstance(found, float) else None
    return None


def _clock(text: str) -> float:
    """Seconds of `1:02:03` or `02:03`."""
    seconds = 0.0
    for part in text.split(":"):
        seconds = seconds * 60 + int(part)
    return seconds
