"""What a run came to: which rules fired and why, what was saved, and how to go on."""

from __future__ import annotations

import signal
from collections import Counter
from datetime import timedelta

from trainwarden.controller.local.session import Ending
from trainwarden.policies.decision import ActionState, ActionType, Decision, Verdict
from trainwarden.policies.expressions.functions import human_duration

__all__ = ["summary"]

_ENDED = {ActionType.SUSPEND: "suspended", ActionType.STOP: "stopped", ActionType.DELETE: "deleted"}

_LAST = ", at last: "


def summary(ending: Ending) -> list[str]:
    """The lines of the summary."""
    record = ending.record
    lines = [f"{record.namespace}/{record.name}: {_how(ending)}"]
    if ending.status is not None and ending.status.step is not None:
        total = f" of {ending.status.total}" if ending.status.total else ""
        lines.append(f"reached  step {ending.status.step}{total}")
    fired = [d for d in ending.log.decisions if d.verdict is Verdict.FIRING and d.action is None]
    lines += _grouped([(f"fired    {d.policy}/{d.rule}", d.message) for d in fired]) or ["fired    nothing"]
    lines += _grouped([(f"did      {_action(d)}", d.message) for d in _final_actions(ending.log.decisions)])
    if record.checkpoint is not None:
        proof = record.checkpoint
        digest = f", {proof.digest[:23]}…" if proof.digest else ""
        size = f", {proof.bytes:,} bytes" if proof.bytes is not None else ""
        kind = "safe    " if proof.digest else "newest  "
        lines.append(f"{kind} checkpoint of step {proof.step} at {proof.path}{size}{digest}")
    lines += _saved(ending)
    told = [(target, "") for target, state, _ in ending.deliveries if state == "delivered"]
    lines += _grouped([(f"told     {target}", text) for target, text in told])
    failed = [(target, reason) for target, state, reason in ending.deliveries if state != "delivered"]
    lines += _grouped([(f"not told {target}", reason) for target, reason in failed])
    if record.resumable:
        lines.append(f"resume   {ending.resume_command}")
    lines += [f"problem  {problem}" for problem in ending.problems]
    return lines


def _how(ending: Ending) -> str:
    ran = human_duration(timedelta(seconds=round(ending.seconds)))
    code = ending.training_code
    if ending.ended_by is not None:
        return f"{_ENDED[ending.ended_by]} by a policy after {ran}"
    if code is None:
        return "was not started"
    if ending.signal is not None:
        how = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}.get(signal.Signals(ending.signal), "hung up")
        return f"{how} after {ran}"
    if code < 0:
        return f"ended by signal {-code} after {ran}"
    return f"complete after {ran}" if code == 0 else f"failed with exit code {code} after {ran}"


def _final_actions(decisions: list[Decision]) -> list[Decision]:
    """The newest decision of each action that came to an end."""
    newest = {d.action.id: d for d in decisions if d.action is not None}
    return [d for d in newest.values() if d.action_state is not None and d.action_state is not ActionState.CANCELLED]


def _action(decision: Decision) -> str:
    assert decision.action is not None  # noqa: S101 - chosen so
    return f"{decision.action.type} {decision.action_state}"


def _grouped(told: list[tuple[str, str]]) -> list[str]:
    """A line for each different beginning, with its number and newest text, in the order of the first ones."""
    number = Counter(begin for begin, _ in told)
    newest = dict(told)
    lines = []
    for begin, text in newest.items():
        times = f", {number[begin]} times" if number[begin] > 1 else ""
        said = f"{_LAST if times else ': '}{text}" if text else ""
        lines.append(f"{begin}{times}{said}")
    return lines


def _saved(ending: Ending) -> list[str]:
    """Time and money that the rest of the plan would have taken, as people were told."""
    if ending.ended_by is None or ending.saved_seconds is None:
        return []
    money = f" and {ending.saved_cost:.2f} of money" if ending.saved_cost is not None else ""
    return [f"saved    {human_duration(timedelta(seconds=round(ending.saved_seconds)))} of training{money}"]
