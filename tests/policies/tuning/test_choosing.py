"""Intervals, folds and the choice."""

import pytest

from trainwarden.policies.tuning.choosing import best_of, cross_validate, folds_of, groups_of
from trainwarden.policies.tuning.scoring import Effect, runs_needed, score, wilson


def effects(wrong_in: set[int], saved: float, groups: int = 10, each: int = 50) -> list[Effect]:
    """Runs of which one of each named group is stopped wrongly."""
    return [
        Effect(str(group), True, group in wrong_in and run == 0, idle=100, saved=0 if group in wrong_in else saved)
        for group in range(groups)
        for run in range(each)
    ]


def test_wilson_has_its_known_values() -> None:
    assert wilson(0.1, 10, 0.95) == pytest.approx((0.0179, 0.4042), abs=1e-4)
    assert wilson(0.0, 20, 0.95) == pytest.approx((0.0, 0.1611), abs=1e-4)
    assert wilson(1.0, 20, 0.95) == pytest.approx((0.8389, 1.0), abs=1e-4)


def test_runs_that_err_together_count_for_less() -> None:
    apart = [Effect(str(run % 10), True, run < 10) for run in range(100)]
    together = [Effect(str(run // 10), True, run < 10) for run in range(100)]
    assert score(apart, gpus=1, confidence=0.95).wrong_high == pytest.approx(wilson(0.1, 100, 0.95)[1])
    assert score(together, gpus=1, confidence=0.95).wrong_high == pytest.approx(wilson(0.1, 9, 0.95)[1])


def test_the_bootstrap_draws_groups() -> None:
    found = score(effects({0}, 50), gpus=1, confidence=0.95)
    assert found.saved == pytest.approx(0.45)
    assert found.saved_low is not None
    assert found.saved_high is not None
    assert found.saved_low < 0.45 < found.saved_high == pytest.approx(0.5)
    assert score(effects(set(), 50, groups=1), gpus=1, confidence=0.95).saved_low is None


def test_the_greatest_saving_that_fits_is_chosen() -> None:
    scores = [
        score(effects(*each), gpus=1, confidence=0.95) for each in ((set(range(9)), 90), (set(), 50), (set(), 20))
    ]
    assert best_of(scores, 0.01) == 1
    assert best_of(scores, 0.0001) is None
    assert best_of(scores[:1], 0.5) == 0


LOGS = "boards/v05/logs/tuning"


@pytest.mark.parametrize(
    ("ids", "groups"),
    [
        (["a/1", "a/2", "b/1"], ["a", "a", "b"]),
        (["a/1", "a/2"], ["a/1", "a/2"]),
        (["x", "y"], ["x", "y"]),
        (["/runs/a/1.csv", "/runs/a/2.csv", "/runs/b/1.csv"], ["/runs/a", "/runs/a", "/runs/b"]),
        (["r/alone", "r/b/1", "r/b/2"], ["r/alone", "r/b", "r/b"]),
        (
            [f"{LOGS}/{name}/study/{run}" for name in ("adam", "sgd") for run in range(9)] + ["records/1"],
            [f"{LOGS}/{name}" for name in ("adam", "sgd") for _ in range(9)] + ["records"],
        ),
    ],
    ids=["folders", "one folder", "no folder", "paths", "beside folders", "deep, and few elsewhere"],
)
def test_groups_are_the_folders_behind_what_nearly_all_ids_have_in_common(ids: list[str], groups: list[str]) -> None:
    assert groups_of(ids) == groups


def test_groups_stay_whole_in_folds() -> None:
    assert folds_of(["a", "b", "a", "c", "b", "a"], 2) == [0, 1, 0, 1, 1, 0]


def test_a_choice_is_measured_on_runs_that_it_has_not_seen() -> None:
    bold, careful = effects({0, 1, 2, 3, 4}, 90), effects(set(), 20)
    found = cross_validate([bold, careful], folds=5, most_wrong=0.01, gpus=1, confidence=0.95)
    assert found is not None
    assert found.chosen == (1,) * 5
    assert (found.score.runs, found.score.wrong) == (500, 0)
    assert found.score.saved == pytest.approx(0.2)
    assert cross_validate([effects(set(), 1, groups=1)], folds=5, most_wrong=1, gpus=1, confidence=0.95) is None


def test_parts_for_which_nothing_could_be_chosen_count_as_nothing() -> None:
    few = cross_validate([effects(set(), 20, each=1)], folds=5, most_wrong=0.01, gpus=1, confidence=0.95)
    assert few is not None
    assert few.chosen == (None,) * 5
    assert (few.score.runs, few.score.saved) == (0, None)


def test_runs_without_a_wrong_stop_that_a_goal_takes() -> None:
    needed = runs_needed(0.01, 0.95)
    assert needed == 381
    assert wilson(0, needed, 0.95)[1] <= 0.01 < wilson(0, needed - 1, 0.95)[1]
    assert runs_needed(0, 0.95) is None
