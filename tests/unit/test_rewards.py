"""Rewards by hand, at every boundary."""

import pytest

from data_prep.prompts import build_completion, build_prompt
from stages.arguments import GrpoArguments
from stages.rewards import REWARDS, build_rewards

RIGHT = "<think>\n1 + 1 = 2\n</think>\n\n\\boxed{2}"


def chat(*texts):
    return [[{"role": "assistant", "content": text}] for text in texts]


def ask(number, system_prompt="none"):
    return [build_prompt("1 + 1?", system_prompt)] * number


def build(name, think_prefilled=False, **keys):
    (reward,) = build_rewards(GrpoArguments("f", reward_funcs=[name], **keys), think_prefilled)
    return reward


@pytest.mark.parametrize(
    ("completion", "gold", "value"),
    [
        (RIGHT, "2", 1.0),
        (RIGHT, "3", 0.0),
        ("<think>so</think> It is \\boxed{0.5}.", "\\frac{1}{2}", 1.0),
        ("<think>so</think> \\boxed{3} or \\boxed{2}", "2", 0.0),  # hedging
        ("<think>\\boxed{2}</think> so it is", "2", 0.0),  # answer inside the thought only
        ("<think>1 + 1 = \\boxed{2}", "2", 0.0),  # cut off in the thought
        ("\\boxed{2}", "2", 0.0),  # no thought
        ("<think>so</think> <answer>2</answer>", "2", 0.0),  # tags were not asked for
        ("", "2", 0.0),
    ],
)
def test_correctness(completion, gold, value):
    reward = build("correctness_reward")
    assert reward(prompts=ask(1), completions=chat(completion), answer=[gold]) == [value]


def test_correctness_with_tags_and_with_a_prefilled_thought():
    tagged = chat(build_completion("1 + 1 = 2", "2", "answer_tags"), RIGHT)
    reward = build("correctness_reward")
    asked = ask(2, "answer_tags")
    assert reward(prompts=asked, completions=tagged, answer=["2", "2"]) == [1.0, 0.0]
    rest = chat(RIGHT.removeprefix("<think>\n"), RIGHT)
    reward = build("correctness_reward", think_prefilled=True)
    assert reward(prompts=ask(2), completions=rest, answer=["2", "2"]) == [1.0, 0.0]


def test_each_completion_meets_its_own_gold():
    reward = build("correctness_reward")
    three = chat(RIGHT, RIGHT, RIGHT)
    assert reward(prompts=ask(3), completions=three, answer=["2", "3", "2"]) == [1.0, 0.0, 1.0]
    with pytest.raises(ValueError):
        reward(prompts=ask(2), completions=chat(RIGHT, RIGHT), answer=["2"])


@pytest.mark.parametrize(
    ("completion", "value"),
    [
        ("<think>so</think> It is 2.", 1.0),
        ("<think>so</think>", 0.0),  # nothing after the thought
        ("<think> \n</think> \\boxed{2}", 0.0),  # empty thought
        ("<think>a</think> <think>b</think> 2", 0.0),
        ("so</think> 2", 0.0),
        ("</think> 2 <think>", 0.0),
        ("", 0.0),
    ],
)
def test_format(completion, value):
    assert build("think_format_reward")(completions=chat(completion)) == [value]


def test_format_with_a_prefilled_thought():
    reward = build("think_format_reward", think_prefilled=True)
    texts = chat("so</think> 2", "<think>so</think> 2", "</think> 2")
    assert reward(completions=texts) == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("num_tokens", "value"),
    [(0, 0), (499, 0), (500, 0), (503, -0.001), (650, -0.05), (800, -0.1), (900, -0.1)],
)
def test_length_penalty(num_tokens, value):
    reward = build("soft_length_penalty", length_penalty_start=500, length_penalty_end=800)
    (found,) = reward(completion_ids=[[7] * num_tokens], completions=chat("x"))
    assert found == pytest.approx(value, abs=1e-12)


def test_length_penalty_follows_its_keys():
    keys = {"length_penalty_start": 0, "length_penalty_end": 4, "length_penalty_max": 2.0}
    reward = build("soft_length_penalty", **keys)
    assert reward(completion_ids=[[1], [1] * 2, [1] * 9]) == [-0.5, -1.0, -2.0]


def test_trl_sees_the_recipes_names_in_the_recipes_order():
    names = ["soft_length_penalty", "correctness_reward", "think_format_reward"]
    found = build_rewards(GrpoArguments("f", reward_funcs=names), think_prefilled=False)
    assert [f.__name__ for f in found] == names and set(names) == set(REWARDS)
    # TRL passes every column and some helpers of its own to each function.
    every = {
        "prompts": ask(1),
        "completions": chat(RIGHT),
        "completion_ids": [[1]],
        "answer": ["2"],
    }
    every |= {"id": ["p"], "trainer_state": None, "log_extra": None, "log_metric": None}
    weights = [2.0, 1.0, 0.5]
    assert [f(**every) for f in found] == [[0.0], [1.0], [1.0]]
    assert sum(w * f(**every)[0] for w, f in zip(weights, found, strict=True)) == 1.5
