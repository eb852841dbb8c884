"""Generation batches of TRL: groups, batches merged from several rounds, masks, advantages.

Pure functions on the dictionaries of `GRPOTrainer._generate_and_score_completions`, which hold the
rows of one process, and on `Groups`, which holds what all processes know of all rows. B rows,
N = B / G groups, P prompt tokens (padded on the left), C completion tokens (padded on the right).
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import inf, isnan, nan_to_num, nanmean
from torch.nn.functional import pad
from trl.trainer.utils import nanstd

PROMPT_KEYS = ("prompt_ids", "prompt_mask")  # (B, P)
COMPLETION_KEYS = (  # (B, C); importance_sampling_ratio also (B, 1)
    "completion_ids", "completion_mask", "old_per_token_logps", "ref_per_token_logps",
    "sampling_per_token_logps", "importance_sampling_ratio", "tool_mask",
)  # fmt: skip
OTHER_KEYS = ("advantages", "num_items_in_batch")  # (B,) and 0-d, recomputed by the caller
EXTREMES = {"min_": min, "max_": max}  # of completions/min_length and the like
EPSILON = 1e-4  # TRL's; what it adds to every deviation it divides by


def is_uniform(correctness: torch.Tensor, num_generations: int) -> torch.Tensor:
    """Which groups have rollouts that are all right or all wrong: (N*G,) of 0 and 1 -> (N,), bool.

    Unlike TRL's `frac_reward_zero_std` it looks at correctness alone, so a length or format term
    cannot make a group without signal look useful.
    """
    groups = correctness.view(-1, num_generations)  # (N, G)
    return groups.amax(dim=1) == groups.amin(dim=1)


def are_dead(rewards: torch.Tensor, num_generations: int) -> torch.Tensor:
    """Which groups have summed rewards that are all equal, NaN aside: (N*G,) -> (N,), bool."""
    groups = rewards.view(-1, num_generations)  # (N, G)
    return nan_to_num(groups, nan=-inf).amax(dim=1) <= nan_to_num(groups, nan=inf).amin(dim=1)


@dataclass(frozen=True)
class Groups:
    """Groups of all processes, in rank order and as many of each; N groups of G rollouts."""

    problems: torch.Tensor  # index of each group's problem in `train_dataset`, (N,)
    rewards: torch.Tensor  # of each reward function, (N*G, number of functions)
    correctness: torch.Tensor  # 1 for right and 0 for the rest, (N*G,)
    world_size: int = 1

    @property
    def size(self) -> int:
        """G, rollouts in a group."""
        return len(self.correctness) // len(self.problems)

    def is_uniform(self) -> torch.Tensor:
        """Groups that are all right or all wrong, bool, a row for each rank, (ranks, N / ranks)."""
        return is_uniform(self.correctness, self.size).view(self.world_size, -1)


def pair_groups(is_bad: torch.Tensor, is_good: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Which groups of the batch, (ranks, N), to replace by which new ones, (ranks, M), both bool.

    On every rank as many as it has of both; numbers counted over all ranks, shapes (n,).
    """
    num = torch.minimum(is_bad.sum(dim=1), is_good.sum(dim=1)).unsqueeze(1)
    # The first so many of each row.
    old, new = (mask & (mask.cumsum(dim=1) <= num) for mask in (is_bad, is_good))
    return old.flatten().nonzero().flatten(), new.flatten().nonzero().flatten()


def rows_of(groups: torch.Tensor, size: int) -> torch.Tensor:
    """Row numbers of groups of `size` rows: shape (n,) -> (n*size,)."""
    return (groups.unsqueeze(1) * size + torch.arange(size, device=groups.device)).flatten()


def replace_rows(
    batch: dict[str, Any], other: dict[str, Any], old: torch.Tensor, new: torch.Tensor, pad_id: int
) -> dict[str, Any]:
    """`batch` with its rows `old` replaced by the rows `new` of `other`, both outputs of TRL.

    `advantages` and `num_items_in_batch` are still those of `batch`.
    """
    known = (*PROMPT_KEYS, *COMPLETION_KEYS, *OTHER_KEYS)
    if unknown := sorted({*batch, *other} - {*known}):
        raise ValueError(f"refill cannot merge {', '.join(unknown)}; use another curriculum")
    merged = dict(batch)
    for key in (*PROMPT_KEYS, *COMPLETION_KEYS):
        if key in batch:
            width = max(batch[key].size(1), other[key].size(1))
            fill = pad_id if key.endswith("_ids") else 0
            wide = []
            for values in (batch[key], other[key]):
                missing = width - values.size(1)
                sides = (missing, 0) if key in PROMPT_KEYS else (0, missing)
                wide.append(pad(values, sides, value=fill))
            merged[key] = wide[0].index_copy(0, old, wide[1][new])
    return merged


def merge_metrics(
    metrics: dict[str, list[float]], num_logged: dict[str, int], sizes: list[int]
) -> None:
    """Make the values that each of several rounds has logged one value a batch, in place.

    `num_logged` is the number before the batch; the groups of each round, `sizes`, are the weights.
    """
    for name, values in metrics.items():
        first = num_logged.get(name, 0)
        rounds = torch.tensor(values[first:], dtype=torch.float64)
        if len(rounds) == len(sizes) > 1 and (pick := EXTREMES.get(name[12:16])):
            values[first:] = [pick(values[first:])]
        elif len(rounds) == len(sizes) > 1:  # num_tokens counts on and has one
            weights = torch.tensor(sizes) * ~rounds.isnan()
            values[first:] = [((rounds.nan_to_num() * weights).sum() / weights.sum()).item()]


def sum_rewards(rewards_per_func: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Weighted sums over the reward functions; NaN where none of them scored the completion.

    r_i = sum_f w_f r_if        a function that did not score it (NaN) adds nothing
    """
    sums = (rewards_per_func * weights).nansum(dim=1)  # of (N*G, functions)
    return sums.masked_fill(isnan(rewards_per_func).all(dim=1), float("nan"))


def centred(rewards: torch.Tensor, num_generations: int) -> torch.Tensor:
    """Reward minus the mean of its group, shape (N*G,); NaN where the reward is."""
    means = nanmean(rewards.view(-1, num_generations), dim=1)  # (N,)
    return rewards - means.repeat_interleave(num_generations)


def advantages(scale: str, rewards: torch.Tensor, num_generations: int) -> torch.Tensor:
    """Advantages as TRL computes them with `scale_rewards`, to the last bit.

        A_i = (r_i - mean_g r) / (std + 1e-4)

        group   std_g r, the group's own            GRPO, arXiv:2402.03300, section 4.1.2
        none    nothing is divided                  Dr. GRPO, arXiv:2503.20783
        batch   std r, that of all N*G rewards      arXiv:2508.08221

    Rewards are weighted sums of complete groups of all processes, shape (N*G,); one that is NaN, as
    nothing scored the completion, counts in no mean and no deviation, and its advantage is 0.
    """
    values = centred(rewards, num_generations)
    if scale == "group":
        stds = nanstd(rewards.view(-1, num_generations), dim=1)  # (N,)
        values = values / (stds.repeat_interleave(num_generations) + EPSILON)
    elif scale == "batch":
        values = values / (nanstd(rewards) + EPSILON)
    return nan_to_num(values, nan=0.0)
