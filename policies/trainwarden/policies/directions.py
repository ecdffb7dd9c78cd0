"""Which way a metric gets better, by its name, unless the policy says so."""

from __future__ import annotations

import itertools
import re
from functools import lru_cache

__all__ = ["HIGHER", "LOWER", "higher_is_better"]

_WORDS = re.compile(r"[a-z]+[0-9]*")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

HIGHER = frozenset(
    _WORDS.findall(
        "acc accuracy ap auc aupr auprc auroc bleu chrf cider correct correlation dice em exactmatch f fscore iou "
        "kappa likelihood map mcc meteor miou mrr ndcg pass pearson pearsonr precision psnr r recall return returns "
        "reward rewards roc rouge rougel rougelsum score sensitivity similarity spearman spearmanr specificity ssim "
        "success top winrate"
    )
)
"""Words in a metric's name that say that higher is better; digits at their end don't matter."""

LOWER = frozenset(
    _WORDS.findall(
        "bpb bpc cer divergence entropy err error kl loss mae mape mse neg negative nll perplexity ppl rejected "
        "rmse std wer"
    )
)
"""Words that say that lower is better, whatever else the name holds; every name without a known word does so too."""


@lru_cache(4096)
def higher_is_better(name: str) -> bool:
    """Whether a metric with this name gets better upwards: `eval/accuracy` does, `reward_loss` does not."""
    words = _WORDS.findall(_HUMP.sub("_", name).lower()) + _WORDS.findall(name.lower())  # also mIoU and CIDEr whole
    words += [word.rstrip("0123456789") for word in words]
    words += [first + second for first, second in itertools.pairwise(words)]
    return LOWER.isdisjoint(words) and not HIGHER.isdisjoint(words)
