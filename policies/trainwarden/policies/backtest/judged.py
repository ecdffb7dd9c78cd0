"""Which metric a decision is about, and which one a whole run is about, by their names."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from trainwarden.policies.decision import Evidence

__all__ = ["aim_of", "judged_metric", "main_metric"]

_QUOTED = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'")
_DOTTED = re.compile(r"\bmetrics\.([A-Za-z_][A-Za-z0-9_]*)")
_WORDS = re.compile(r"[a-z]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_HELD_OUT = frozenset({"eval", "evaluation", "val", "valid", "validation", "test", "dev"})
_TRAINED = frozenset({"train", "training"})
_OBJECTIVES = frozenset({"reward", "rewards", "accuracy", "acc", "score", "bleu", "wer", "perplexity", "ppl"})
_REWARDS = frozenset({"reward", "rewards", "return", "rew"})
_PLAYED = frozenset({"critic", "env", "episode", "ep", "objective", "rlhf", "rollout"})
_PREFERENCES = frozenset({"chosen", "margin", "margins", "rejected"})  # of rewards that are a by-product of the loss
_NO_MEAN = frozenset({"max", "min", "raw", "std", "stdev", "sum", "var"})
_CONDUCT = frozenset(
    _WORDS.findall(
        "clip clipped completion completions epoch epochs examples flops fraction grad gradient kl learning length "
        "lengths lr mem memory mfu momentum norm num pace per rate runtime sample samples scale second seconds skipped "
        "step steps temperature throughput time timestamp timing tokens"
    )
)  # words about the training itself, none of which is an aim


def judged_metric(evidence: Evidence, known: Collection[str]) -> str | None:
    """The metric that made a condition what it is: that of a call which is true, else the first it looked at.

    Args:
        evidence: Of a verdict that is Firing, or of an action of its rule.
        known: Metrics of the run; a text in the condition that is none of them is something else.
    """
    texts = [text for text, value in evidence.values.items() if value is True]
    texts += [text for text, value in evidence.values.items() if value is not True]
    true = sum(value is True for value in evidence.values.values())
    for text in texts[:true]:
        found = _named(text, evidence.values, known)
        if found is not None:
            return found
    for window in evidence.windows:
        if window.metric in known:
            return window.metric
    for text in texts[true:]:
        found = _named(text, evidence.values, known)
        if found is not None:
            return found
    return None


def _named(text: str, values: Mapping[str, object], known: Collection[str]) -> str | None:
    """The metric that an expression names first: quoted, as `metrics.name`, or by a variable that holds its name."""
    places = [(found.start(), found[1] if found[1] is not None else found[2]) for found in _QUOTED.finditer(text)]
    places += [(found.start(), found[1]) for found in _DOTTED.finditer(text)]
    for name, value in values.items():
        if isinstance(value, str) and name.startswith("variables."):
            places += [(found.start(), value) for found in re.finditer(rf"\b{re.escape(name)}\b", text)]
    return min(((at, name) for at, name in places if name in known), default=(0, None))[1]


def main_metric(known: Collection[str]) -> str | None:
    """The metric by which a run as a whole is measured: a reward, else a held-out loss, else a loss, else another aim.

    Where a training plays for a reward, its loss says nothing. In preference tuning the loss is the aim, and what is
    called rewards (`rewards/chosen`, `rewards/margins`) comes of it. None when there is none but learning rates, norms,
    counts and the like.
    """
    words = {name: _words_of(name) for name in known}
    plays = not any(_PREFERENCES & each for each in words.values())
    ranked = sorted(
        (rank, len(name), name)
        for name, each in words.items()
        if (rank := -1 if plays and _is_reward(each) else _rank(name, each)) is not None
    )
    return ranked[0][2] if ranked else None


def aim_of(metric: str | None, main: str | None) -> str | None:
    """The metric by which a stop is judged: the one its rule is about, where that is an aim, else the run's main one.

    Where a training plays for a reward, only a reward is an aim.
    """
    if metric is None or main_metric([metric]) is None:
        return main
    if main is not None and _is_reward(_words_of(main)) and not _is_reward(_words_of(metric)):
        return main
    return metric


def _words_of(name: str) -> frozenset[str]:
    return frozenset(_WORDS.findall(_HUMP.sub("_", name).lower()))


def _is_reward(words: frozenset[str]) -> bool:
    if words & _NO_MEAN or words & _CONDUCT or "loss" in words:
        return False
    if words & _REWARDS:
        return bool(words & _PLAYED) or words <= _REWARDS | _HELD_OUT | _TRAINED | {"mean"}
    return bool(words & {"score", "scores"}) and bool(words & _PLAYED)


def _rank(name: str, words: frozenset[str]) -> int | None:
    held_out, loss = bool(words & _HELD_OUT), "loss" in words or name.lower().endswith("loss")
    if words & _CONDUCT and not loss:
        return None
    if loss:
        if held_out:
            return 0
        return 3 if words & _TRAINED else 2 if name.lower() == "loss" else 4
    if words & _OBJECTIVES:
        return 1 if held_out else 5
    return 6 if held_out else 7
