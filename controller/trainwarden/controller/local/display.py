"""What a person sees while a run goes on: a live panel in a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from trainwarden.controller.local.workspace import RunRecord
from trainwarden.controller.status import RuleStatus, RunStatus, StepStatus
from trainwarden.policies.decision import ActionResult, ActionState, Decision, Verdict
from trainwarden.policies.expressions.functions import human_duration, human_number

__all__ = ["Display", "LiveDisplay", "PlainDisplay", "display_for", "progress_text"]

_EVERY = 30.0  # seconds between two plain lines of progress
_SHOWN = 6  # metrics
_LONGEST_LINE = 65_536  # bytes of a line that has not ended
_COLOURS = {
    Verdict.FIRING: "bold red",
    Verdict.PENDING: "yellow",
    Verdict.UNKNOWN: "dim",
    Verdict.INACTIVE: "green",
    Verdict.RESOLVED: "green",
}


class Display(Protocol):
    """Shows a run."""

    output: Callable[[bytes], None] | None  # takes what the command prints; None lets it print by itself

    def begin(self, record: RunRecord, seconds: Callable[[], float]) -> None: ...
    def status(self, status: RunStatus) -> None: ...
    def decision(self, decision: Decision) -> None: ...
    def action(self, result: ActionResult) -> None: ...
    def problem(self, text: str) -> None: ...
    def end(self) -> None: ...


def display_for(*, plain: bool) -> Display:
    """A live panel where standard output and error are terminals, else plain lines on standard error."""
    terminal = sys.stdout.isatty() and sys.stderr.isatty() and os.environ.get("TERM", "") != "dumb"
    return LiveDisplay() if terminal and not plain else PlainDisplay()


def progress_text(status: RunStatus) -> str:
    """Step, share, time left and newest metrics on one line."""
    parts = []
    if status.step is not None:
        total = f"/{status.total}" if status.total else ""
        percent = f" ({status.percent:.0f} %)" if status.percent is not None else ""
        parts.append(f"step {status.step}{total}{percent}")
    elif status.reporting:
        parts.append("starting")
    else:
        parts.append("nothing reported yet" + (" in this attempt" if status.metrics or status.nonfinite else ""))
    if status.eta_seconds is not None:
        low, high = status.eta_low_seconds, status.eta_high_seconds
        band = ""
        if low is not None and high is not None:
            band = f" ({_length(low)} to {_length(high)})"
        parts.append(f"{_length(status.eta_seconds)} left{band}")
    if status.step is not None or status.reporting:
        parts.append(_metrics(status))
    return ", ".join(part for part in parts if part)


def _metrics(status: RunStatus) -> str:
    shown = [f"{name} {human_number(value)}" for name, value in status.metrics.items()]
    shown = [f"{name} {text}" for name, text in status.nonfinite.items()] + shown
    more = f" +{len(shown) - _SHOWN}" if len(shown) > _SHOWN else ""
    return " ".join(shown[:_SHOWN]) + more


def _length(seconds: float) -> str:
    return human_duration(timedelta(seconds=round(seconds)))


def _rule_text(rule: RuleStatus, now: datetime) -> str:
    since = _length((now - rule.since).total_seconds()) if rule.since is not None else ""
    if rule.verdict is Verdict.PENDING:
        return f"Pending {since} of {_length(rule.for_seconds)}"
    if rule.verdict is Verdict.FIRING:
        fired = (now - rule.since).total_seconds() if rule.since is not None else 0.0
        steps = ", ".join(_step_text(step, step.after_seconds - fired) for step in rule.steps)
        return f"Firing for {since}{f': {steps}' if steps else ''}"
    if rule.verdict is Verdict.UNKNOWN:
        return f"Unknown: {rule.unknown}" if rule.unknown else "Unknown"
    return str(rule.verdict)


def _step_text(step: StepStatus, left: float) -> str:
    if step.state is None:
        return f"{step.type} in {_length(max(left, 0.0))}"
    return f"{step.type} {step.state}"


def _decision_text(decision: Decision) -> str:
    where = f"{decision.policy}/{decision.rule}"
    if decision.action is not None:
        return f"{where}: {decision.action.type} {decision.action_state}: {decision.message}"
    return f"{where} is {decision.verdict}: {decision.message}"


def _line(data: bytes) -> Text:
    """A line of the command's, with its colours, as it stands on the screen after all its \\r."""
    return Text.from_ansi(data.decode(errors="replace").rstrip("\r").rpartition("\r")[2])


class PlainDisplay:
    """Lines on standard error, on changes and now and then; the command prints by itself."""

    output: Callable[[bytes], None] | None = None

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._next = 0.0

    def begin(self, record: RunRecord, seconds: Callable[[], float]) -> None:
        attempt = f", attempt {record.attempts}" if record.attempts > 1 else ""
        self._line(f"watching {record.namespace}/{record.name}{attempt} (run {record.name}-{record.id})")
        self._next = time.monotonic() + 5.0

    def status(self, status: RunStatus) -> None:
        if time.monotonic() >= self._next and status.job_phase == "Running":
            self._next = time.monotonic() + _EVERY
            self._line(progress_text(status))

    def decision(self, decision: Decision) -> None:
        self._line(_decision_text(decision))

    def action(self, result: ActionResult) -> None:
        pass

    def problem(self, text: str) -> None:
        self._line(text)

    def end(self) -> None:
        pass

    def _line(self, text: str) -> None:
        print(f"trainwarden: {text}", file=self._stream, flush=True)


class LiveDisplay:
    """A panel below what the command prints."""

    output: Callable[[bytes], None] | None

    def __init__(
        self, console: Console | None = None, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._console = console or Console(stderr=False, highlight=False)
        self._clock = clock
        self._record: RunRecord | None = None
        self._seconds: Callable[[], float] = lambda: 0.0
        self._status: RunStatus | None = None
        self._action = ""
        self._rest = b""
        self.output = self._print
        self._live = Live(
            console=self._console, auto_refresh=True, refresh_per_second=4, transient=True, get_renderable=self._panel
        )

    def begin(self, record: RunRecord, seconds: Callable[[], float]) -> None:
        self._record, self._seconds = record, seconds
        self._live.start()

    def status(self, status: RunStatus) -> None:
        self._status = status

    def decision(self, decision: Decision) -> None:
        style = _COLOURS.get(decision.verdict, "") if decision.action is None else "cyan"
        self._console.print(Text(f"trainwarden: {_decision_text(decision)}", style=style))

    def action(self, result: ActionResult) -> None:
        self._action = "" if result.state.final else result.message
        if result.state is ActionState.IN_PROGRESS:
            self._action = result.message

    def problem(self, text: str) -> None:
        self._console.print(Text(f"trainwarden: {text}", style="bold yellow"))

    def end(self) -> None:
        if self._rest:
            self._print(b"\n")
        self._live.stop()

    def _print(self, data: bytes) -> None:
        """Print whole lines above the panel, a chunk at a time."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            self._rest = self._rest.rpartition(b"\r")[2][-_LONGEST_LINE:]
        if lines:
            self._console.print(Text("\n").join(map(_line, lines)), soft_wrap=True)

    def _panel(self) -> Group:
        status, now = self._status, self._clock()
        name = f"{self._record.namespace}/{self._record.name}" if self._record is not None else ""
        unended = _line(self._rest)  # such as a progress bar of the command
        unended.truncate(self._console.width)
        above = [unended] if unended else []
        head = Text.assemble(("trainwarden ", "bold"), name, f"  {_length(self._seconds())}")
        if status is not None and status.cost is not None:
            head.append(f"  cost {status.cost:.2f}")
        if self._action:
            head.append(f"  {self._action}", style="cyan")
        if status is None:
            return Group(*above, Text("─" * min(self._console.width, 60), style="dim"), head)
        bar = Table.grid()
        bar.add_row(ProgressBar(total=100, completed=status.percent or 0, width=min(60, self._console.width)))
        rules = Table.grid(padding=(0, 2))
        for rule in status.rules:
            audit = " (Audit)" if rule.mode == "Audit" else ""
            style = _COLOURS.get(rule.verdict, "")
            rules.add_row(
                f"{rule.policy}/{rule.rule}{audit}", Text(_rule_text(rule, now), style=style, overflow="ellipsis")
            )
        parts: list[Text | Table] = [*above, Text("─" * min(self._console.width, 60), style="dim"), head]
        if status.total:
            parts.append(bar)
        parts += [Text(progress_text(status), overflow="ellipsis", no_wrap=True), rules]
        parts += [Text(problem, style="bold red") for problem in status.problems]
        return Group(*parts)
