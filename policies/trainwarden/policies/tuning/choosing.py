"""Choose among candidates, and measure the choosing on runs that it has not seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from trainwarden.policies.tuning.scoring import Effect, Score, score

__all__ = ["Validation", "best_of", "cross_validate", "folds_of", "groups_of"]


@dataclass(frozen=True, slots=True)
class Validation:
    """The choosing, over runs held out from it."""

    folds: int
    chosen: tuple[int | None, ...]  # candidate of each fold; None: none was good enough, and no run was stopped
    score: Score  # of what each fold chose, on its held-out runs


def best_of(scores: Sequence[Score], most_wrong: float) -> int | None:
    """The candidate with the greatest share saved among those whose upper bound of wrong stops fits; None: none does.

    Of equal ones it is the one with the lower bound, then the first. One that saves nothing is never chosen.
    """
    fitting = [
        (-(each.saved or 0.0), each.wrong_high, index)
        for index, each in enumerate(scores)
        if each.wrong_high <= most_wrong and each.saved
    ]
    return min(fitting)[2] if fitting else None


def groups_of(ids: Sequence[str]) -> list[str]:
    """The group of each run: its id up to the first `/`; where that parts nothing, each run is its own."""
    first = [id_.partition("/")[0] for id_ in ids]
    if len(set(first)) > 1 and any("/" in id_ for id_ in ids):
        return first
    return list(ids)


def folds_of(groups: Sequence[str], folds: int) -> list[int]:
    """The fold of each run: groups stay whole, and go, largest first, to the fold that has the fewest runs."""
    sizes, filled, at = Counter(groups), [0] * folds, dict[str, int]()
    for group in sorted(sizes, key=lambda each: (-sizes[each], each)):
        fold = filled.index(min(filled))
        filled[fold] += sizes[group]
        at[group] = fold
    return [at[group] for group in groups]


def cross_validate(
    effects: Sequence[Sequence[Effect]], *, folds: int, most_wrong: float, gpus: int, confidence: float
) -> Validation | None:
    """Choose on all folds but one, and measure on that one, for each.

    Args:
        effects: Of each candidate, one for each run, in one order of runs.
        folds: As many as wanted; no more are made than there are groups.
        most_wrong: Most wrong stops, as a share of runs.
        gpus: Of a run.
        confidence: Of the intervals.

    Returns:
        None when there is but one group.
    """
    groups = [each.group for each in effects[0]]
    folds = min(folds, len(set(groups)))
    if folds < 2:
        return None
    at = folds_of(groups, folds)
    held_out: list[Effect] = []
    chosen: list[int | None] = []
    for fold in range(folds):
        kept = [[each for each, where in zip(one, at, strict=True) if where != fold] for one in effects]
        best = best_of([score(each, gpus=gpus, confidence=confidence) for each in kept], most_wrong)
        chosen.append(best)
        for run, where in enumerate(at):
            if where == fold:
                seen = effects[best or 0][run]
                held_out.append(seen if best is not None else Effect(seen.group, idle=seen.idle))
    return Validation(folds, tuple(chosen), score(held_out, gpus=gpus, confidence=confidence))
