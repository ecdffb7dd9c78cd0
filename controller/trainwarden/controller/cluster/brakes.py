"""How much may be ended in an hour, whatever policies say: a wrong policy must not stop the whole cluster at once."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from trainwarden.controller.executor import AUDITED, LATER

__all__ = ["HOUR", "Brakes", "Limits"]

HOUR = 3600.0
"""Seconds for which what was ended counts."""

_AUDIT = "the whole cluster is in Audit; it is done once that ends, if its rule still fires"


@dataclass(frozen=True, slots=True)
class Limits:
    """What the platform's admins allow."""

    runs_per_hour: int | None = 20
    """Runs that may be ended in any hour; None for as many as policies ask for."""
    gpu_percent_per_hour: float | None = None
    """Share of all GPUs of watched jobs whose runs may be ended in any hour."""
    audit: bool = False
    """Nothing is done at all; everything is only said."""


class Brakes:
    """Counts what was ended.

    Args:
        limits: What is allowed.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._ended: deque[tuple[float, int, str]] = deque()  # when, GPUs, action

    def ended(self, action_id: str, gpus: int, at: float) -> None:
        """Count a run that was ended, or is about to be, once.

        Args:
            action_id: By which action.
            gpus: That it had.
            at: Seconds of a clock that goes evenly.
        """
        if not self._counts(action_id):
            self._ended.append((at, gpus, action_id))

    def forget(self, action_id: str) -> None:
        """Take back an action that has ended nothing after all."""
        self._ended = deque(each for each in self._ended if each[2] != action_id)

    def take(self, action_id: str, gpus: int, all_gpus: int, now: float) -> tuple[str, str] | None:
        """Count a run that is about to be ended; gives why it may not be, and then counts nothing.

        Of many that are about to be ended at once each sees those before it. One that was counted before a crash is
        seen through, whatever the limits say by now. Arguments as in `objection`.
        """
        if self._counts(action_id) and not self._limits.audit:
            return None
        objection = self.objection(gpus, all_gpus, now)
        if objection is None:
            self.ended(action_id, gpus, now)
        return objection

    def _counts(self, action_id: str) -> bool:
        return any(known == action_id for _, _, known in self._ended)

    def audit(self) -> tuple[str, str] | None:
        """Why nothing at all may be done; None when it may."""
        return (AUDITED, _AUDIT) if self._limits.audit else None

    def objection(self, gpus: int, all_gpus: int, now: float) -> tuple[str, str] | None:
        """Why one more run may not be ended now; None when it may.

        Args:
            gpus: That it has.
            all_gpus: Of all jobs that run now; those that were ended count beside them.
            now: Seconds of the same clock as `ended` has.
        """
        limits = self._limits
        if (audit := self.audit()) is not None:
            return audit
        while self._ended and self._ended[0][0] < now - HOUR:
            self._ended.popleft()
        if limits.runs_per_hour is not None and len(self._ended) >= limits.runs_per_hour:
            return LATER, f"{len(self._ended)} runs were ended in the last hour; {limits.runs_per_hour} are allowed"
        if limits.gpu_percent_per_hour is not None and gpus:
            gone = sum(each for _, each, _ in self._ended)
            share = 100.0 * (gone + gpus) / max(all_gpus + gone, gone + gpus)
            if share > limits.gpu_percent_per_hour:
                allowed = f"{limits.gpu_percent_per_hour:g} % are allowed"
                return LATER, f"{share:.0f} % of the GPUs would have been taken in the last hour; {allowed}"
        return None
