"""GRPO with the believed pass rate of each problem as the baseline of its rollouts.

    python -m benchmarks.posterior_advantage --config configs/skewed-cpu/grpo.yaml

It lets groups teach that are all right or all wrong, and gained nothing: on the skewed pool (5
seeds, 150,000 generated tokens each) held-out accuracy was 75.5 % against 75.3 % of GRPO's own
advantage, a difference of 0.1 points [95 % interval -1.7, 1.9] at equal tokens and 0.1 [-2.1, 2.3]
at equal seconds; with the predictive curriculum it lost 0.7 points (docs/results/advantages.md). So
it is no option of the product. It serves as an example of an own curriculum and an own advantage.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import isnan, nan_to_num

from data_prep.config import run_cli
from stages.arguments import GRADED
from stages.trainer import trainer
from stages.trainer.curriculum import PredictiveCurriculum, find_peers
from stages.trainer.rollouts import centred, sum_rewards


class Believing:
    """A curriculum that notes what was expected of each group before it was seen.

    Args:
        inner: chooses and learns; `pass_rates` are its.
    """

    def __init__(self, inner: PredictiveCurriculum) -> None:
        self.choose, self._inner = inner.choose, inner
        self.state_dict, self.load_state_dict = inner.state_dict, inner.load_state_dict
        self.pass_rates: list[float] = []  # of the last groups, each within 0..1

    def observe(
        self, problems: Sequence[int], num_right: Sequence[int], num_generations: int
    ) -> None:
        """Take what was generated; see `Curriculum`."""
        self.pass_rates = self._inner.pass_rates(problems)
        self._inner.observe(problems, num_right, num_generations)


def posterior_advantages(
    rewards: torch.Tensor,
    correctness: torch.Tensor,
    pass_rates: torch.Tensor,
    num_generations: int,
    correctness_weight: float,
) -> torch.Tensor:
    """Advantages over the pass rate each problem was believed to have before the group was drawn.

        A_i = w * (c_i - p) + (s_i - mean_{j != i} s_j),    s = r - w * c

    with c the correctness, w its weight in the reward, p the problem's pass rate and s the rest of
    the reward (format, length). Sources: a baseline that tracks each problem, SPO, arXiv:2509.13232
    (which then scales by the batch); leave-one-out, RLOO, arXiv:2402.14740. Unbiased, as neither p
    nor the mean of the others depends on the completion itself (Williams 1992); that is why p must
    date from before the group.

    Args:
        rewards: weighted sums, NaN where nothing scored the completion, shape (N*G,).
        correctness: 1 for right and 0 for the rest, shape (N*G,).
        pass_rates: p of each problem, 0..1, shape (N,).
        num_generations: G.
        correctness_weight: reward of right minus reward of wrong, w.

    Returns:
        Shape (N*G,).
    """
    expected = pass_rates.to(rewards.dtype).repeat_interleave(num_generations)  # (N*G,)
    rest = rewards - correctness_weight * correctness
    scored = (~isnan(rest)).view(-1, num_generations).sum(dim=1)  # (N,)
    # s_i - mean of the others = (s_i - mean of all) * n / (n - 1); a lone one has no others.
    others = (scored / (scored - 1).clamp(min=1)).repeat_interleave(num_generations)
    alone = correctness_weight * (correctness - expected)
    return nan_to_num(alone + centred(rest, num_generations) * others, nan=0.0)


class PosteriorTrainer(trainer.MathGRPOTrainer):
    """The product's trainer, with a `Believing` curriculum, and these advantages."""

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        batch = super()._generate_and_score_completions(inputs)
        if not self.model.training:
            return batch
        weights = self.reward_weights.tolist()
        names = self.reward_func_names
        values = posterior_advantages(
            sum_rewards(self._groups.rewards, self.reward_weights.to(self._groups.rewards.device)),
            self._groups.correctness,
            torch.tensor(self.curriculum.pass_rates, device=self._groups.rewards.device),
            self.num_generations,
            sum(weights[i] * GRADED[names[i]] for i in self._graded),
        )
        self._logs["advantages"].extend(values.tolist())  # pushes TRL's own out
        accelerator = self.accelerator
        batch["advantages"] = values.chunk(accelerator.num_processes)[accelerator.process_index]
        return batch


def main() -> None:
    """The GRPO stage with this trainer; curriculum off or predictive."""
    from stages import grpo

    build = grpo.build_curriculum

    def build_believing(rows: list[dict], args: Any, num_generations: int, seed: int) -> Believing:
        # With curriculum: off the pass rates are followed and nothing is chosen.
        peers = find_peers(rows)
        follower = PredictiveCurriculum(peers, num_generations, seed, is_predictive=False)
        return Believing(build(rows, args, num_generations, seed) or follower)

    grpo.build_curriculum = build_believing
    trainer.MathGRPOTrainer = PosteriorTrainer
    grpo.main()


if __name__ == "__main__":
    run_cli(main)
