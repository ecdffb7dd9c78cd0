"""Make one message of a notice: what happened, why in numbers, what is safe, what was saved, how to go on."""

from __future__ import annotations

import html
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass

from trainwarden.notifiers import curve as picture
from trainwarden.notifiers import wording as say
from trainwarden.policies.decision import ActionState, Mode, Severity, Value, Verdict
from trainwarden.policies.notice import Notice, Outcome

__all__ = ["SHORT_LIMIT", "Message", "compose"]

log = logging.getLogger(__name__)

SHORT_LIMIT = 900  # characters of `short`; the smallest service that matters takes 1,000
_FULL_LIMIT = 3800  # of `markdown` and `plain`; Telegram takes 4,096, Mattermost and Google Chat 4,000
_BLOCKS = "▁▂▃▄▅▆▇█"
_COLOURS = {Severity.INFO: "#0072b2", Severity.WARNING: "#b26a00", Severity.CRITICAL: "#b3261e"}

_DONE = {"Suspend": "suspended", "Stop": "stopped", "Delete": "deleted", "Checkpoint": "checkpointed"}


@dataclass(frozen=True, slots=True)
class Message:
    """A notice in words. Everything untrusted in it is escaped for the form it is in."""

    title: str  # one line, at most 200 characters
    markdown: str  # for chat; at most 3,800 characters
    plain: str  # the same without markup
    short: str  # Markdown of at most SHORT_LIMIT characters, the least important left out
    short_plain: str  # the same without markup
    html: str  # for mail: a fragment with inline styles
    png: bytes | None  # 1200 x 600; None without a curve
    picture_name: str
    severity: Severity
    incident: str
    update: bool  # something new of an incident that people have been told of


@dataclass(frozen=True, slots=True)
class _Fact:
    """One labelled line; `code` texts are shown in a monospaced face, `block` ones by themselves."""

    label: str
    text: str
    code: str = ""
    block: bool = False
    weight: int = 5  # 0 is never left out of the short form, 9 is first to go


def compose(notice: Notice) -> Message:
    """The message for a notice. Pure but for the drawing; parts that the notice lacks are left out.

    A curve that cannot be drawn costs the picture, never the message.
    """
    facts = tuple(_facts(notice))
    title = _title(notice)
    spark = _sparkline(notice)
    png = None
    if notice.curve is not None and notice.curve.steps:
        run = notice.decision.run
        try:
            checkpoint = notice.checkpoint.step if notice.checkpoint else None
            png = picture.render(notice.curve, title=f"{run.namespace}/{run.job}", checkpoint_step=checkpoint)
        except (ValueError, OverflowError, OSError, ArithmeticError) as error:
            log.warning("picture left out notice=%s reason=%s", notice.id, type(error).__name__)
    happened = notice.decision.message or f"Rule {notice.decision.rule} {notice.decision.verdict.lower()}."
    return Message(
        title=title,
        markdown=_fit(_markdown(happened, spark, facts), _FULL_LIMIT),
        plain=_fit(_plain(happened, spark, facts), _FULL_LIMIT),
        short=_fit(_markdown(happened, spark, facts, brief=True), SHORT_LIMIT),
        short_plain=_fit(_plain(happened, spark, facts, brief=True), SHORT_LIMIT),
        html=_html(notice, title, happened, facts),
        png=png,
        picture_name=re.sub(r"[^A-Za-z0-9.-]+", "-", f"{notice.decision.run.job}-{notice.decision.rule}")[:80] + ".png",
        severity=notice.decision.severity,
        incident=notice.incident,
        update=_is_update(notice),
    )


def _is_update(notice: Notice) -> bool:
    return not notice.action_id or notice.decision.verdict is Verdict.RESOLVED


def _title(notice: Notice) -> str:
    decision = notice.decision
    name = f"{decision.run.namespace}/{decision.run.job}"
    mark = "Resolved" if decision.verdict is Verdict.RESOLVED else decision.severity.value.capitalize()
    if decision.policy.mode is Mode.AUDIT:
        mark += ", audit"
    if _is_update(notice) and decision.verdict is not Verdict.RESOLVED:
        mark += ", update"
    return say.chat(f"[{mark}] {name}: {_headline(notice)}", 200)


def _headline(notice: Notice) -> str:
    because = say.line(notice.because, 120) or f"rule {notice.decision.rule} fired"
    if notice.decision.verdict is Verdict.RESOLVED:
        return f"rule {notice.decision.rule} no longer holds"
    acts = [outcome for outcome in notice.outcomes if outcome.action in _DONE]
    for outcome in reversed(acts):
        if outcome.state == ActionState.DONE:
            return f"{_DONE[outcome.action]} after {because}"
        if outcome.state == ActionState.WOULD_ACT:
            return f"would have been {_DONE[outcome.action]} after {because}"
        if outcome.state in (ActionState.FAILED, ActionState.REFUSED):
            return f"could not be {_DONE[outcome.action]} after {because}"
    return because


def _facts(notice: Notice) -> Iterator[_Fact]:
    decision = notice.decision
    if notice.condition:
        yield _Fact("Condition", "", code=notice.condition, weight=4)
    at = f" at step {decision.evidence.step:,}" if decision.evidence.step is not None else ""
    for name, value in list(decision.evidence.values.items())[:12]:
        yield _Fact("", f"was {_value(value)}{at}", code=name, weight=5)
    for window in decision.evidence.windows[:4]:
        span = say.duration((window.to_time - window.from_time).total_seconds())
        text = f"steps {window.from_step:,} to {window.to_step:,}, {span}, {window.points:,} points"
        yield _Fact("Window", text, code=window.metric, weight=6)
    if decision.evidence.unknown:
        yield _Fact("Unknown", decision.evidence.unknown, weight=5)
    yield from _progress(notice)
    yield from _checkpoint(notice)
    for outcome in notice.outcomes[:8]:
        yield _Fact(outcome.action, _outcome(outcome), weight=2)
    saved = [say.duration(notice.saved_seconds)] if notice.saved_seconds else []
    saved += [say.money(notice.saved_cost)] if notice.saved_cost else []
    if saved:
        audit = decision.policy.mode is Mode.AUDIT
        label = "Would have saved" if audit else "Saved"
        yield _Fact(label, " of running and ".join(saved) + " of the plan's cost" * bool(notice.saved_cost), weight=1)
    if notice.resume_command:
        yield _Fact("Resume", "", code=notice.resume_command, block=True, weight=0)
    policy = decision.policy
    yield _Fact("Decided by", f"{policy.kind} {policy}, generation {policy.generation}, rule {decision.rule}", weight=3)
    yield _Fact("Decision", say.moment(decision.time), code=decision.id, weight=3)
    ways = (
        ["resume it: this rule lets a resumed run go on until it has seen better data"] if notice.resume_command else []
    )
    ways += [notice.contest] if notice.contest else []
    if ways:
        yield _Fact("To contest", ". Or ".join(ways), weight=8)


def _progress(notice: Notice) -> Iterator[_Fact]:
    step = notice.decision.evidence.step
    parts = [f"step {step:,}"] if step is not None else []
    parts += [f"{notice.progress_percent:.1f} %"] if notice.progress_percent is not None else []
    parts += [f"running for {say.duration(notice.running_seconds)}"] if notice.running_seconds is not None else []
    parts += [f"{say.duration(notice.eta_seconds)} left"] if notice.eta_seconds is not None else []
    parts += [f"cost so far {say.money(notice.cost)}"] if notice.cost is not None else []
    if parts:
        yield _Fact("Progress", ", ".join(parts), weight=3)


def _checkpoint(notice: Notice) -> Iterator[_Fact]:
    proof = notice.checkpoint
    if proof is None:
        return
    parts = [f"step {proof.step:,}"]
    parts += [say.size(proof.bytes)] if proof.bytes is not None else []
    parts += [say.short_digest(proof.digest)] if proof.digest else ["not proved by a digest"]
    if notice.checkpoint_age_seconds is not None:
        parts.append(f"{say.duration(notice.checkpoint_age_seconds)} old")
    yield _Fact("Safe checkpoint" if proof.digest else "Newest checkpoint", ", ".join(parts), code=proof.path, weight=1)
    if proof.digest:
        yield _Fact("Digest", "", code=proof.digest, weight=9)


def _outcome(outcome: Outcome) -> str:
    words = {"WouldAct": "would have been done (audit)", "InProgress": "in progress"}
    text = words.get(outcome.state, outcome.state.lower())
    if outcome.at is not None:
        text += f" {'at' if outcome.state != 'Planned' else 'for'} {say.moment(outcome.at)}"
    return f"{text}: {outcome.message}" if outcome.message else text


def _value(value: Value) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "unknown"}[value]
    return say.number(value) if isinstance(value, int | float) else str(value)


def _markdown(happened: str, spark: str, facts: tuple[_Fact, ...], *, brief: bool = False) -> list[tuple[int, str]]:
    lines = [(0, say.chat(happened, 300 if brief else 800))]
    if spark:
        lines.append((7, f"`{spark}`"))
    for fact in facts:
        label = f"**{say.chat(fact.label, 60)}:** " if fact.label else "• "
        if fact.block:
            lines.append((fact.weight, f"**{fact.label}:**\n```\n{say.code(fact.code, 300)}\n```"))
            continue
        parts = [f"`{say.code(fact.code, 160 if brief else 300)}`"] if fact.code else []
        parts += [say.chat(fact.text, 160 if brief else 400)] if fact.text else []
        lines.append((fact.weight, label + " ".join(parts)))
    return lines


def _plain(happened: str, spark: str, facts: tuple[_Fact, ...], *, brief: bool = False) -> list[tuple[int, str]]:
    lines = [(0, say.line(happened, 300 if brief else 800))] + ([(7, spark)] if spark else [])
    for fact in facts:
        label = f"{fact.label}: " if fact.label else "- "
        text = " ".join(
            part
            for part in (say.line(fact.code, 160 if brief and not fact.block else 300), say.line(fact.text))
            if part
        )
        lines.append((fact.weight, label + ("\n    " if fact.block else "") + text))
    return lines


def _fit(lines: list[tuple[int, str]], limit: int) -> str:
    """Whole lines, least important and last ones left out until the text fits."""
    kept = list(lines)
    while len(kept) > 1 and sum(len(text) + 2 for _, text in kept) > limit:
        worst = max(range(1, len(kept)), key=lambda index: (kept[index][0], index))
        del kept[worst]
    return "\n".join(text for _, text in kept)[:limit]


def _html(notice: Notice, title: str, happened: str, facts: tuple[_Fact, ...]) -> str:
    colour = _COLOURS[notice.decision.severity]
    face = "font-family:-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif;color:#1b1b1f"
    mono = "font-family:ui-monospace,Menlo,Consolas,monospace;font-size:13px;word-break:break-all"
    rows = []
    for fact in facts:
        code = html.escape(say.line(fact.code, 1000))
        cell = f'<span style="{mono}">{code}</span>' if code else ""
        if fact.block:
            cell = f'<pre style="{mono};background:#f3f3f6;padding:10px;margin:0;white-space:pre-wrap">{code}</pre>'
        cell += (" " if cell and fact.text else "") + html.escape(say.line(fact.text, 1000))
        rows.append(
            f'<tr><td style="padding:4px 12px 4px 0;color:#5c5c66;vertical-align:top;white-space:nowrap">'
            f'{html.escape(fact.label)}</td><td style="padding:4px 0">{cell}</td></tr>'
        )
    return (
        f'<div style="{face};font-size:15px;line-height:1.45;max-width:680px;border-left:4px solid {colour};'
        f'padding-left:16px"><h2 style="font-size:18px;margin:0 0 8px;color:{colour}">{html.escape(title)}</h2>'
        f'<p style="margin:0 0 12px">{html.escape(say.line(happened, 2000))}</p>'
        f'<table style="border-collapse:collapse;font-size:14px">{"".join(rows)}</table></div>'
    )


def _sparkline(notice: Notice) -> str:
    """The curve in 24 characters, for services without pictures; empty with fewer than three points."""
    values = notice.curve.values if notice.curve else ()
    if len(values) < 3:
        return ""
    count = min(24, len(values))
    picked = [values[round(index * (len(values) - 1) / (count - 1))] for index in range(count)]
    low, high = min(picked), max(picked)
    span = (high / 2 - low / 2) * 2 if high > low else 1.0
    return "".join(_BLOCKS[min(7, int((value / 2 - low / 2) * 2 / span * 7.99))] for value in picked)
