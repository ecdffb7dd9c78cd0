"""How `trainwarden run` and `resume` end; told in docs/exit-codes.md."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["ExitCode"]


class ExitCode(IntEnum):
    """Exit codes of our own; a training that ends by itself gives its own code."""

    DONE = 0
    TESTS_FAILED = 1  # `policy test`: a policy does not do what a test expects
    WRONG_INPUT = 2  # options, policies or a run that can't be used; nothing was started
    FAILED = 70  # trainwarden itself could not work
    SUSPENDED = 75  # a policy suspended the run; it can be resumed
    STOPPED = 76  # a policy stopped the run
    DELETED = 77  # a policy deleted the run
    NOT_EXECUTABLE = 126
    NOT_FOUND = 127
    INTERRUPTED = 130  # Ctrl-C
    TERMINATED = 143  # SIGTERM
