"""Merged batches and advantages by hand: small tensors, groups of four, missing scores."""

import copy
import math

import pytest
import torch

from stages.trainer.rollouts import (
    COMPLETION_KEYS,
    PROMPT_KEYS,
    Groups,
    advantages,
    are_dead,
    gathered,
    is_uniform,
    merge_batches,
    merge_groups,
    merge_metrics,
    pick_groups,
    rows_of,
    sum_rewards,
)

PAD = 99


def index(*values):
    return torch.tensor(values, dtype=torch.long)


def test_is_uniform():
    correctness = torch.tensor([1.0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 1])
    assert is_uniform(correctness, 3).tolist() == [True, True, False, False]
    assert is_uniform(correctness, 2).tolist() == [True, False, True, False, True, False]
    assert is_uniform(torch.ones(4), 4).tolist() == [True]


def test_are_dead():
    """Equal sums, those that nothing has scored aside; a difference of 1e-6 is one."""
    nan = math.nan
    rewards = [[0.3, 0.3, 0.3], [0.3, nan, 0.3], [nan] * 3, [1, 0, 1], [nan, 0, 1e-6]]
    assert are_dead(torch.tensor(rewards).flatten(), 3).tolist() == [True] * 3 + [False] * 2


def test_pick_groups():
    """Four of each rank's: bad ones give way to the first good ones behind, while there are any."""
    is_bad = torch.tensor([[0, 1, 1, 1, 1, 0, 0], [1, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 1]])
    picked = pick_groups(is_bad.bool(), 4)
    assert picked.tolist() == [[0, 5, 6, 3], [4, 1, 2, 3], [0, 1, 2, 3]]
    assert pick_groups(is_bad[:, :4].bool(), 4).tolist() == [[0, 1, 2, 3]] * 3
    assert pick_groups(torch.ones(1, 6).bool(), 4).tolist() == [[0, 1, 2, 3]]


def test_rows_of_groups():
    rows = rows_of(torch.tensor([[2, 1], [0, 2]]), 2)
    assert rows.tolist() == [[4, 5, 2, 3], [0, 1, 4, 5]]


def test_rows_of_several_rounds_are_gathered_by_rank():
    """All ranks' rows of one round before those of the next; each group of one problem."""
    first = Groups(index(7, 8), torch.arange(4.0)[:, None], torch.ones(4), 2)
    second = Groups(index(3, 4, 5, 6), torch.arange(4.0, 12)[:, None], torch.zeros(8), 2)
    rows = torch.tensor([[0, 1, 4, 5], [2, 3, 4, 5]])  # of the 6 of each rank
    places = gathered([first, second], rows)
    assert places.tolist() == [0, 1, 6, 7, 8, 9, 10, 11]
    merged = merge_groups([first, second], places)
    assert merged.problems.tolist() == [7, 4, 5, 6] and merged.world_size == 2
    assert merged.rewards.flatten().tolist() == places.tolist()
    assert merged.correctness.tolist() == [1, 1, 0, 0, 0, 0, 0, 0]


def build_batch(num, prompt, completion, base):
    """A TRL batch of all keys; the numbers say row and place, those of padding aside."""
    batch = {}
    for key in (*PROMPT_KEYS, *COMPLETION_KEYS):
        width = prompt if key in PROMPT_KEYS else completion
        values = base + 10 * torch.arange(num).unsqueeze(1) + torch.arange(width)
        is_float = "logps" in key or "ratio" in key
        batch[key] = torch.ones(num, width).long() if "mask" in key else values
        batch[key] = batch[key].float() if is_float else batch[key]
    batch["importance_sampling_ratio"] = batch["importance_sampling_ratio"][:, :1]
    batch["advantages"] = base + torch.arange(num).float()
    return batch | {"num_items_in_batch": torch.tensor(base)}


def test_rows_of_a_wider_batch():
    """Prompts get their padding on the left, completions on the right."""
    batch, other = build_batch(3, 2, 2, 100), build_batch(2, 3, 4, 500)
    kept = copy.deepcopy([batch, other])
    merged = merge_batches([batch, other], index(3, 1, 4), PAD)
    assert merged["prompt_ids"].tolist() == [[500, 501, 502], [PAD, 110, 111], [510, 511, 512]]
    assert merged["prompt_mask"].tolist() == [[1, 1, 1], [0, 1, 1], [1, 1, 1]]
    assert merged["completion_ids"].tolist() == [
        [500, 501, 502, 503], [110, 111, PAD, PAD], [510, 511, 512, 513],
    ]  # fmt: skip
    assert merged["completion_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 1]]
    for key in ("old_per_token_logps", "ref_per_token_logps", "sampling_per_token_logps"):
        assert merged[key].tolist() == [
            [500, 501, 502, 503], [110, 111, 0, 0], [510, 511, 512, 513],
        ]  # fmt: skip
    assert merged["importance_sampling_ratio"].tolist() == [[500], [110], [510]]
    assert merged["advantages"].tolist() == [100, 101, 102] and merged["num_items_in_batch"] == 100
    assert all(merged[key].dtype == batch[key].dtype for key in batch)
    torch.testing.assert_close([batch, other], kept, rtol=0, atol=0)  # and its own are untouched


@pytest.mark.parametrize("is_in_batch", [True, False])
def test_unknown_keys_are_refused(is_in_batch):
    batch, other = build_batch(2, 2, 2, 100), build_batch(2, 2, 2, 500)
    (batch if is_in_batch else other)["pixel_values"] = torch.zeros(2, 3)
    with pytest.raises(ValueError, match="curriculum: cannot merge pixel_values; use one without"):
        merge_batches([batch, other], index(0, 1), PAD)


# Advantages

NAN = math.nan
# Group one: mean 1/4, squares about it 12/16, unbiased std 1/2. Group two: mean 0, std sqrt(16/3).
REWARDS = [1.0, 0.0, 0.0, 0.0, 2.0, 2.0, -2.0, -2.0]
CENTRED = [0.75, -0.25, -0.25, -0.25, 2.0, 2.0, -2.0, -2.0]
# Mean 2, std sqrt(2); nothing scored; one scored, which has a mean and no deviation.
PARTLY = [3.0, NAN, 1.0, NAN, NAN, NAN, NAN, NAN, 5.0, NAN, NAN, NAN]
GROUP_STDS = [0.5] * 4 + [math.sqrt(16 / 3)] * 4
BATCH_STD = math.sqrt((17 - 1 / 8) / 7)  # mean 1/8, sum of squares 17


@pytest.mark.parametrize(
    ("scale", "stds", "partly"),
    [
        ("none", None, 1.0),
        ("group", GROUP_STDS, 1 / (math.sqrt(2) + 1e-4)),
        ("batch", [BATCH_STD] * 8, 1 / (2 + 1e-4)),  # 3, 1 and 5: std 2
    ],
)
def test_advantages(scale, stds, partly):
    scales = [std + 1e-4 for std in stds] if stds else [1.0] * 8
    expected = [x / unit for x, unit in zip(CENTRED, scales, strict=True)]
    assert advantages(scale, torch.tensor(REWARDS), 4).tolist() == pytest.approx(expected)
    found = advantages(scale, torch.tensor(PARTLY), 4).tolist()
    assert found == pytest.approx([partly, 0, -partly, 0] + [0] * 8)
    uniform = torch.tensor([1.0, 1.0, 0.0, 0.0])
    assert advantages(scale, uniform, 2).tolist() == [0] * 4


def test_sum_rewards():
    per_func = torch.tensor([[1.0, 2.0], [NAN, 2.0], [NAN, NAN], [0.0, NAN]])
    sums = sum_rewards(per_func, torch.tensor([10.0, 0.5]))
    assert sums[[0, 1, 3]].tolist() == [11, 1, 0] and sums[2].isnan()


def test_rounds_are_logged_as_one_batch():
    metrics = {
        "reward": [9.0, 1.0, 4.0], "completions/min_length": [3, 2], "num_tokens": [50],
        "rewards/x/mean": [math.nan, 5.0],
    }  # fmt: skip
    merge_metrics(metrics, {"reward": 1}, [3, 1])
    assert metrics == {
        "reward": [9.0, 1.75], "completions/min_length": [2], "num_tokens": [50],
        "rewards/x/mean": [5.0],
    }  # fmt: skip
