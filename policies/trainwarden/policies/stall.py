"""How long the step of a training has stood still, in time that counts.

Time counts while the pods are ready and the phase is `train`. Starting (until the first step), evaluating and saving
have budgets of their own, learnt from the run; what goes beyond them counts.
"""

from __future__ import annotations

__all__ = ["BUDGET_FACTOR", "LEAST_BUDGETS", "StallClock"]

BUDGET_FACTOR = 5.0
"""A phase may take so many times the longest one of its kind in this run."""

LEAST_BUDGETS = {"init": 1800.0, "eval": 900.0, "checkpoint": 900.0}
"""Seconds that a phase may always take; `init` reaches to the first step, compilation included."""


class StallClock:
    """Seconds without a step. All moments are Unix seconds; one before the newest counts as the newest."""

    __slots__ = ("_counted", "_entered", "_kind", "_longest", "_moved", "_ready", "_seen", "_spent")

    def __init__(self) -> None:
        self._longest: dict[str, float] = {}
        self._ready = False
        self._seen: float | None = None
        self._kind = "init"
        self._moved = False  # a step was seen in this attempt
        self._counted = 0.0  # seconds of train without a step
        self._spent = 0.0  # seconds in the phase that lasts
        self._entered = False  # a report of this attempt was heard

    def restart(self) -> None:
        """Begin another attempt or training. What was learnt about phases stays."""
        self._kind, self._moved, self._entered = "init", False, False
        self._counted = self._spent = 0.0

    def ready(self, ready: bool, at: float) -> None:
        """The pods became ready, or are no longer."""
        self._pass_to(at)
        self._ready = ready

    def observe(self, phase: str, at: float, *, moved: bool) -> None:
        """A report of this attempt: its phase, and whether the step has moved since the one before."""
        self._pass_to(at)
        self._entered = True
        kind = phase if phase in LEAST_BUDGETS else "train"
        if moved:
            self._moved = True
            self._counted = 0.0
        if not self._moved:
            kind = "init"
        if kind == self._kind:
            if moved:
                self._spent = 0.0
            return
        if self._kind != "train":
            # An over-long phase has counted; a step that came right after it ends that.
            over = max(self._spent - self.budget(self._kind), 0.0)
            if not moved:
                self._counted += over
            self._longest[self._kind] = max(self._longest.get(self._kind, 0.0), self._spent)
        self._kind, self._spent = kind, 0.0

    def budget(self, kind: str) -> float:
        """Seconds that a phase may take before it counts."""
        return max(BUDGET_FACTOR * self._longest.get(kind, 0.0), LEAST_BUDGETS[kind])

    def still_for(self, now: float) -> float | None:
        """Seconds without a step that count; None before the first report of the attempt."""
        if not self._entered:
            return None
        spent = self._spent + self._ahead(now)
        if self._kind == "train":
            return self._counted + self._ahead(now)
        return self._counted + max(spent - self.budget(self._kind), 0.0)

    def _ahead(self, now: float) -> float:
        if not self._ready or self._seen is None:
            return 0.0
        return max(now - self._seen, 0.0)

    def _pass_to(self, at: float) -> None:
        passed = self._ahead(at)
        if self._kind == "train":
            self._counted += passed
        else:
            self._spent += passed
        if self._seen is None or at > self._seen:
            self._seen = at
