"""Advantages by hand: groups of four, completions without a score, the posterior as a baseline."""

import math

import pytest
import torch

from stages.settings.curriculum_arguments import ADVANTAGES
from stages.trainer.advantages import (
    advantages,
    batch_advantages,
    centred_advantages,
    group_advantages,
    posterior_advantages,
    sum_rewards,
)

NAN = math.nan
# Group one: mean 1/4, squares about it 12/16, unbiased std 1/2. Group two: mean 0, std sqrt(16/3).
REWARDS = [1.0, 0.0, 0.0, 0.0, 2.0, 2.0, -2.0, -2.0]
CENTRED = [0.75, -0.25, -0.25, -0.25, 2.0, 2.0, -2.0, -2.0]


def values(tensor):
    return pytest.approx(tensor.tolist(), abs=1e-6)


def test_group():
    first, second = 0.5 + 1e-4, math.sqrt(16 / 3) + 1e-4
    expected = [x / first for x in CENTRED[:4]] + [x / second for x in CENTRED[4:]]
    assert values(group_advantages(torch.tensor(REWARDS), 4)) == expected


def test_none():
    assert values(centred_advantages(torch.tensor(REWARDS), 4)) == CENTRED


def test_batch():
    # Mean 1/8, sum of squares 17, so the unbiased variance is (17 - 8/64) / 7.
    std = math.sqrt((17 - 1 / 8) / 7) + 1e-4
    assert values(batch_advantages(torch.tensor(REWARDS), 4)) == [x / std for x in CENTRED]


@pytest.mark.parametrize("kind", ADVANTAGES[:3])
def test_a_group_without_variance_teaches_nothing(kind):
    assert advantages(kind, torch.tensor([1.0, 1.0, 0.0, 0.0]), 2).tolist() == [0] * 4


def test_unscored_completions_are_in_no_mean_and_no_deviation():
    rewards = torch.tensor([3.0, NAN, 1.0, NAN, NAN, NAN, NAN, NAN, 5.0, NAN, NAN, NAN])
    # Mean 2, std sqrt(2); nothing scored; one scored, which has a mean and no deviation.
    unit = 1 / (math.sqrt(2) + 1e-4)
    assert values(group_advantages(rewards, 4)) == [unit, 0, -unit, 0] + [0] * 8
    assert values(centred_advantages(rewards, 4)) == [1, 0, -1, 0] + [0] * 8
    # 3, 1 and 5: std 2.
    unit = 1 / (2 + 1e-4)
    assert values(batch_advantages(rewards, 4)) == [unit, 0, -unit, 0] + [0] * 8


def test_sum_rewards():
    per_func = torch.tensor([[1.0, 2.0], [NAN, 2.0], [NAN, NAN], [0.0, NAN]])
    sums = sum_rewards(per_func, torch.tensor([10.0, 0.5]))
    assert sums[[0, 1, 3]].tolist() == [11, 1, 0] and sums[2].isnan()


def posterior(rewards, correctness, pass_rates, num_generations=4, weight=1.0):
    rewards, correctness, rates = (
        torch.tensor(x, dtype=torch.float32) for x in (rewards, correctness, pass_rates)
    )
    return posterior_advantages(rewards, correctness, rates, num_generations, weight)


def test_posterior_teaches_from_groups_without_variance():
    right, wrong = [1.0] * 4, [0.0] * 4
    correctness = right + wrong + right + wrong
    found = posterior(correctness, correctness, [0.25, 0.75, 1.0, 0.0])
    assert values(found) == [0.75] * 4 + [-0.75] * 4 + [0.0] * 8


def test_posterior_of_a_mixed_group():
    assert values(posterior([1, 0, 0, 0], [1, 0, 0, 0], [0.4])) == [0.6, -0.4, -0.4, -0.4]


def test_posterior_compares_the_rest_of_the_reward_with_the_other_rollouts():
    # Rest 0.5, 0.5, 0, -0.1: less the mean of the other three 0.4/3, 0.4/3, 0.9/3, 1/3.
    rest = [0.5 - 0.4 / 3, 0.5 - 0.4 / 3, -0.3, -0.1 - 1 / 3]
    expected = [rest[0] + 0.8, rest[1] - 0.2, rest[2] - 0.2, rest[3] + 0.8]
    assert values(posterior([1.5, 0.5, 0.0, 0.9], [1, 0, 0, 1], [0.2])) == expected


def test_posterior_with_weights_and_an_offset():
    """Right 5 and wrong -5, weight 2: w is 20 and the constant -10 cancels out."""
    assert values(posterior([10, -10], [1, 0], [0.25], 2, weight=20.0)) == [15, -5]


def test_posterior_leaves_unscored_completions_out():
    # Rest 1 and 3 of the two that were scored: less the other -2 and 2. Then one alone, then none.
    rewards = [2, NAN, 3, NAN, 1.5, NAN, NAN, NAN, NAN, NAN, NAN, NAN]
    correctness = [1, 1, 0, NAN, 1, 0, 0, 0, 1, 1, 1, 1]
    found = posterior(rewards, correctness, [0.5, 0.5, 0.5])
    assert values(found) == [-1.5, 0, 1.5, 0, 0.5, 0, 0, 0, 0, 0, 0, 0]


def test_posterior_refuses_what_is_no_share():
    for rate in (1.5, -0.1, NAN):
        with pytest.raises(AssertionError, match="share"):
            posterior([1, 0], [1, 0], [rate], 2)


def test_expected_gradient_does_not_depend_on_the_pass_rate():
    """Over all groups of three a Bernoulli policy can write: E sum_i A_i dlog pi(c_i) = G dE[r]."""
    p, rest_if_right, size = 0.3, 0.2, 3
    groups = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * size)  # (8, G)
    chance = torch.where(groups == 1, p, 1 - p).prod(dim=1)  # (8,)
    score = torch.where(groups == 1, 1 / p, -1 / (1 - p))  # (8, G)
    correctness = groups.flatten()
    rewards = 2 * correctness + rest_if_right * correctness
    for believed in (0.0, 0.3, 0.9):
        rates = torch.full((len(groups),), believed)
        found = posterior_advantages(rewards, correctness, rates, size, 2.0).view_as(groups)
        gradient = ((found * score).sum(dim=1) * chance).sum().item()
        assert gradient == pytest.approx(size * (2 + rest_if_right), rel=1e-5)


def test_the_dispatcher_calls_the_function_of_that_name():
    rewards, correctness = torch.tensor(REWARDS), torch.tensor([1.0, 0, 0, 0, 1, 1, 0, 0])
    rates = torch.tensor([0.5, 0.25])
    more = {"correctness": correctness, "pass_rates": rates, "correctness_weight": 2.0}
    expected = {
        "group": group_advantages(rewards, 4),
        "none": centred_advantages(rewards, 4),
        "batch": batch_advantages(rewards, 4),
        "posterior": posterior_advantages(rewards, correctness, rates, 4, 2.0),
    }
    assert tuple(expected) == ADVANTAGES
    for kind, found in expected.items():
        assert torch.equal(advantages(kind, rewards, 4, **more), found)
    assert len({tuple(found.tolist()) for found in expected.values()}) == 4
