"""Which metric a run as a whole is measured by."""

import pytest

from trainwarden.policies.backtest.judged import main_metric


@pytest.mark.parametrize(
    ("names", "main"),
    [
        (["loss", "eval/loss", "grad_norm", "learning_rate"], "eval/loss"),
        (["loss", "eval/accuracy", "epoch"], "eval/accuracy"),
        (["train_loss", "val_bleu"], "val_bleu"),
        (["grad_norm", "lr", "epoch"], None),
        (["loss", "kl", "reward", "reward_std", "rewards/format_reward/mean"], "reward"),  # TRL's GRPO
        (["loss/policy_avg", "objective/kl", "objective/rlhf_reward", "objective/entropy"], "objective/rlhf_reward"),
        (["actor/pg_loss", "critic/score/mean", "critic/score/max", "actor/ppo_kl"], "critic/score/mean"),  # verl
        (["actor/kl_loss", "critic/rewards/mean", "critic/rewards/max"], "critic/rewards/mean"),
        (["train/loss", "rollout/ep_rew_mean", "rollout/ep_len_mean"], "rollout/ep_rew_mean"),  # Stable-Baselines3
        (["loss", "rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies"], "loss"),  # TRL's DPO
        (["loss", "mean_reward", "min_reward", "max_reward", "margin", "accuracy"], "loss"),  # a reward model learns
        (["loss", "reward_loss", "reward_std"], "loss"),
    ],
)
def test_a_run_is_measured_by_its_aim(names: list[str], main: str | None) -> None:
    assert main_metric(names) == main
    assert main_metric(names[::-1]) == main
