"""The recorder that reporters report to when none is handed to them: that of the innermost `with Recorder()`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from trainwarden.reporters.link import Opening
    from trainwarden.reporters.worker import Worker

__all__ = ["Recording", "ambient", "enter", "leave"]


class Recording(Protocol):
    """What stands in place of NATS; `trainwarden.reporters.Recorder` is one."""

    def opening(self) -> Opening: ...
    def attach(self, worker: Worker) -> None: ...


_entered: list[Recording] = []


def ambient() -> Recording | None:
    """The recorder in force, or None."""
    return _entered[-1] if _entered else None


def enter(recorder: Recording) -> None:
    """Put a recorder in force."""
    _entered.append(recorder)


def leave(recorder: Recording) -> None:
    """Put it out of force, wherever it stands."""
    if recorder in _entered:
        _entered.remove(recorder)
