"""Draws what `explain` and `decisions` have to tell, as text. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from trainwarden.controller.cluster.console.deciding import Entry
from trainwarden.controller.cluster.console.explanation import Explained, ExplainedAction, ExplainedRule
from trainwarden.controller.cluster.console.reading import Object, ago, number, percent, status_of, text
from trainwarden.controller.cluster.console.table import Look, bar
from trainwarden.policies.expressions.functions import human_number

__all__ = ["decision_table", "explanation"]

_VERDICTS = {
    "Firing": "bold red",
    "Pending": "yellow",
    "Unknown": "magenta",
    "Inactive": "green",
    "Resolved": "green",
}
_STATES = {"Done": "green", "Failed": "bold red", "Refused": "yellow", "Waiting": "bold magenta", "WouldAct": "cyan"}


def explanation(explained: Explained, run: Object, now: datetime, look: Look) -> RenderableType:
    """The whole answer, top down: the run, its rules, policies that are not for it, why nothing more happens."""
    parts: list[RenderableType] = [*_head(explained, run, now, look)]
    for policy in explained.policies:
        parts.append(Text(""))
        parts.append(Text.assemble((policy.name, "bold"), f"  {policy.mode}"))
        for rule in policy.rules:
            parts += [Padding(line, (0, 0, 0, 2)) for line in _rule(rule, now)]
    if explained.not_for_it:
        parts += [Text(""), Text("Policies that do not judge it", style="bold")]
        parts += [_point(Text.assemble((name, "default"), f": {why}")) for name, why in explained.not_for_it.items()]
    if explained.why:
        parts += [Text(""), Text(_why_title(explained), style="bold"), *(_point(Text(each)) for each in explained.why)]
    if explained.unread:
        parts += [Text(""), Text("Not read", style="bold")]
        parts += [_point(Text(each)) for each in explained.unread]
    return Group(*parts)


def decision_table(entries: Sequence[Entry], now: datetime, *, wide: bool = False) -> Table:
    """One line for each decision; wide with the ids of actions."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for title in ("TIME", "AGE", "RULE", "WHAT", "STATE"):
        table.add_column(title, no_wrap=True)
    if wide:
        table.add_column("ACTION", no_wrap=True)
    table.add_column("WHY")
    for entry in entries:
        told = entry.time.strftime("%Y-%m-%d %H:%M:%SZ") if entry.time is not None else "?"
        table.add_row(
            told,
            ago(entry.time, now),
            entry.rule,
            Text(entry.what, style=_VERDICTS.get(entry.what, "")),
            Text(entry.state, style=_STATES.get(entry.state, "")),
            *([entry.action] if wide else []),
            Text(entry.message),
        )
    return table


def _why_title(explained: Explained) -> str:
    actions = [action for policy in explained.policies for rule in policy.rules for action in rule.actions]
    done = any(action.state == "Done" for action in actions)
    return "Why nothing more happens" if done else "Why nothing happens"


def _head(explained: Explained, run: Object, now: datetime, look: Look) -> Iterator[Text]:
    status = status_of(run)
    first = Text.assemble((explained.job, "bold"), "  ", explained.state, "  ")
    yield first.append_text(bar(percent(status), "green", blocks=look.blocks))
    facts = []
    step, total = number(status, "step"), number(status, "totalSteps")
    if step is not None:
        facts.append(f"step {step:.0f}" + (f" of {total:.0f}" if total is not None else ""))
    eta, low, high = text(status, "eta"), text(status, "etaLow"), text(status, "etaHigh")
    if eta:
        facts.append(f"{eta} left" + (f" ({low} to {high})" if low and high else ""))
    if text(status, "loss"):
        facts.append(f"loss {text(status, 'loss')}")
    gpus, hours = number(status, "gpus"), number(status, "gpuHours")
    if gpus:
        facts.append(
            f"{gpus:.0f} GPU{'s' if gpus != 1 else ''}" + (f", {human_number(hours)} GPU-hours" if hours else "")
        )
    if facts:
        yield Text(", ".join(facts))
    checkpoint = status.get("checkpoint") or {}
    if checkpoint:
        yield Text(f"checkpoint of step {text(checkpoint, 'step')} at {text(checkpoint, 'path')}")
    if text(status, "suspendedBy"):
        yield Text(f"suspended by action {text(status, 'suspendedBy')}", style="yellow")
    if explained.time is not None:
        yield Text(f"as of {explained.time:%H:%M:%SZ}, {ago(explained.time, now)} ago", style="dim")


def _rule(rule: ExplainedRule, now: datetime) -> Iterator[RenderableType]:
    line = Text.assemble(
        (rule.verdict, _VERDICTS.get(rule.verdict, "")), "  ", (rule.name, "bold"), f"  {rule.severity}"
    )
    if rule.verdict in ("Firing", "Pending") and rule.since is not None:
        line.append(f"  since {rule.since:%Y-%m-%d %H:%M:%SZ} ({ago(rule.since, now)})")
    yield line
    if rule.when:
        held = f"  for {rule.holds_for}" if rule.holds_for else ""
        yield Padding(Text(f"when  {' '.join(rule.when.split())}{held}"), (0, 0, 0, 4))
    if rule.values:
        yield Padding(
            Text("now   " + ", ".join(f"{name} = {value}" for name, value in rule.values.items())), (0, 0, 0, 4)
        )
    if rule.reason:
        yield Padding(Text(f"why   {rule.reason}"), (0, 0, 0, 4))
    for action in rule.actions:
        yield Padding(_action(action, now), (0, 0, 0, 4))


def _action(action: ExplainedAction, now: datetime) -> Text:
    due = f"in {action.due_in}" if action.due_in else "not due"
    line = Text.assemble(f"{action.type}  ", (action.state or due, _STATES.get(action.state, "")))
    if action.message:
        line.append(f"  {action.message}")
    if action.time is not None:
        line.append(f"  {ago(action.time, now)} ago", style="dim")
    if action.answerable:
        line.append(f"  (approve or deny: {action.id})", style="bold magenta")
    return line


def _point(told: Text) -> RenderableType:
    return Padding(Text.assemble("- ", told), (0, 0, 0, 2))
