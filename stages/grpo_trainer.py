"""The GRPO trainer: TRL's, with the project's metric names and a per-group signal metric.

Thin by rule: every override calls `super()` and only looks at, or adds to, what it returns.
"""

from typing import Any

import torch
from trl import GRPOTrainer

from stages.rewards import GRADED

# Our name -> TRL's. Both are logged; ours are what the report and the dashboards read.
METRIC_NAMES = {
    "rollout/rewards": "reward",
    "rollout/response_length": "completions/mean_length",
    "rollout/cut_off_rate": "completions/clipped_ratio",
    "train/entropy_loss": "entropy",
}


def uniform_group_fraction(correctness: torch.Tensor, num_generations: int) -> float:
    """Share of groups whose rollouts are all right or all wrong.

    Args:
        correctness: 1 for right and 0 for the rest, whole groups in order, shape (B*G,).
        num_generations: G.

    Returns:
        A number in [0, 1]. Unlike TRL's `frac_reward_zero_std` it looks at correctness alone, so a
        length or format term cannot make a group without signal look useful.
    """
    groups = correctness.view(-1, num_generations)  # (B, G)
    return (groups.amax(dim=1) == groups.amin(dim=1)).float().mean().item()


class MathGRPOTrainer(GRPOTrainer):
    """TRL's `GRPOTrainer` with `rollout/*` and `train/entropy_loss` metrics."""

    def _calculate_rewards(
        self,
        inputs: list[dict[str, Any]],
        prompts: list,
        completions: list,
        completion_ids_list: list[list[int]],
    ) -> torch.Tensor:
        # Gathered over processes, shape (B*G, number of reward functions).
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        graded = [index for index, name in enumerate(self.reward_func_names) if name in GRADED]
        if graded:
            correctness = (rewards[:, graded[0]] > 0).float()  # (B*G,)
            mode = "train" if self.model.training else "eval"
            size = self.num_generations if mode == "train" else self.num_generations_eval
            metrics = self._metrics[mode]
            metrics["rollout/correctness"].append(correctness.mean().item())
            metrics["rollout/uniform_groups"].append(uniform_group_fraction(correctness, size))
        return rewards

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        metrics = self._metrics["train" if self.model.training else "eval"]
        for ours, theirs in METRIC_NAMES.items():
            if theirs in metrics:
                metrics[ours] = list(metrics[theirs])
        super().log(logs, start_time)
