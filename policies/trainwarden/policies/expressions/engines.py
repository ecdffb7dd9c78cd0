"""Which engine evaluates: the C++ one where there is a wheel for it, else the pure Python one."""

from __future__ import annotations

from typing import Literal

from trainwarden.policies.expressions.protocol import CelEngine, Limits

__all__ = ["engine"]


def engine(name: Literal["cpp", "python"] | None = None, limits: Limits | None = None) -> CelEngine:
    """Make an engine; without a name the C++ one where it can be imported.

    Raises:
        ImportError: The engine of that name is not installed.
    """
    if name != "python":
        try:
            from trainwarden.policies.expressions.cpp import CppEngine
        except ImportError:
            if name == "cpp":
                raise
        else:
            return CppEngine(limits)
    from trainwarden.policies.expressions.python import PythonEngine

    return PythonEngine(limits)
