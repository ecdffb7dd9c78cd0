"""Which metric a rule is about, and which one a run as a whole is measured by."""

import pytest

from trainwarden.policies.backtest.judged import judged_metric, main_metric
from trainwarden.policies.decision import Evidence


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


@pytest.mark.parametrize(
    ("values", "judged"),
    [
        (
            {
                "variables.training": "loss",
                "variables.metric": "eval/loss",
                "overfitting(variables.metric, variables.training, variables.window)": True,
            },
            "eval/loss",
        ),
        (
            {"variables.m": "loss", "variables.metric": "eval/loss", "plateau(variables.metric, 0.5, 0.005)": True},
            "eval/loss",
        ),
        ({'overfitting("eval/loss", "loss", duration("2h"))': True}, "eval/loss"),
        ({"variables.training": "loss", 'overfitting("eval/loss", variables.training, 100)': True}, "eval/loss"),
        ({'divergence("loss")': False, 'plateau("eval/loss", 0.5, 0.005)': True}, "eval/loss"),
        ({"metrics.loss > 3.0": True}, "loss"),
        ({"progress.sinceStep": 3.0}, None),
    ],
)
def test_a_rule_is_about_the_metric_that_it_names_first(
    values: dict[str, str | float | bool], judged: str | None
) -> None:
    assert judged_metric(Evidence(values=dict(values)), ["loss", "eval/loss"]) == judged
