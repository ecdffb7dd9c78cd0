"""A backtest as one HTML page that needs nothing else: the policies, and the curves of the runs that matter most."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from trainwarden.controller.backtesting.drawing import drawing
from trainwarden.controller.backtesting.results import Results
from trainwarden.controller.backtesting.wording import (
    COLUMNS,
    facts_of,
    order,
    percent,
    row_of,
    seconds,
    short_names,
    stop_of,
    told_firings,
    unjudged_of,
    verdict_of,
)
from trainwarden.policies.backtest.outcome import Firing, Replay

__all__ = ["MOST_PICTURES", "as_html"]

MOST_PICTURES = 240
"""Most runs with a picture: wrong stops first, then other stops, then firings."""

_MOST_FIRINGS = 5  # of one run that are listed
_STYLE = """
:root { --ink: #1c2330; --soft: #5b6575; --line: #d9dee7; --back: #f6f7f9; --card: #fff;
        --curve: #2f6fd0; --band: #2f6fd022; --bad: #c62f2f; --good: #1f8a4c; --told: #b7791f;
        color-scheme: light dark }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ef; --soft: #9aa4b5; --line: #343c4a; --back: #14181f; --card: #1d232d;
          --curve: #7aa7f0; --band: #7aa7f030; --bad: #f07a7a; --good: #5cc98a; --told: #e0b050 } }
* { box-sizing: border-box }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--back); margin: 0 auto;
       max-width: 1240px; padding: 28px 20px 60px }
h1 { font-size: 24px; margin: 0 0 4px } h2 { font-size: 18px; margin: 34px 0 10px }
p { margin: 4px 0; color: var(--soft) }
.scroll { overflow-x: auto } table { border-collapse: collapse; width: 100%; background: var(--card) }
th, td { text-align: right; padding: 7px 10px; border-bottom: 1px solid var(--line); white-space: nowrap }
th { font-weight: 600; color: var(--soft); font-size: 13px } th:first-child, td:first-child { text-align: left }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(370px, 1fr)); gap: 14px }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 12px 14px; min-width: 0 }
.card h3 { font-size: 13.5px; margin: 0 0 2px; overflow-wrap: anywhere; font-weight: 600 }
.card p { font-size: 12.5px; margin: 0 0 6px }
.card ul { margin: 6px 0 0; padding: 0; list-style: none; font-size: 12.5px }
.card li { margin: 2px 0; overflow-wrap: anywhere } svg { display: block; width: 100%; height: auto }
details { color: var(--soft); margin-top: 6px } summary { cursor: pointer }
.wrong { color: var(--bad); font-weight: 600 } .right { color: var(--good); font-weight: 600 }
.tag { display: inline-block; width: 9px; height: 9px; border-radius: 2px; margin-right: 6px }
svg text { fill: var(--soft); font: 11px system-ui, sans-serif } .axis { stroke: var(--line) }
.curve { fill: none; stroke: var(--curve); stroke-width: 1.6; stroke-linejoin: round } .band { fill: var(--band) }
.mark { stroke-width: 1.4 } .mark.told { stroke: var(--told); stroke-dasharray: 3 3 } .mark.bad { stroke: var(--bad) }
.mark.good { stroke: var(--good) } .rest { fill: var(--soft); opacity: .12 }
.tag.told { background: var(--told) } .tag.bad { background: var(--bad) } .tag.good { background: var(--good) }
"""
_LEGEND = """<p>A stop is wrong when more than 1 % of the metric's whole improvement was still to come. Saved is what
came after a right stop, lost what a wrong one had spent. Idle is the time after the last 1 % of improvement.</p>"""
_MARKS = """<p><span class="tag bad"></span>wrong stop &nbsp; <span class="tag good"></span>right stop &nbsp;
<span class="tag told"></span>fired without stopping; grey is what a stop would have cut off</p>"""


def as_html(results: Results) -> str:
    """The page. Replays need their curves."""
    ordered = order(results.replays)
    fired = [replay for replay in ordered if replay.firings]
    shown = fired[:MOST_PICTURES] or ordered[:MOST_PICTURES]
    left = len(fired) - len(shown) if fired else len(ordered) - len(shown)
    names = short_names([replay.id for replay in ordered])
    more = f"<p>{left:,} more runs are in the JSON.</p>" if left > 0 else ""
    title = f"{len(fired):,} of {len(ordered):,} runs in which something fired" if fired else "Nothing fired"
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        f"<title>trainwarden backtest</title><style>{_STYLE}</style></head><body>",
        f"<h1>Backtest</h1><p>{escape(facts_of(results.totals))}</p>",
        "<h2>Policies</h2>",
        _policies(results),
        _LEGEND,
        _unjudged([told for total in results.totals.policies for told in unjudged_of(total)]),
        f"<h2>{title}</h2>",
        _MARKS,
        '<div class="cards">',
        *(_card(replay, names[replay.id]) for replay in shown),
        f"</div>{more}</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _policies(results: Results) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in COLUMNS)
    return f'<div class="scroll"><table><tr>{head}</tr>{_rows(map(row_of, results.totals.policies))}</table></div>'


def _unjudged(told: Sequence[str]) -> str:
    """What could not be judged, folded: it explains the table, and is longer than it."""
    if not told:
        return ""
    items = "".join(f"<li>{escape(each)}</li>" for each in told)
    head = f"Why rules could not judge some runs ({len(told):,})"
    return f"<details><summary>{head}</summary><ul>{items}</ul></details>"


def _rows(rows: Iterable[Sequence[str]]) -> str:
    return "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>" for cells in rows)


def _card(replay: Replay, name: str) -> str:
    """One run: its curve, and what fired."""
    metrics = [firing.metric for firing in replay.firings if firing.action is not None and firing.action.rank >= 2]
    wanted = [*metrics, replay.metric, *(firing.metric for firing in replay.firings)]
    curves = {curve.metric: curve for curve in replay.curves}
    curve = next((curves[name] for name in wanted if name is not None and name in curves), None)
    marks = [(firing.step, _kind(verdict_of(firing, replay))) for firing in replay.firings]
    picture = drawing(curve, marks, replay.last_step) if curve is not None else "<p>no metric to draw</p>"
    about = f"{replay.last_step:,} steps, {seconds(replay.elapsed_seconds)}"
    told = told_firings(replay, _MOST_FIRINGS)
    listed = "".join(_item(replay, firing) for firing in told)
    left = len(replay.firings) - len(told)
    more = f"<li>and {left:,} more</li>" if left > 0 else ""
    head = f'<h3 title="{escape(replay.id, quote=True)}">{escape(name)}</h3><p>{escape(about)}</p>'
    return f'<div class="card">{head}{picture}<ul>{listed}{more}</ul></div>'


def _item(replay: Replay, firing: Firing) -> str:
    verdict = verdict_of(firing, replay)
    stop = stop_of(replay, firing.policy)
    kind = _kind(verdict)
    words = [f"{firing.policy}/{firing.rule}", f"step {firing.step:,}", seconds(firing.elapsed_seconds)]
    if firing.action is not None:
        words.append(firing.action.value)
    if firing.metric is not None and firing.to_come is not None:
        words.append(f"{percent(firing.to_come)} of {firing.metric} to come")
    said = f' <span class="{"wrong" if kind == "bad" else "right"}">{escape(verdict)}</span>' if verdict else ""
    if verdict and stop is not None and not stop.wrong:
        said += f" {stop.gpu_hours_saved:,.1f} GPU-hours saved"
    title = escape(firing.message, quote=True)
    return f'<li title="{title}"><span class="tag {kind}"></span>{escape(", ".join(words))}{said}</li>'


def _kind(verdict: str) -> str:
    return {"wrong stop": "bad", "right stop": "good", "stop": "good"}.get(verdict, "told")
