"""Policies in files: load, check, compile, and say what is wrong and where."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trainwarden.policies.compiling import compile_loaded
from trainwarden.policies.expressions.engines import engine as cel_engine
from trainwarden.policies.loading import MOST_BYTES, Loaded, Place, load_policies
from trainwarden.policies.models import Policy
from trainwarden.policies.problems import Problem

__all__ = ["CheckedFiles", "check_files"]


@dataclass(frozen=True, slots=True)
class CheckedFiles:
    """What files held."""

    policies: tuple[Policy, ...]
    problems: tuple[Problem, ...]


def check_files(files: Sequence[Path], *, engine: Literal["cpp", "python"] | None = None) -> CheckedFiles:
    """Check all policies of some files; `-` is standard input. What can't be read is a problem, too."""
    policies: list[Policy] = []
    problems: list[Problem] = []
    seen: dict[tuple[str, str, str], str] = {}
    cel = cel_engine(engine)
    for file in files:
        name = "standard input" if str(file) == "-" else str(file)
        try:
            data = sys.stdin.buffer.read(MOST_BYTES + 1) if str(file) == "-" else file.read_bytes()
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            problems.append(Problem(name, 1, 1, "", f"byte {error.start} is not UTF-8", "save the file as UTF-8"))
            continue
        except OSError as error:
            problems.append(Problem(name, 0, 0, "", error.strerror or str(error), "name a file with policies"))
            continue
        loaded = load_policies(text, source=name)
        problems += _doubled(loaded, seen, name)
        compiled, wrong = compile_loaded(loaded, cel, source=name)
        policies += [each.policy for each in compiled]
        problems += wrong
    return CheckedFiles(tuple(policies), tuple(problems))


def _doubled(loaded: Loaded, seen: dict[tuple[str, str, str], str], source: str) -> list[Problem]:
    """A problem for each policy whose kind and name another one has; `seen` is where each was first."""
    problems = []
    for policy, places in zip(loaded.policies, loaded.places, strict=True):
        meta, field = policy.metadata, "metadata.name"
        place = places.get(field, Place(0, 0))
        key = (policy.kind, meta.namespace, meta.name)
        before = seen.get(key)
        seen.setdefault(key, f"{source}:{place.line}")
        if before is not None:
            found = f"two policies of the name {meta.name!r}, the other in {before}"
            problems.append(Problem(source, place.line, place.column, field, found, "give each its own"))
    return problems
