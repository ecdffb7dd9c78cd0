"""The table of `trainwarden jobs`. Pure: the same runs, time and width, the same table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from trainwarden.controller.cluster.console.reading import (
    Object,
    ago,
    items,
    moment,
    number,
    percent,
    status_of,
    text,
)
from trainwarden.policies.expressions.functions import human_number

__all__ = ["Look", "alerts_of", "bar", "jobs_table"]

_CELLS = 12  # of a progress bar
_GAP = 3  # between two columns
_CUT = ("NAME", "ALERTS", "NAMESPACE", "STATE")  # what is cut first where there is no room
_COLOURS = {
    "Running": "green",
    "Pending": "cyan",
    "Queued": "cyan",
    "Suspended": "yellow",
    "Complete": "blue",
    "Failed": "bold red",
    "Deleting": "red",
}
_LOUD = {"critical": "bold red", "warning": "yellow", "info": "cyan"}


@dataclass(frozen=True, slots=True)
class Look:
    """How much a terminal can show."""

    width: int
    blocks: bool = True
    """It knows block characters; else bars are of plain ones."""
    wide: bool = False
    """All columns were asked for, whatever the width."""
    namespaces: bool = False
    """Runs of several namespaces are shown."""


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    cell: Callable[[Object, datetime, Look], Text | str]
    right: bool = False
    wide: bool = False  # only when all were asked for
    spare: int = 0  # where there is no room it is left out, the highest first; 0 for never
    least: int = 0  # it may be cut to so many characters; 0 for never


def jobs_table(runs: Sequence[Object], now: datetime, look: Look) -> Table:
    """One line for each run.

    Args:
        runs: TrainingRuns, in the order in which they are shown.
        now: The time, for ages.
        look: What the terminal can show.
    """
    columns = [
        column
        for column in _COLUMNS
        if (look.namespaces or column.title != "NAMESPACE") and (look.wide or not column.wide)
    ]
    cells = {column.title: [column.cell(run, now, look) for run in runs] for column in columns}
    widths = {
        column.title: max(len(column.title), *(cell_len(str(cell)) for cell in cells[column.title]), 0)
        for column in columns
    }
    _fit(columns, widths, look.width)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), show_edge=False, header_style="bold")
    for column in columns:
        justify: Literal["left", "right"] = "right" if column.right else "left"
        width = widths[column.title]
        table.add_column(
            column.title, justify=justify, no_wrap=True, overflow="ellipsis", min_width=width, max_width=width
        )
    for index in range(len(runs)):
        table.add_row(*(cells[column.title][index] for column in columns))
    return table


def _fit(columns: list[_Column], widths: dict[str, int], room: int) -> None:
    """Leave out what can be spared, and cut what can be cut, until the table is no wider than the room."""

    def excess() -> int:
        return sum(widths[column.title] for column in columns) + _GAP * (len(columns) - 1) - room

    for column in sorted((each for each in columns if each.spare), key=lambda each: -each.spare):
        cuts = sum(max(0, widths[each.title] - each.least) for each in columns if each.least)
        if excess() > (cuts if column.title == "ALERTS" else cuts / 2):  # else cutting is the smaller loss
            columns.remove(column)
    for title in _CUT:
        for column in columns:
            if column.title == title:
                widths[title] -= max(0, min(excess(), widths[title] - column.least))


def bar(share: float | None, colour: str, *, blocks: bool) -> Text:
    """A progress bar with its number; dots while the share is unknown."""
    full, empty, unknown = ("█", "░", "·") if blocks else ("#", "-", ".")
    if share is None:
        return Text(unknown * _CELLS + "    ?", style="dim")
    done = min(_CELLS, int(share / 100 * _CELLS + 0.5))
    if done == _CELLS and share < 100:
        done -= 1  # full is only what is done
    drawn = Text(full * done, style=colour)
    drawn.append(empty * (_CELLS - done), style="dim")
    return drawn.append(f" {int(share):3d}%", style="default")


def alerts_of(run: Object, now: datetime) -> list[tuple[str, str]]:
    """What asks for a person's eye, most urgent first: text and colour."""
    status = status_of(run)
    waiting, firing, pending = [], [], []
    for rule in items(status, "rules"):
        name, loud = text(rule, "rule"), _LOUD.get(text(rule, "severity"), "yellow")
        for action in items(rule, "actions"):
            if text(action, "state") == "Waiting" and text(action, "reason") == "Approval":
                waiting.append((f"{text(action, 'type')} needs approval", "bold magenta"))
            elif text(action, "state") == "Failed":
                waiting.append((f"{text(action, 'type')} failed", "bold red"))
        if text(rule, "verdict") == "Firing":
            mode = " (Audit)" if text(rule, "mode") == "Audit" else ""
            firing.append((f"{name} firing {ago(moment(rule, 'since'), now)}".rstrip() + mode, loud))
        elif text(rule, "verdict") == "Pending":
            pending.append((f"{name} pending", "dim"))
    problems = [("policy can't be used", "red")] if status.get("problems") else []
    return waiting + firing + problems + pending


def _progress(run: Object, _: datetime, look: Look) -> Text:
    status = status_of(run)
    state = text(status, "state")
    share = percent(status)
    return bar(share, _COLOURS.get(state, "green"), blocks=look.blocks)


def _step(run: Object, _: datetime, __: Look) -> str:
    step, total = number(status_of(run), "step"), number(status_of(run), "totalSteps")
    if step is None:
        return ""
    return f"{step:.0f}/{total:.0f}" if total is not None else f"{step:.0f}"


def _eta(run: Object, _: datetime, look: Look) -> str:
    status = status_of(run)
    eta, low, high = text(status, "eta"), text(status, "etaLow"), text(status, "etaHigh")
    return f"{eta} ({low} to {high})" if eta and low and high and look.wide else eta


def _state(run: Object, _: datetime, look: Look) -> Text:
    status = status_of(run)
    state = text(status, "state") or "Unknown"
    cell = Text(state, style=_COLOURS.get(state, ""))
    if text(status, "suspendedBy") and state in ("Suspended", "Queued"):
        cell.append(" by policy", style="yellow")
    return cell


def _alerts(run: Object, now: datetime, _: Look) -> Text:
    alerts = alerts_of(run, now)
    if not alerts:
        return Text()
    first, colour = alerts[0]
    cell = Text(first, style=colour)
    return cell.append(f" +{len(alerts) - 1}", style="dim") if len(alerts) > 1 else cell


def _age(run: Object, now: datetime, _: Look) -> str:
    return ago(moment(run["metadata"], "creationTimestamp"), now)


def _checkpoint(run: Object, _: datetime, __: Look) -> str:
    checkpoint = status_of(run).get("checkpoint") or {}
    step = number(checkpoint, "step")
    return f"step {step:.0f}" if step is not None else ""


def _amount(name: str) -> Callable[[Object, datetime, Look], str]:
    def cell(run: Object, _: datetime, __: Look) -> str:
        value = number(status_of(run), name)
        return human_number(float(value)) if value else ""

    return cell


def _words(name: str) -> Callable[[Object, datetime, Look], str]:
    return lambda run, _, __: text(status_of(run), name)


_COLUMNS = (
    _Column("NAMESPACE", lambda run, _, __: text(run["metadata"], "namespace"), least=10),
    _Column("NAME", lambda run, _, __: text(run["metadata"], "name"), least=20),
    _Column("PROGRESS", _progress),
    _Column("STEP", _step, right=True, spare=4),
    _Column("ETA", _eta, right=True),
    _Column("LOSS", _words("loss"), right=True),
    _Column("STATE", _state, least=9),
    _Column("GPUS", _amount("gpus"), right=True, spare=2),
    _Column("AGE", _age, right=True, spare=3),
    _Column("STEPS/S", _amount("stepsPerSecond"), right=True, wide=True, spare=5),
    _Column("GPU-HOURS", _amount("gpuHours"), right=True, wide=True, spare=6),
    _Column("SAVED", _amount("savedGpuHours"), right=True, wide=True, spare=7),
    _Column("COST", _amount("cost"), right=True, wide=True, spare=8),
    _Column("CHECKPOINT", _checkpoint, wide=True, spare=9),
    _Column("SOURCE", _words("source"), wide=True, spare=10),
    _Column("ATTEMPT", _words("attempt"), wide=True, spare=11),
    _Column("ALERTS", _alerts, spare=1, least=16),
)
