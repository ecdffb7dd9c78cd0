"""Numbers of a backtest as people read them; the same in table and page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from trainwarden.policies.backtest.outcome import Firing, Replay, Stop
from trainwarden.policies.backtest.summing import PolicyTotal, Totals

__all__ = [
    "COLUMNS",
    "facts_of",
    "order",
    "percent",
    "row_of",
    "seconds",
    "short_names",
    "stop_of",
    "told_firings",
    "unjudged_of",
    "verdict_of",
]

COLUMNS = (
    "policy", "fired in", "stopped", "wrong stops", "GPU-hours saved", "GPU-hours lost", "idle time saved", "money",
)  # fmt: skip
"""Heads of the table of policies."""


def row_of(total: PolicyTotal) -> tuple[str, ...]:
    """One policy; cells as in COLUMNS."""
    share = f" ({total.wrong_stops / total.runs:.1%})" if total.runs else ""
    money = "–"
    if total.money_saved is not None and total.money_lost is not None:
        money = f"{total.money_saved:,.0f} saved, {total.money_lost:,.0f} lost"
    return (
        total.policy,
        f"{total.fired_runs:,} of {total.runs:,} runs",
        f"{total.stops:,}",
        f"{total.wrong_stops:,}{share}",
        f"{total.gpu_hours_saved:,.1f}",
        f"{total.gpu_hours_lost:,.1f}",
        percent(total.idle_share_saved),
        money,
    )


def facts_of(totals: Totals) -> str:
    """All runs in one sentence."""
    idle = f", {totals.gpu_hours_idle / totals.gpu_hours:.0%} of them idle" if totals.gpu_hours > 0 else ""
    text = f"{totals.runs:,} runs, {totals.reports:,} reports, {totals.gpu_hours:,.1f} GPU-hours{idle}"
    if totals.without_clock:
        text += f"; {totals.without_clock:,} without a clock, whose steps were counted as time"
    if totals.empty:
        text += f"; {totals.empty:,} recordings without a metric are left out"
    return text


def unjudged_of(total: PolicyTotal) -> list[str]:
    """What a policy could not judge, a sentence each; without them nothing found would look like nothing to find."""
    told = []
    if left := total.runs - total.matched_runs:
        told.append(
            f"{total.policy} was not for {left:,} of {total.runs:,} runs: its selector or match leaves them out"
        )
    for each in total.without_value:
        if each.runs < total.matched_runs:
            runs = f"{each.runs:,} of {total.matched_runs:,} runs"
        else:
            runs = f"any of {each.runs:,} runs" if each.runs > 1 else "the run"
        told.append(f"{total.policy}/{each.rule} had no value in {runs}: {each.reason}")
    return told


def percent(share: float | None) -> str:
    """A share in percent; a dash when it is not known."""
    if share is None:
        return "–"
    return f"{share:.1%}" if 0 < share < 0.1 else f"{share:.0%}"


def seconds(value: float) -> str:
    """A time span in two units at most."""
    whole = round(value)
    for unit, size, below, part in (("d", 86_400, "h", 3_600), ("h", 3_600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size}{unit}" + (f" {rest}{below}" if rest else "")
    return f"{value:.3g}s"


def stop_of(replay: Replay, policy: str) -> Stop | None:
    """The stop of a policy in a run."""
    return next((outcome.stop for outcome in replay.outcomes if outcome.policy == policy), None)


def verdict_of(firing: Firing, replay: Replay) -> str:
    """What the firing was worth: right, wrong, or nothing to judge when it does not stop the run."""
    stop = stop_of(replay, firing.policy)
    if stop is None or (stop.step, stop.rule) != (firing.step, firing.rule) or firing.action is not stop.action:
        return ""
    if stop.wrong:
        return "wrong stop"
    return "right stop" if stop.to_come is not None else "stop"


def told_firings(replay: Replay, most: int) -> list[Firing]:
    """The firings of each policy up to its stop, since live there would be no later ones; the stops, and the first."""
    stops = {outcome.policy: outcome.stop for outcome in replay.outcomes if outcome.stop is not None}
    ends = {name: stop.elapsed_seconds for name, stop in stops.items()}
    live = [each for each in replay.firings if each.elapsed_seconds <= ends.get(each.policy, math.inf)]
    left = most - sum(bool(verdict_of(each, replay)) for each in live)
    told = []
    for each in live:
        stopped = bool(verdict_of(each, replay))
        if stopped or left > 0:
            told.append(each)
            left -= not stopped
    return told


def order(replays: Sequence[Replay]) -> list[Replay]:
    """Runs that matter most first: wrong stops, other stops, firings, all else."""

    def rank(replay: Replay) -> tuple[int, float]:
        stops = [outcome.stop for outcome in replay.outcomes if outcome.stop is not None]
        wrong = [stop.to_come or 0.0 for stop in stops if stop.wrong]
        if wrong:
            return 0, -max(wrong)
        return (1 if stops else 2 if replay.firings else 3), 0.0

    return sorted(replays, key=rank)


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Names without what all paths that begin alike begin and end with; at least one part of each is left."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.split("/", 1)[0], []).append(name)
    return {name: short for group in groups.values() for name, short in _shortened(group)}


def _shortened(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    paths = [name.split("/") for name in names]
    least = min(map(len, paths)) - 1 if len(paths) > 1 else 0
    start = next((at for at in range(least) if len({path[at] for path in paths}) > 1), least)
    least -= start
    end = next((at for at in range(least) if len({path[-1 - at] for path in paths}) > 1), least)
    for name, path in zip(names, paths, strict=True):
        yield name, "/".join(path[start : len(path) - end])
