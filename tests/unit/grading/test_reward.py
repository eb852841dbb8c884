"""The grader as a reward of any TRL trainer."""

from functools import partial

import pytest

from grading import correctness_reward


def reward(completion, gold):
    """Of a text, and of a chat."""
    chat = [{"role": "assistant", "content": completion}]
    found, same = correctness_reward([completion, chat], answer=[gold, gold])
    assert found == same
    return found


def reward_of_turn(message):
    (found,) = correctness_reward([[message]], answer=["2"])
    return found


def test_the_column_is_the_named_one_or_the_first_that_is_known():
    texts, columns = [r"\boxed{2}"], {"solution": ["2"], "label": ["3"], "trainer_state": None}
    assert correctness_reward(texts, **columns) == [1.0]
    assert partial(correctness_reward, column="label")(texts, **columns) == [0.0]
    for wanted in ({"column": "gold"}, {"column": None, "solution": None}):
        with pytest.raises(ValueError, match=r"column: .* label"):
            rest = {k: v for k, v in columns.items() if k not in wanted}
            correctness_reward(texts, column=wanted["column"], **rest)


@pytest.mark.parametrize(("prefilled", "value"), [(None, 1.0), (False, 0.0), (True, 0.0)])
def test_a_thought_can_be_made_a_must(prefilled, value):
    texts = [r"\boxed{2}"]
    assert correctness_reward(texts, answer=[2], think_prefilled=prefilled) == [value]
