"""How long the step of a training has stood still, in time that counts, and how long it may.

Time counts while the pods are ready and the phase is `train`. Starting (until the first step), evaluating and saving
have budgets of their own, learnt from the run; what goes beyond them counts. Time in which the training could not be
heard, through no fault of its own, does not.
"""

from __future__ import annotations

from trainwarden.policies.hearing import Hearing

__all__ = ["BUDGET_FACTOR", "LEAST_BUDGETS", "LEAST_STEP_BUDGET", "LONG_STEP_FACTOR", "STEP_FACTOR", "StallClock"]

BUDGET_FACTOR = 5.0
"""A phase may take so many times the longest one of its kind in this run."""

LEAST_STEP_BUDGET = 600.0
"""Seconds that a step may always take."""

STEP_FACTOR, LONG_STEP_FACTOR = 10.0, 3.0
"""A step may take so many times the usual one, or so many times the second longest one of this run."""

LEAST_BUDGETS = {"init": 1800.0, "eval": 900.0, "checkpoint": 900.0}
"""Seconds that a phase may always take; `init` reaches to the first step, compilation included."""


class StallClock:
    """Seconds without a step. All moments are Unix seconds; one before the newest counts as the newest.

    Args:
        hearing: When the training could be heard; None: always.
    """

    __slots__ = (
        "_counted",
        "_entered",
        "_heard",
        "_hearing",
        "_kind",
        "_longest",
        "_longest_steps",
        "_moved",
        "_ready",
        "_seen",
        "_spent",
        "_steps",
        "_usual",
    )

    def __init__(self, hearing: Hearing | None = None) -> None:
        self._hearing = hearing or Hearing()
        self._heard: float | None = None  # when the newest report came
        self._longest: dict[str, float] = {}
        self._longest_steps = (0.0, 0.0)  # seconds of the longest step, and of the second longest
        self._usual = 0.0  # seconds of a step, as reports tell
        self._steps = 0
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
        self._heard = at
        self._entered = True
        kind = phase if phase in LEAST_BUDGETS else "train"
        if moved:
            if self._moved and self._kind == "train" and self._counted > 0:
                self._learn_step(self._counted)
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
            known = min(self._spent, self.budget(self._kind))  # a phase that hung teaches less than it took
            self._longest[self._kind] = max(self._longest.get(self._kind, 0.0), known)
        self._kind, self._spent = kind, 0.0

    def budget(self, kind: str) -> float:
        """Seconds that a phase may take before it counts."""
        return max(BUDGET_FACTOR * self._longest.get(kind, 0.0), LEAST_BUDGETS[kind])

    def step_budget(self) -> float:
        """Seconds that `still_for` may count before the training is stalled, by this run's own steps."""
        return max(STEP_FACTOR * self._usual, LONG_STEP_FACTOR * self._longest_steps[1], LEAST_STEP_BUDGET)

    def _learn_step(self, seconds: float) -> None:
        self._steps += 1
        self._usual += (min(seconds, self.step_budget()) - self._usual) * max(0.05, 1 / self._steps)
        longest, second = self._longest_steps
        if seconds > second:
            self._longest_steps = (max(longest, seconds), min(longest, seconds))

    def still_for(self, now: float) -> float | None:
        """Seconds without a step that count; None before the first report of the attempt."""
        if not self._entered:
            return None
        spent = self._spent + self._ahead(now)
        if self._kind == "train":
            return self._counted + self._ahead(now)
        return self._counted + max(spent - self.budget(self._kind), 0.0)

    def _ahead(self, now: float, *, proven: bool = True) -> float:
        if not self._ready or self._seen is None:
            return 0.0
        heard = self._seen if self._heard is None else self._heard
        return self._hearing.seconds(self._seen, now, heard=heard, proven=proven)

    def _pass_to(self, at: float) -> None:
        passed = self._ahead(at, proven=False)
        if self._kind == "train":
            self._counted += passed
        else:
            self._spent += passed
        if self._seen is None or at > self._seen:
            self._seen = at
