"""Generation batches of TRL: groups, batches merged from several rounds, masks, advantages.

Pure functions on the dictionaries of `GRPOTrainer._generate_and_score_completions`, which hold the
rows of one process, and on `Groups`, which holds the rewards of all processes. B rows, N = B / G
groups, P prompt tokens (padded on the left), C completion tokens (padded on the right).
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import torch
from torch import inf, isnan, nan_to_num, nanmean
from torch.nn.functional import pad
from trl.trainer.utils import nanstd

PROMPT_KEYS = ("prompt_ids", "prompt_mask")  # (B, P)
COMPLETION_KEYS = (  # (B, C); importance_sampling_ratio also (B, 1)
    "completion_ids",
    "completion_mask",
    "old_per_token_logps",
    "ref_per_token_logps",
    "sampling_per_token_logps",
    "importance_sampling_ratio",
    "tool_mask",
)
OTHER_KEYS = ("advantages", "num_items_in_batch")  # (B,) and 0-d, recomputed by the caller
EXTREMES = {"min_": min, "max_": max}  # of completions/min_length and the like
EPSILON = 1e-4  # TRL's; what it adds to every deviation it divides by


def is_uniform(correctness: torch.Tensor, num_generations: int) -> torch.Tensor:
    """Which groups are all-correct or all-wrong: (N*G,) of 0 and 1 -> (N,), bool.

    Unlike TRL's `frac_reward_zero_std` it looks at correctness alone. A group with equal answers
    does not count as useful because of a length or format reward.
    """
    groups = correctness.view(-1, num_generations)  # (N, G)
    return groups.amax(dim=1) == groups.amin(dim=1)


def are_dead(rewards: torch.Tensor, num_generations: int) -> torch.Tensor:
    """Which groups have zero variance, their summed rewards equal but NaN: (N*G,) -> (N,), bool."""
    groups = rewards.view(-1, num_generations)  # (N, G)
    return nan_to_num(groups, nan=-inf).amax(dim=1) <= nan_to_num(groups, nan=inf).amin(dim=1)


@dataclass(frozen=True)
class Groups:
    """Groups of all processes, in rank order and as many of each; N groups of G rollouts."""

    problems: torch.Tensor  # index of each group's problem in `train_dataset`, (N,)
    rewards: torch.Tensor  # of each reward function, (N*G, number of functions)
    correctness: torch.Tensor  # 1 for correct, else 0, (N*G,)
    world_size: int = 1

    @property
    def size(self) -> int:
        """G, rollouts in a group."""
        return len(self.correctness) // len(self.problems)

    def is_uniform(self) -> torch.Tensor:
        """All-correct and all-wrong groups, bool, a row for each rank, (ranks, N / ranks)."""
        return is_uniform(self.correctness, self.size).view(self.world_size, -1)


def pick_groups(is_bad: torch.Tensor, num: int) -> torch.Tensor:
    """Which of each rank's groups, bool of shape (ranks, M), to train on: shape (ranks, `num`).

    The first `num`, bad ones replaced by the first good ones behind them as far as there are any.
    """
    is_old, is_new = is_bad[:, :num], ~is_bad[:, num:]
    count = torch.minimum(is_old.sum(dim=1), is_new.sum(dim=1)).unsqueeze(1)
    # The first so many of each row.
    old, new = (mask & (mask.cumsum(dim=1) <= count) for mask in (is_old, is_new))
    picked = torch.arange(num, device=is_bad.device).repeat(len(is_bad), 1)
    picked[old] = num + new.nonzero()[:, 1]
    return picked


def rows_of(groups: torch.Tensor, size: int) -> torch.Tensor:
    """Row numbers of groups of `size` rows: shape (..., n) -> (..., n*size)."""
    return (groups.unsqueeze(-1) * size + torch.arange(size, device=groups.device)).flatten(-2)


def gathered(rounds: list[Groups], rows: torch.Tensor) -> torch.Tensor:
    """Each rank's rows, (ranks, n), among the rows of all ranks, round by round: (ranks*n,)."""
    places, first = [], 0
    for one in rounds:
        numbers = torch.arange(len(one.rewards), device=rows.device)
        places.append(first + numbers.view(one.world_size, -1))
        first += len(one.rewards)
    return torch.cat(places, dim=1).gather(1, rows).flatten()


def merge_groups(rounds: list[Groups], places: torch.Tensor) -> Groups:
    """The groups whose rows stand at `places`, among those of several rounds."""
    size = rounds[0].size
    problems = torch.cat([one.problems.repeat_interleave(one.size) for one in rounds])
    rewards, correctness = (
        torch.cat([getattr(one, name) for one in rounds])[places]
        for name in ("rewards", "correctness")
    )
    return Groups(problems[places[::size]], rewards, correctness, rounds[0].world_size)


def merge_batches(batches: list[dict[str, Any]], rows: torch.Tensor, pad_id: int) -> dict[str, Any]:
    """The rows of several outputs of TRL, numbered through, as one.

    `advantages` and `num_items_in_batch` are still those of the first.
    """
    known = (*PROMPT_KEYS, *COMPLETION_KEYS, *OTHER_KEYS)
    if unknown := sorted({key for batch in batches for key in batch} - {*known}):
        raise ValueError(f"curriculum: cannot merge {', '.join(unknown)}; use one without rounds")
    merged = dict(batches[0])
    for key in (*PROMPT_KEYS, *COMPLETION_KEYS):
        if key in merged:
            width = max(batch[key].size(1) for batch in batches)
            fill = pad_id if key.endswith("_ids") else 0
            wide = []
            for batch in batches:
                missing = width - batch[key].size(1)
                sides = (missing, 0) if key in PROMPT_KEYS else (0, missing)
                wide.append(pad(batch[key], sides, value=fill))
            merged[key] = torch.cat(wide)[rows]
    return merged


def empty_table(logs: dict[str, Any]) -> dict[str, Any]:
    """A table of completions as TRL's, for any number of rows."""
    return {name: defaultdict(list) if isinstance(logs[name], dict) else [] for name in logs}


def add_rows(logs: dict[str, Any], table: dict[str, Any], places: list[int]) -> None:
    """Add rows of `table` to TRL's table of completions, in place; its advantages are left out."""
    for name, values in table.items():
        if isinstance(values, dict):
            add_rows(logs[name], values, places)
        elif values and name != "advantages":
            logs[name].extend(values[place] for place in places)


def merge_metrics(metrics: dict[str, list], num_logged: dict[str, int], sizes: list[int]) -> None:
    """Make the values that each of several rounds has logged one value a batch, in place.

    `num_logged` is the number before the batch; the rollouts of each round, `sizes`, the weights.
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
    sums = (rewards_per_func * weights.to(rewards_per_func.device, non_blocking=True)).nansum(
        dim=1
    )  # (N*G,)
    return sums.masked_fill(isnan(rewards_per_func).all(dim=1), float("nan"))


def centred(rewards: torch.Tensor, num_generations: int) -> torch.Tensor:
    """Reward minus the mean of its group, shape (N*G,); NaN where the reward is."""
    means = nanmean(rewards.view(-1, num_generations), dim=1)  # (N,)
    return rewards - means.repeat_interleave(num_generations)


def advantages(scale: str, rewards: torch.Tensor, num_generations: int) -> torch.Tensor:
    """Advantages as TRL computes them with `scale_rewards`, to the last bit.

        A_i = (r_i - mean_g r) / s

        group   s = std_g r + 1e-4, the group's own       GRPO, arXiv:2402.03300, section 4.1.2
        none    s = 1                                     Dr. GRPO, arXiv:2503.20783
        batch   s = std r + 1e-4, of all N*G rewards      arXiv:2508.08221

    Rewards are weighted sums of complete groups of all processes, shape (N*G,). A reward is NaN if
    no function scored the completion. It counts in no mean and no deviation; its advantage is 0.
    """
    values = centred(rewards, num_generations)
    if scale == "group":
        stds = nanstd(rewards.view(-1, num_generations), dim=1)  # (N,)
        values = values / (stds.repeat_interleave(num_generations) + EPSILON)
    elif scale == "batch":
        values = values / (nanstd(rewards) + EPSILON)
    return nan_to_num(values, nan=0.0)
