"""Keys of `grpo.yaml` that only together make a reward: refused before torch is imported."""

import pytest

from data_prep.config import UserError
from stages.settings.arguments import check_grpo_numbers


@pytest.mark.parametrize(
    ("values", "sound"),
    [
        ({"reward_funcs": ["a", "b"], "reward_weights": [1.0, 2.0]}, True),
        ({"reward_funcs": ["a", "b"]}, True),
        ({"reward_weights": [1.0, 0.5, 1.0]}, True),  # the default has three functions
        ({"reward_funcs": "a", "reward_weights": "1.0"}, True),  # one of each, on the command line
        ({"reward_funcs": ["a", "b"], "reward_weights": [1.0]}, False),
        ({"reward_weights": [1.0, 0.5]}, False),
        ({"reward_funcs": "a", "reward_weights": [1.0, 0.5]}, False),
    ],
)
def test_one_weight_per_reward(values, sound):
    if sound:
        check_grpo_numbers(values)
        return
    with pytest.raises(UserError, match=r"reward_weights: .* give one weight per function"):
        check_grpo_numbers(values)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"overlong_cache": 1}, None),
        ({"overlong_cache": 512}, None),  # TRL's max_completion_length
        ({"overlong_cache": "20", "max_completion_length": "1e2"}, None),  # from the command line
        ({"overlong_cache": 20, "max_completion_length": 20}, None),
        ({}, "overlong_cache: missing; the reward overlong needs it"),
        ({"overlong_cache": 20, "max_completion_length": None}, "max_completion_length: missing"),
        ({"overlong_cache": 0}, r"overlong_cache: 0 must lie within 1\.\.512"),
        ({"overlong_cache": 513}, r"overlong_cache: 513 must lie within 1\.\.512"),
        ({"overlong_cache": 21, "max_completion_length": 20}, r"21 must lie within 1\.\.20"),
    ],
)
def test_overlong_needs_a_cache_below_the_limit(keys, words):
    if words is None:
        check_grpo_numbers({"reward_funcs": ["correctness_reward", "overlong"]} | keys)
        check_grpo_numbers({"reward_funcs": "overlong"} | keys)
        return
    with pytest.raises(UserError, match=words) as error:
        check_grpo_numbers({"reward_funcs": ["correctness_reward", "overlong"]} | keys)
    assert "\n" not in str(error.value)
    check_grpo_numbers({"reward_funcs": ["correctness_reward"]} | keys)
