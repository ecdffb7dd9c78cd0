"""What goes wrong between a person and the cluster, in sentences."""

from __future__ import annotations

from trainwarden.controller.exit_codes import ExitCode

__all__ = ["ConsoleError"]


class ConsoleError(Exception):
    """A command can't do what it was asked for; the text says why, and what would help."""

    def __init__(self, text: str, code: ExitCode = ExitCode.WRONG_INPUT) -> None:
        super().__init__(text)
        self.code = code
