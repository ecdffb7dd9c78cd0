"""Values of command-line options that click does not know."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click

__all__ = ["ChangedPreset", "ChangesError", "Finite", "changed_preset", "moment_of"]


class Finite(click.FloatRange):
    """A number in a range; NaN, which no range refuses, and infinity are none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


def moment_of(text: str) -> datetime:
    """The moment that a deadline names: a duration from now, or a time, which is local without a zone.

    Raises:
        ValueError: It is none, or is over; the text says why and what would be right, to be put behind what was given.
    """
    from trainwarden.policies.durations import parse_duration

    now = datetime.now(UTC)
    try:
        moment = now + parse_duration(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError("; write 2h30m from now, or a time such as 2026-12-24T18:00") from None
    except OverflowError:
        raise ValueError(" is beyond the year 9999; give an earlier time") from None
    moment = moment if moment.tzinfo is not None else moment.astimezone()
    if moment <= now:
        raise ValueError(" is over; give a time that is still to come")
    return moment


class ChangesError(ValueError):
    """Changes of a preset that can't be made: one fault a line, with what would be right."""


@dataclass(frozen=True, slots=True)
class ChangedPreset:
    """A preset with parameters of a team's own."""

    text: str  # YAML of one policy
    notes: tuple[str, ...]  # what a change has taken away that may not be meant


def changed_preset(name: str, changes: Sequence[str]) -> ChangedPreset:
    """A preset with what `--set PARAMETER=CEL` puts in place, its YAML known to be right.

    Raises:
        PresetError: There is no such preset.
        ChangesError: A change can't be made.
    """
    from trainwarden.policies.compiling import compile_policy
    from trainwarden.policies.expressions.engines import engine
    from trainwarden.policies.loading import load_policies
    from trainwarden.policies.presets import parameters, preset
    from trainwarden.policies.problems import PolicyInvalidError
    from trainwarden.policies.tuning.branches import branches_of
    from trainwarden.policies.tuning.parameters import ParameterError, check_value

    text, known, cel = preset(name), parameters(name), engine(None)
    if not changes:
        return ChangedPreset(text, ())
    (policy,) = load_policies(text, source=f"preset {name}").policies
    compiled = compile_policy(policy, cel)
    given: dict[str, str] = {}
    faults: list[str] = []
    notes: list[str] = []
    for change in changes:
        parameter, equals, value = (part.strip() for part in change.partition("="))
        if not equals or not value:
            faults.append(f"--set {change!r}; write PARAMETER=CEL, such as tolerance=0.01")
        elif parameter not in known:
            faults.append(f"--set {change}: preset {name} has no parameter {parameter!r}; it has {', '.join(known)}")
        elif parameter in given:
            faults.append(f"--set {change}: {parameter} is set twice; keep one")
        elif "\n" in value:
            faults.append(f"--set {parameter}: a value of several lines; one line of CEL is right")
        else:
            given[parameter] = value
            try:
                given[parameter] = check_value(compiled, cel, parameter, value)
            except ParameterError as error:
                faults.append(f"--set {change}: {error}")
            branches = branches_of(known[parameter])
            if len(branches) > 1 and len(branches_of(value)) == 1:
                now = known[parameter]
                notes.append(
                    f"--set {change}: preset {name} has {now}; {value} takes the place of "
                    f"{' and '.join(each.text for each in branches)}: write such an expression to keep one of them"
                )
    if faults:
        raise ChangesError("\n".join(faults))
    text = preset(name, given)
    try:
        (policy,) = load_policies(text, source=f"preset {name}").policies
        compile_policy(policy, cel)
    except PolicyInvalidError as error:  # each value fits, and not all of them together
        together = ", ".join(f"{key}={value}" for key, value in given.items())
        problem = error.problems[0]
        raise ChangesError(f"--set {together}: {problem.field}: {problem.found}; {problem.remedy}") from error
    return ChangedPreset(_told(name, text, given), tuple(notes))


def _told(name: str, text: str, given: dict[str, str]) -> str:
    """The text without what its head claims of the preset as it is delivered."""
    lines = text.splitlines(keepends=True)
    while lines and lines[0].startswith("#") and not lines[0].startswith("# Parameters:"):
        del lines[0]
    changes = ", ".join(f"{key}={value}" for key, value in given.items())
    head = f"# The preset {name} with {changes}. The figures in docs/presets.md are of the preset as it is.\n"
    return head + "".join(lines)
