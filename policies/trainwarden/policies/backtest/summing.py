"""Add up replays: per policy fires, stops, wrong stops, and what they would have saved and lost."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from trainwarden.policies.backtest.outcome import Replay
from trainwarden.policies.backtest.recording import Setting

__all__ = ["PolicyTotal", "Totals", "TotalsBuilder", "Unjudged"]


class Unjudged(msgspec.Struct, rename="camel"):
    """A rule that had no value in a run from its beginning to its end, so that nothing is known of it there."""

    rule: str
    runs: int = 0
    reason: str = ""  # in the first of them


class PolicyTotal(msgspec.Struct, rename="camel"):
    """One policy over all runs."""

    policy: str
    runs: int = 0
    matched_runs: int = 0  # that it was for
    fires: int = 0
    fired_runs: int = 0
    stops: int = 0
    wrong_stops: int = 0
    unjudged_stops: int = 0  # no metric tells whether they were right; counted as right
    gpu_hours_saved: float = 0.0
    gpu_hours_lost: float = 0.0
    money_saved: float | None = None  # None without a price
    money_lost: float | None = None
    idle_share_saved: float | None = None  # of the time after the last 1 % of improvement; None when there is none
    without_value: list[Unjudged] = []


class Totals(msgspec.Struct, rename="camel"):
    """All runs."""

    runs: int = 0
    reports: int = 0
    gpu_hours: float = 0.0
    gpu_hours_idle: float = 0.0  # after the last 1 % of the main metric's improvement
    money: float | None = None
    without_clock: int = 0  # runs whose steps were counted as time
    skipped: int = 0  # malformed lines or records that were left out
    empty: int = 0  # recordings without a single metric, which are not among the runs
    policies: list[PolicyTotal] = []


class TotalsBuilder:
    """Takes replays one by one."""

    def __init__(self, policies: Sequence[str], setting: Setting) -> None:
        priced = setting.price_per_hour is not None
        zero = 0.0 if priced else None
        self._setting = setting
        self._idle_saved = dict.fromkeys(policies, 0.0)
        self._idle = 0.0
        self.totals = Totals(
            money=zero,
            policies=[PolicyTotal(policy=name, money_saved=zero, money_lost=zero) for name in policies],
        )

    def add(self, replay: Replay) -> None:
        """Count one run."""
        totals, setting = self.totals, self._setting
        totals.runs += 1
        totals.reports += replay.reports
        totals.without_clock += not replay.clock
        hours = replay.elapsed_seconds / 3600
        totals.gpu_hours += hours * setting.gpus
        if totals.money is not None and setting.price_per_hour is not None:
            totals.money += hours * setting.price_per_hour
        idle = replay.idle_seconds or 0.0
        totals.gpu_hours_idle += idle / 3600 * setting.gpus
        self._idle += idle
        for total, outcome in zip(totals.policies, replay.outcomes, strict=True):
            total.runs += 1
            total.matched_runs += outcome.matched
            for rule, reason in outcome.without_value.items():
                self._unjudged(total, rule, reason).runs += 1
            total.fires += outcome.fires
            total.fired_runs += outcome.fires > 0
            stop = outcome.stop
            if stop is not None:
                total.stops += 1
                total.wrong_stops += stop.wrong
                total.unjudged_stops += stop.to_come is None
                total.gpu_hours_saved += stop.gpu_hours_saved
                total.gpu_hours_lost += stop.gpu_hours_lost
                if total.money_saved is not None and total.money_lost is not None:
                    total.money_saved += stop.money_saved or 0.0
                    total.money_lost += stop.money_lost or 0.0
                if not stop.wrong:
                    self._idle_saved[total.policy] += min(replay.elapsed_seconds - stop.elapsed_seconds, idle)
            total.idle_share_saved = self._idle_saved[total.policy] / self._idle if self._idle > 0 else None

    @staticmethod
    def _unjudged(total: PolicyTotal, rule: str, reason: str) -> Unjudged:
        found = next((each for each in total.without_value if each.rule == rule), None)
        if found is None:
            found = Unjudged(rule, reason=reason)
            total.without_value.append(found)
        return found
