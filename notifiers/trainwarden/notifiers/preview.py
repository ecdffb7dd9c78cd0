"""Write a sample notice's message as people get it: `python -m trainwarden.notifiers.preview [--out DIR]`."""

from __future__ import annotations

import argparse
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

from trainwarden.notifiers.compose import compose
from trainwarden.policies.decision import (
    ActionState,
    Decision,
    Evidence,
    Mode,
    PolicyRef,
    Proof,
    RunRef,
    Severity,
    Verdict,
    Window,
)
from trainwarden.policies.notice import Curve, Notice, Outcome

__all__ = ["main", "sample"]

_TIME = datetime(2026, 11, 28, 3, 14, tzinfo=UTC)


def sample() -> Notice:
    """A training that went flat in the night and was suspended. The numbers are made up."""
    steps = tuple(range(0, 20_000, 100))
    values = tuple(2.3 + 2.2 * math.exp(-step / 2500) + 0.02 * math.sin(step * 0.7) for step in steps)
    best = steps[min(range(len(values)), key=values.__getitem__)]
    condition = 'plateau("eval/loss", duration("2h")) && progress.percent < 95.0'
    window = Window("eval/loss", 12_400, 19_900, _TIME - timedelta(hours=2), _TIME, 75)
    proof = Proof(19_900, "/checkpoints/llama-7b/checkpoint-19900", 14_200_000_000, "sha256:" + "3f9a0c51d7e2b846" * 4)
    decision = Decision(
        id="7d1f2c9e8a3b4f60a1b2c3d4e5f60718",
        time=_TIME,
        run=RunRef("team-a", "llama-7b", "uid-1", "1", "run-1"),
        policy=PolicyRef("TrainingPolicy", "team-a", "flat-loss", "uid-2", 3, Mode.ENFORCE),
        rule="plateau",
        verdict=Verdict.FIRING,
        severity=Severity.WARNING,
        reason="ConditionHeld",
        message="No progress in eval/loss for 2h 5m.",
        evidence=Evidence(
            step=19_900,
            values={'plateau("eval/loss", duration("2h"))': True, "progress.percent": 49.75},
            windows=(window,),
        ),
        episode=1,
    )
    return Notice(
        id="sample",
        incident="sample-incident",
        time=_TIME,
        decision=decision,
        channels=(),
        condition=condition,
        because="its eval/loss went flat",
        curve=Curve(
            metric="eval/loss",
            steps=steps,
            values=values,
            lows=tuple(value - 0.05 for value in values),
            highs=tuple(value + 0.06 for value in values),
            window_from=12_400,
            window_to=19_900,
            fired_at=19_900,
            best_step=best,
        ),
        outcomes=(
            Outcome("Checkpoint", ActionState.DONE, "saved at step 19,900", _TIME + timedelta(minutes=10)),
            Outcome("Suspend", ActionState.DONE, "the process has stopped", _TIME + timedelta(minutes=30)),
        ),
        checkpoint=proof,
        checkpoint_age_seconds=1230.0,
        progress_percent=49.75,
        eta_seconds=67_000.0,
        running_seconds=66_300.0,
        cost=412.5,
        saved_cost=416.0,
        saved_seconds=67_000.0,
        resume_command="trainwarden resume llama-7b-3f9a0c --dir /home/ann/llama",
        contest="edit the policy, and give it with --policy when you run or resume",
        action_id="sample-action",
    )


def main() -> None:
    """Write message.md, message.txt, message.html and message.png into --out."""
    parser = argparse.ArgumentParser(prog="python -m trainwarden.notifiers.preview", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(), help="folder for the files (default: this one)")
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    message = compose(sample())
    page = (
        f'<!doctype html><meta charset="utf-8"><title>Message</title>{message.html}<img src="message.png" width="600">'
    )
    for name, text in (("md", message.markdown), ("txt", message.plain), ("html", page)):
        (out / f"message.{name}").write_text(text + "\n", encoding="utf-8")
        print(out / f"message.{name}")
    if message.png is not None:
        (out / "message.png").write_bytes(message.png)
        print(out / "message.png")


if __name__ == "__main__":
    main()
