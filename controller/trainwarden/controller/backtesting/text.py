"""A backtest as tables in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import StringIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from trainwarden.controller.backtesting.results import Results
from trainwarden.controller.backtesting.wording import (
    COLUMNS,
    facts_of,
    order,
    percent,
    row_of,
    seconds,
    short_names,
    told_firings,
    unjudged_of,
    verdict_of,
)
from trainwarden.policies.backtest.outcome import Replay

__all__ = ["as_text"]

_MOST_FIRINGS = 4  # of one run that are listed
_STYLES = {"wrong stop": "bold red", "right stop": "green"}


def as_text(results: Results, *, most: int | None, width: int, color: bool) -> str:
    """The policies, then what fired in which run.

    Args:
        results: All of it.
        most: Most runs that are shown; None shows all that had a firing.
        width: Columns of the terminal.
        color: Use colours.
    """
    out = StringIO()
    console = Console(file=out, width=width, force_terminal=color, no_color=not color, highlight=False)
    fired = [replay for replay in order(results.replays) if replay.firings]
    shown = fired[:most]
    if shown:
        names = short_names([replay.id for replay in results.replays])
        console.print(_firings(shown, names))
    if len(shown) < len(fired):
        console.print(f"… and {len(fired) - len(shown):,} more runs in which something fired; --all shows them\n")
    console.print(_policies(results))
    console.print(facts_of(results.totals))
    for told in (line for total in results.totals.policies for line in unjudged_of(total)):
        console.print(f"· {told}", style="dim", markup=False)
    return out.getvalue()


def _firings(replays: Sequence[Replay], names: Mapping[str, str]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("run", "policy", "rule", "metric"):
        table.add_column(name, overflow="fold")
    for name in ("step", "after"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("action")
    table.add_column("to come", justify="right")
    table.add_column("", no_wrap=True)
    for replay in replays:
        run = names[replay.id]
        told = told_firings(replay, _MOST_FIRINGS)
        for firing in told:
            verdict = verdict_of(firing, replay)
            table.add_row(
                escape(run),
                escape(firing.policy),
                escape(firing.rule),
                escape(firing.metric or ""),
                f"{firing.step:,} of {replay.last_step:,}",
                seconds(firing.elapsed_seconds),
                firing.action.value if firing.action is not None else "",
                percent(firing.to_come),
                Text(verdict, style=_STYLES.get(verdict, "")),
            )
            run = ""
        if len(told) < len(replay.firings):
            table.add_row("", f"and {len(replay.firings) - len(told):,} more")
    return table


def _policies(results: Results) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for index, name in enumerate(COLUMNS):
        table.add_column(name, justify="right" if index else "left", overflow="fold")
    for total in results.totals.policies:
        table.add_row(*map(escape, row_of(total)))
    return table
