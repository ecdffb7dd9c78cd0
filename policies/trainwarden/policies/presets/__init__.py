"""Ready policies: written as people write theirs, with variables as parameters. `docs/presets.md` has their figures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files

__all__ = ["PRESETS", "PresetError", "parameters", "preset"]

PRESETS = ("conservative", "balanced", "eager", "llm-pretraining", "fine-tuning", "vision", "rl")
"""Names of the presets: general ones from careful to bold, then those for a kind of training."""

_PARAMETER = re.compile(r"^  - name: (\w+)\n    expression: '((?:[^'\n]|'')*)'$", re.MULTILINE)


class PresetError(ValueError):
    """There is no such preset, or it has no such parameter. Says what there is."""


def preset(name: str, changes: Mapping[str, str] | None = None) -> str:
    """A preset as the YAML of one TrainingPolicy.

    Args:
        name: One of PRESETS.
        changes: CEL in place of a parameter's: `{"tolerance": "0.01", "metric": '"eval/wer"'}`. It is not checked here.

    Raises:
        PresetError: No such preset or parameter.
    """
    text, known, wanted = _text(name), parameters(name), dict(changes or {})
    for parameter, expression in wanted.items():
        if parameter not in known:
            raise PresetError(f"preset {name} has no parameter {parameter!r}; it has {', '.join(known)}")
        if "\n" in expression:
            raise PresetError(f"the value of {parameter} has several lines; one line of CEL is right")

    def put(found: re.Match[str]) -> str:
        expression = wanted.get(found[1])
        if expression is None:
            return found[0]
        quoted = expression.replace("'", "''")
        return f"  - name: {found[1]}\n    expression: '{quoted}'"

    return _PARAMETER.sub(put, text)


def parameters(name: str) -> dict[str, str]:
    """The parameters of a preset and the CEL that gives each, in order.

    Raises:
        PresetError: No such preset.
    """
    return {found[1]: found[2].replace("''", "'") for found in _PARAMETER.finditer(_text(name))}


def _text(name: str) -> str:
    if name not in PRESETS:
        raise PresetError(f"there is no preset {name!r}; there are {', '.join(PRESETS)}")
    return files(__package__).joinpath(f"{name}.yaml").read_text("utf-8")
