"""Report every transformers Trainer of this process without a line in the user's code: TRAINWARDEN_AUTO=1.

`trainwarden_reporters_auto.pth` in site-packages imports this module at the interpreter's start when the variable is
set. It waits for transformers.trainer to be imported and adds the callback to the Trainer's default ones. Imports
succeed and fail as without it.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import logging
import sys
from collections.abc import Sequence
from types import ModuleType

__all__ = ["attach", "watch"]

log = logging.getLogger(__name__)

TRAINER = "transformers.trainer"


def watch() -> None:
    """Attach to transformers, now or when it is imported. Calling it again changes nothing."""
    module = sys.modules.get(TRAINER)
    if module is not None:
        attach(module)
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def attach(trainer: ModuleType) -> None:
    """Add the callback to the default callbacks of transformers.trainer. Never raises; warns when it can't."""
    try:
        from trainwarden.reporters.transformers import AutomaticCallback

        callbacks = trainer.DEFAULT_CALLBACKS
        if AutomaticCallback not in callbacks:
            callbacks.append(AutomaticCallback)
    except Exception as error:  # an import of the user's must not fail for our sake
        log.warning(
            "TRAINWARDEN_AUTO=1 has no effect with this version of transformers; add the line "
            "callbacks=[trainwarden.reporters.transformers.TrainwardenCallback()] to your Trainer error=%s: %s",
            type(error).__name__,
            error,
        )


class _Finder(importlib.abc.MetaPathFinder):
    """Finds nothing itself: it has the others find transformers.trainer, once, and attaches after its execution."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Give the spec that the other finders give, with a loader that attaches; None for all other modules."""
        if fullname != TRAINER:
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec: importlib.machinery.ModuleSpec | None = find(fullname, path, target) if find is not None else None
            if spec is not None:
                _attach_after(spec)
                return spec
        return None


def _attach_after(spec: importlib.machinery.ModuleSpec) -> None:
    loader = spec.loader
    if loader is None or not hasattr(loader, "exec_module"):
        return
    execute = loader.exec_module

    def execute_and_attach(module: ModuleType) -> None:
        execute(module)
        attach(module)

    try:
        loader.exec_module = execute_and_attach  # type: ignore[method-assign]  # of this one module's loader
    except AttributeError:
        log.warning("TRAINWARDEN_AUTO=1 has no effect: the loader of transformers is of an unknown kind")


watch()
