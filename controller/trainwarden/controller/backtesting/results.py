"""What a backtest found, collected; and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from trainwarden.controller.backtesting.working import Batch
from trainwarden.policies.backtest.outcome import Replay
from trainwarden.policies.backtest.recording import Setting
from trainwarden.policies.backtest.summing import Totals, TotalsBuilder

__all__ = ["Results", "as_json"]

_TOLD = 20  # malformed places that are told one by one


class Results:
    """Takes what came of recordings, batch by batch."""

    def __init__(self, policies: Sequence[str], setting: Setting) -> None:
        self.setting = setting
        self.replays: list[Replay] = []
        self.told: list[str] = []
        self._builder = TotalsBuilder(policies, setting)

    @property
    def totals(self) -> Totals:
        """Sums so far."""
        return self._builder.totals

    def take(self, batch: Batch) -> None:
        """Take a batch."""
        self.totals.skipped += batch.skipped
        self.totals.empty += batch.empty
        self.told += batch.told[: _TOLD - len(self.told)]
        for replay in batch.replays:
            self.replays.append(replay)
            self._builder.add(replay)


def as_json(results: Results) -> bytes:
    """`runs`, each with its firings, and `totals`; keys in camelCase, told in docs/backtest.md."""
    runs: list[Any] = []
    for replay in results.replays:
        run = msgspec.to_builtins(replay)
        del run["curves"]
        runs.append(run)
    text = msgspec.json.encode({"runs": runs, "totals": results.totals})
    return msgspec.json.format(text, indent=2) + b"\n"
