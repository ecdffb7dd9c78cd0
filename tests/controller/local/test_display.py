"""The terminal shows a run as it is, and the command's output as it came."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from rich.console import Console

from trainwarden.controller.local.display import LiveDisplay, PlainDisplay, progress_text
from trainwarden.controller.local.workspace import RunRecord
from trainwarden.controller.status import RuleStatus, RunStatus, StepStatus
from trainwarden.policies.decision import ActionState, RunRef, Verdict
from trainwarden.policies.memory import RunMemory

NOW = datetime(2026, 11, 28, 3, 14, tzinfo=UTC)


def status(*rules: RuleStatus, step: int | None = 250, total: int | None = 1000, eta: bool = True) -> RunStatus:
    return RunStatus(
        run=RunRef("local", "train", "uid", "a-1", "run"),
        time=NOW,
        job_phase="Running",
        phase="train",
        reporting=step is not None,
        step=step,
        total=total,
        epoch=None,
        percent=25.0 if total else None,
        eta_seconds=600.0 if eta else None,
        eta_low_seconds=540.0 if eta else None,
        eta_high_seconds=720.0 if eta else None,
        steps_per_second=1.25,
        running_seconds=200.0,
        cost=0.5,
        metrics={"loss": 1.25},
        nonfinite={"grad_norm": "NaN"},
        checkpoint=None,
        rules=rules,
        known_since=NOW,
        memory=RunMemory(),
        judged=0,
    )


def rule(verdict: Verdict, *, since: timedelta = timedelta(0), unknown: str = "", **more: object) -> RuleStatus:
    steps = (
        StepStatus("Notify", ActionState.DONE, "", 0.0),
        StepStatus("Suspend", None, "", 1800.0),
    )
    return RuleStatus(
        policy="local/flat",
        rule="plateau",
        mode=str(more.get("mode", "Enforce")),
        verdict=verdict,
        since=NOW - since,
        for_seconds=600.0,
        unknown=unknown,
        steps=steps if verdict is Verdict.FIRING else (),
    )


def shown(display: LiveDisplay, console: Console) -> str:
    with console.capture() as captured:
        console.print(display._panel())
    return captured.get()


def live(width: int = 100) -> tuple[LiveDisplay, Console, io.StringIO]:
    screen = io.StringIO()
    console = Console(file=screen, width=width, height=40, force_terminal=True, color_system=None, legacy_windows=False)
    display = LiveDisplay(console, clock=lambda: NOW)
    record = RunRecord("train", "3f9a0c", "uid", "local", ["python"], "/", NOW)
    display._record = record
    return display, console, screen


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (status(), "step 250/1000 (25 %), 10m left (9m to 12m), grad_norm NaN loss 1.25"),
        (status(total=None, eta=False), "step 250, grad_norm NaN loss 1.25"),
        (status(step=None, eta=False, total=None), "nothing reported yet in this attempt"),
        (
            msgspec.structs.replace(status(step=None, eta=False, total=None), metrics={}, nonfinite={}),
            "nothing reported yet",
        ),
    ],
    ids=["with a total", "without a total", "before a resumed one's first report", "before the first report"],
)
def test_progress_is_told_on_one_line(given: RunStatus, text: str) -> None:
    assert progress_text(given) == text


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (rule(Verdict.INACTIVE), "Inactive"),
        (rule(Verdict.PENDING, since=timedelta(minutes=3)), "Pending 3m of 10m"),
        (rule(Verdict.FIRING, since=timedelta(minutes=10)), "Firing for 10m: Notify Done, Suspend in 20m"),
        (rule(Verdict.UNKNOWN, unknown="loss is NaN"), "Unknown: loss is NaN"),
        (rule(Verdict.INACTIVE, mode="Audit"), "local/flat/plateau (Audit)"),
    ],
    ids=["inactive", "pending", "firing", "unknown", "audit"],
)
def test_the_panel_says_where_each_rule_stands(given: RuleStatus, text: str) -> None:
    display, console, _ = live()

    display.status(status(given))

    assert text in shown(display, console)


@pytest.mark.parametrize("width", [20, 40, 300])
def test_the_panel_fits_any_width(width: int) -> None:
    display, console, _ = live(width)
    display.status(status(rule(Verdict.UNKNOWN, unknown="a long reason " * 20)))

    assert all(len(line) <= width for line in shown(display, console).splitlines())


def test_output_comes_in_whole_lines_and_is_not_broken_anew() -> None:
    display, _, screen = live(width=40)
    assert display.output is not None
    long = "x" * 100

    display.output(b"one\ntw")
    display.output(f"o\n{long}\né".encode()[:-1])  # within a letter

    assert screen.getvalue() == f"one\ntwo\n{long}\n"


def test_a_progress_bar_of_the_command_is_shown_as_it_stands() -> None:
    display, console, screen = live()
    display.status(status())
    assert display.output is not None

    display.output(b"\r 10% |#   |\r 20% |##  |")
    panel = shown(display, console)
    display.output(b"\r100% |####|\n")

    assert " 20% |##  |" in panel
    assert " 10%" not in panel
    assert screen.getvalue() == "100% |####|\n"


def test_plain_lines_are_marked_as_ours() -> None:
    stream = io.StringIO()
    display = PlainDisplay(stream)

    display.begin(RunRecord("train", "3f9a0c", "uid", "local", ["python"], "/", NOW, attempts=2), lambda: 0.0)
    display.problem("something")

    assert stream.getvalue().splitlines() == [
        "trainwarden: watching local/train, attempt 2 (run train-3f9a0c)",
        "trainwarden: something",
    ]
