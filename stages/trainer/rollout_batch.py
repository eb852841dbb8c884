"""Generation batches as TRL builds them: put together from several rounds, rows masked.

Pure functions on the dictionaries of `GRPOTrainer._generate_and_score_completions`, which hold the
rows of one process, and on `Groups`, which holds what all processes know of all rows. B rows,
N = B / G groups, P prompt tokens (padded on the left), C completion tokens (padded on the right).
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn.functional import pad

PROMPT_KEYS = ("prompt_ids", "prompt_mask")  # (B, P)
COMPLETION_KEYS = (  # (B, C); importance_sampling_ratio also (B, 1)
    "completion_ids", "completion_mask", "tool_mask", "old_per_token_logps", "ref_per_token_logps",
    "sampling_per_token_logps", "importance_sampling_ratio",
)  # fmt: skip
OTHER_KEYS = ("advantages", "num_items_in_batch")  # (B,) and 0-d, computed anew by the caller


def is_uniform(correctness: torch.Tensor, num_generations: int) -> torch.Tensor:
    """Which groups have rollouts that are all right or all wrong.

    Args:
        correctness: 1 for right and 0 for the rest, whole groups in order, shape (N*G,).
        num_generations: G.

    Returns:
        Bool, shape (N,). Unlike TRL's `frac_reward_zero_std` it looks at correctness alone, so a
        length or format term cannot make a group without signal look useful.
    """
    groups = correctness.view(-1, num_generations)  # (N, G)
    return groups.amax(dim=1) == groups.amin(dim=1)


@dataclass(frozen=True)
class Groups:
    """Groups of all processes, in rank order; N groups of G rollouts.

    Args:
        problems: index of each group's problem, shape (N,).
        pass_rates: expected pass rate of each before its group was seen, shape (N,).
        rewards: of each reward function, shape (N*G, number of functions).
        correctness: 1 for right and 0 for the rest, shape (N*G,).
    """

    problems: torch.Tensor
    pass_rates: torch.Tensor
    rewards: torch.Tensor
    correctness: torch.Tensor

    @property
    def size(self) -> int:
        """G, rollouts in a group."""
        return len(self.correctness) // len(self.problems)

    def replaced(self, other: "Groups", old: torch.Tensor, new: torch.Tensor) -> "Groups":
        """These groups with the groups `old` replaced by the groups `new` of `other`."""
        parts = {}
        for name, mine in vars(self).items():
            is_per_group = name in ("problems", "pass_rates")
            rows = [index if is_per_group else rows_of(index, self.size) for index in (old, new)]
            parts[name] = mine.clone()
            parts[name][rows[0]] = getattr(other, name)[rows[1]]
        return replace(self, **parts)


def pair_groups(is_bad: torch.Tensor, is_good: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Which groups to replace by which, on every rank as many as it has of both.

    Args:
        is_bad: groups of the batch, a row for each rank, bool, shape (ranks, N).
        is_good: new groups, shape (ranks, M).

    Returns:
        Numbers of the old and of the new groups, counted over all ranks, shapes (n,).
    """
    num = torch.minimum(is_bad.sum(dim=1), is_good.sum(dim=1)).unsqueeze(1)
    # The first so many of each row.
    old, new = (mask & (mask.cumsum(dim=1) <= num) for mask in (is_bad, is_good))
    return old.flatten().nonzero().flatten(), new.flatten().nonzero().flatten()


def rows_of(groups: torch.Tensor, size: int) -> torch.Tensor:
    """Row numbers of groups of `size` rows: shape (n,) -> (n*size,)."""
    return (groups.unsqueeze(1) * size + torch.arange(size, device=groups.device)).flatten()


def resize(tensor: torch.Tensor, width: int, is_left: bool, value: int) -> torch.Tensor:
    """A copy of a (B, W) tensor, filled up to (B, width) on the left or the right."""
    missing = width - tensor.size(1)
    return pad(tensor, (missing, 0) if is_left else (0, missing), value=value).clone()


def replace_rows(
    batch: dict[str, Any], other: dict[str, Any], old: torch.Tensor, new: torch.Tensor, pad_id: int
) -> dict[str, Any]:
    """`batch` with its rows `old` replaced by the rows `new` of `other`.

    Args:
        batch, other: outputs of TRL with the same keys.
        old, new: row numbers, of equal length.
        pad_id: the token that fills up shorter prompts and completions.

    Returns:
        A new dictionary; `advantages` and `num_items_in_batch` are still those of `batch`.

    Raises:
        ValueError: TRL gave a key that is not known here (images).
    """
    known = (*PROMPT_KEYS, *COMPLETION_KEYS, *OTHER_KEYS)
    if unknown := sorted({*batch, *other} - {*known}):
        raise ValueError(f"refill cannot put {', '.join(unknown)} together; use another curriculum")
    merged = dict(batch)
    for key in (*PROMPT_KEYS, *COMPLETION_KEYS):
        if key in batch:
            width = max(batch[key].size(1), other[key].size(1))
            fill = pad_id if key.endswith("_ids") else 0
            merged[key], rows = (
                resize(part[key], width, key in PROMPT_KEYS, fill) for part in (batch, other)
            )
            merged[key][old] = rows[new]
    return merged


def mask_rows(batch: dict[str, Any], rows: torch.Tensor) -> dict[str, Any]:
    """`batch` with some completions out of the loss; the advantages of the others stay.

    Args:
        batch: output of TRL.
        rows: bool, shape (B,), True for those to leave out.
    """
    keep = (~rows).unsqueeze(1)
    masks = {key: batch[key] for key in ("completion_mask", "tool_mask") if key in batch}
    return batch | {key: mask * keep.to(mask.dtype) for key, mask in masks.items()}


def num_loss_tokens(batch: dict[str, Any]) -> torch.Tensor:
    """Tokens of these rows that count in the loss, 0-d."""
    mask = batch["completion_mask"]
    return (mask * batch["tool_mask"] if "tool_mask" in batch else mask).sum()
