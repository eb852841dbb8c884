"""The grader as a reward of any TRL trainer."""

from functools import partial

import pytest

from grading import correctness_reward


def chat(text):
    return [{"role": "assistant", "content": text}]


@pytest.mark.parametrize(
    ("completion", "gold", "value"),
    [
        (r"So \boxed{72}.", "72", 1.0),  # no thought
        (r"<think>so</think> \boxed{72}", "72", 1.0),
        (r"so</think> \boxed{72}", "72", 1.0),  # the prompt has opened it
        (r"<think>\boxed{72}", "72", 0.0),
        ("It is 72.", "72", 0.0),  # no answer
        ("", "72", 0.0),
        (r"\boxed{72}", 72, 1.0),
        (r"\boxed{\frac12}", 0.5, 1.0),
        (r"\boxed{0}", 0, 1.0),
        (r"\boxed{72}", ["seven", 72], 1.0),
        (r"\boxed{72}", ["71", None], 0.0),
        (r"\boxed{72}", "48+24 = 72\n#### 72", 1.0),
        (r"\boxed{1{,}072}", "#### 1,072", 1.0),
        (r"\boxed{72}", r"First \boxed{70}, so $\boxed{72}$.", 1.0),
        (r"\boxed{72}", None, None),
        (r"\boxed{72}", float("nan"), None),
        (r"\boxed{72}", [], None),
        (r"\boxed{72}", "", None),
    ],
)
@pytest.mark.parametrize("form", [str, chat])
def test_golds_and_completions_as_data_sets_have_them(completion, gold, value, form):
    assert correctness_reward([form(completion)], answer=[gold]) == [value]


def test_the_column_is_the_named_one_or_the_first_that_is_known():
    texts, columns = [r"\boxed{2}"], {"solution": ["2"], "label": ["3"], "trainer_state": None}
    assert correctness_reward(texts, **columns) == [1.0]
    assert partial(correctness_reward, column="label")(texts, **columns) == [0.0]
    for wanted in ({"column": "gold"}, {"column": None, "solution": None}):
        with pytest.raises(ValueError, match=r"column: .* label"):
            rest = {k: v for k, v in columns.items() if k not in wanted}
            correctness_reward(texts, column=wanted["column"], **rest)


@pytest.mark.parametrize(
    ("message", "value"),
    [
        ({"role": "assistant", "content": [{"type": "text", "text": r"\boxed{2}"}]}, 1.0),
        ({"role": "assistant", "content": None, "tool_calls": []}, 0.0),
        ({"role": "tool", "content": r"\boxed{2}"}, 0.0),
    ],
)
def test_only_what_the_assistant_wrote_counts(message, value):
    assert correctness_reward([[message]], answer=["2"]) == [value]


def test_a_copy_of_the_questions_formula_is_not_paid():
    texts = [r"\boxed{6\cdot 7}", r"\boxed{42}"]
    questions = ["What is $6 \\cdot 7$?", None]
    assert correctness_reward(texts, answer=[42, 42], question=questions) == [0.0, 1.0]


@pytest.mark.parametrize(("prefilled", "value"), [(None, 1.0), (False, 0.0), (True, 0.0)])
def test_a_thought_can_be_made_a_must(prefilled, value):
    texts = [r"\boxed{2}"]
    assert correctness_reward(texts, answer=[2], think_prefilled=prefilled) == [value]


def test_a_column_names_the_form_of_each_row():
    """TRL hands over a column as a list, also the one that `make data` writes."""
    texts = ["<answer>2</answer>", r"\boxed{2}", "#### 2"]
    forms = ["tags", "box", "box"]
    assert correctness_reward(texts, answer=[2] * 3, answer_form=forms) == [1.0, 1.0, 0.0]
