"""Choose among candidates, and measure the choosing on runs that it has not seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from trainwarden.policies.tuning.scoring import Effect, Score, score

__all__ = ["Validation", "best_of", "cross_validate", "folds_of", "groups_of"]

_NEARLY_ALL = 0.9  # of all runs: a folder that holds so many parts nothing


@dataclass(frozen=True, slots=True)
class Validation:
    """The choosing, over runs held out from it."""

    folds: int
    chosen: tuple[int | None, ...]  # candidate of each fold; None: none was good enough
    score: Score  # of what each fold chose, on its held-out runs; those of a fold without a choice are left out


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
    """The group of each run: the first folder of its id behind those which nearly all ids have in common.

    A run that lies in no folder of its own there is a group by itself.
    """
    parts = [id_.split("/") for id_ in ids]
    depth = [0] * len(ids)  # folders that are passed over
    inside = list(range(len(ids)))
    while True:
        folders = Counter(parts[run][depth[run]] for run in inside if len(parts[run]) > depth[run] + 1)
        (folder, most) = folders.most_common(1)[0] if folders else ("", 0)
        if most < max(_NEARLY_ALL * len(ids), 2):
            break
        inside = [run for run in inside if parts[run][depth[run]] == folder and len(parts[run]) > depth[run] + 1]
        for run in inside:
            depth[run] += 1
    return ["/".join(each[: at + 1]) for each, at in zip(parts, depth, strict=True)]


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
        if best is not None:
            held_out += [each for each, where in zip(effects[best], at, strict=True) if where == fold]
    return Validation(folds, tuple(chosen), score(held_out, gpus=gpus, confidence=confidence))
