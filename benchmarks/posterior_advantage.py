"""GRPO with the believed pass rate of each problem as the baseline of its rollouts.

    python -m benchmarks.posterior_advantage --config configs/skewed-cpu/grpo.yaml

It lets groups teach that are all right or all wrong, and gained nothing (5 seeds, skewed pool):
held-out accuracy 75.5 % against GRPO's 75.3 %, 0.1 points [95 % interval -1.7, 1.9] at equal
tokens; with the predictive curriculum it lost 0.7 points (docs/results/advantages.md).
"""

from collections.abc import Sequence
from typing import Any

import torch

from pipeline.errors import run_cli
from stages import grpo
from stages.arguments import GRADED
from stages.trainer import trainer
from stages.trainer.curriculum import (
    Curriculum,
    PredictiveCurriculum,
    build_curriculum,
    find_peers,
)
from stages.trainer.rollouts import centred, sum_rewards


class Believing(Curriculum):
    """A curriculum that keeps `pass_rates`, what `inner` expected of the last groups (0..1)."""

    def __init__(self, inner: PredictiveCurriculum) -> None:
        super().__init__(inner.problems, inner.num_generations, inner.seed)
        self._inner = inner

    def choose(self, count: int) -> list[int] | None:
        """See `Curriculum`."""
        return self._inner.choose(count)

    def observe(self, problems: Sequence[int], num_right: Sequence[int], size: int) -> None:
        """Take what was generated; see `Curriculum`."""
        self.pass_rates = self._inner.pass_rates(problems)
        self._inner.observe(problems, num_right, size)

    def state_dict(self) -> dict[str, Any]:
        """See `Curriculum`."""
        return self._inner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Curriculum`."""
        self._inner.load_state_dict(state)


def posterior_advantages(
    rewards: torch.Tensor, correctness: torch.Tensor, pass_rates: torch.Tensor, weight: float
) -> torch.Tensor:
    """Advantages over the pass rate each problem was believed to have before the group was drawn.

        A_i = w * (c_i - p) + (s_i - mean_{j != i} s_j),    s = r - w * c

    Sources: a baseline that tracks each problem, SPO, arXiv:2509.13232; leave-one-out, RLOO,
    arXiv:2402.14740. Unbiased, as neither p nor the others' mean depends on the completion itself.

    Args:
        rewards, correctness: weighted sums r, NaN where not scored, and c, 0 or 1; shapes (N*G,).
        pass_rates: p of each problem, 0..1, shape (N,).
        weight: reward of right minus reward of wrong, w.
    """
    size = len(rewards) // len(pass_rates)  # G
    rest = rewards - weight * correctness
    num_scored = (~rest.isnan()).view(-1, size).sum(dim=1)  # (N,)
    # s_i - mean of the others = (s_i - mean of all) * n / (n - 1); a lone one has no others.
    others = (num_scored / (num_scored - 1).clamp(min=1)).repeat_interleave(size)
    alone = weight * (correctness - pass_rates.to(rewards.dtype).repeat_interleave(size))
    return (alone + centred(rest, size) * others).nan_to_num(nan=0.0)


class PosteriorTrainer(trainer.MathGRPOTrainer):
    """The product's trainer with a `Believing` curriculum and these advantages."""

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        batch = super()._generate_and_score_completions(inputs)
        if not self.model.training:
            return batch
        groups, weights = self._groups, self.reward_weights
        weight = sum(weights[i].item() * GRADED[self.reward_func_names[i]] for i in self._graded)
        rewards = sum_rewards(groups.rewards, weights.to(groups.rewards.device))
        rates = torch.tensor(self.curriculum.pass_rates, device=rewards.device)
        values = posterior_advantages(rewards, groups.correctness, rates, weight)
        self._logs["advantages"].extend(values.tolist())  # pushes TRL's own out
        batch["advantages"] = values.chunk(groups.world_size)[self.accelerator.process_index]
        return batch


def build_believing(rows: list[dict], args: Any, num_generations: int, seed: int) -> Believing:
    """The recipe's curriculum; with `off` the pass rates are followed and nothing is chosen."""
    follower = PredictiveCurriculum(find_peers(rows), num_generations, seed, is_predictive=False)
    return Believing(build_curriculum(rows, args, num_generations, seed) or follower)


if __name__ == "__main__":
    grpo.build_curriculum, trainer.MathGRPOTrainer = build_believing, PosteriorTrainer
    run_cli(grpo.main)
