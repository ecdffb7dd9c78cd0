"""What goes wrong between a person and the cluster, in sentences."""

from __future__ import annotations

from trainwarden.controller.exit_codes import ExitCode

__all__ = ["ConsoleError"]


class ConsoleError(Exception):
    """A command can't do what it was asked for; the text says why, and what would help.

    Args:
        text: The sentence.
        code: How the command ends.
        passing: The same may work in a moment: the server was away, or busy.
    """

    def __init__(self, text: str, code: ExitCode = ExitCode.WRONG_INPUT, *, passing: bool = False) -> None:
        super().__init__(text)
        self.code, self.passing = code, passing
