"""Grading of mixed batches: every completion in its own prompt's form, in the order given."""

import pytest

from data_prep.grading.grade import grade_rollouts
from data_prep.prompts import build_prompt

BOXED, TAGGED = build_prompt("1 + 1?", "think"), build_prompt("1 + 1?", "answer_tags")
IN_BOX, IN_TAGS = "<think>so</think> \\boxed{2}", "<think>so</think> <answer>2</answer>"
PLAIN = "<think>so</think> The answer is 2."


def verdicts(rows, think_prefilled=False, final_number=False):
    prompts, completions, golds = zip(*rows, strict=True)
    grades = grade_rollouts(
        prompts, completions, golds, think_prefilled=think_prefilled, final_number=final_number
    )
    return [grade.verdict for grade in grades]


def test_each_row_has_its_own_form_and_its_own_golds():
    rows = [
        (TAGGED, IN_TAGS, "2"),
        (BOXED, IN_BOX, ["7", "2"]),
        (TAGGED, IN_BOX, "2"),
        (BOXED, IN_BOX, "3"),
        (BOXED, IN_TAGS, "2"),
        (TAGGED, IN_TAGS, "3"),
    ]
    expected = ["right", "right", "no_answer", "wrong", "no_answer", "wrong"]
    assert verdicts(rows) == expected
    assert verdicts(rows[::-1]) == expected[::-1]


def test_what_the_recipe_and_the_template_say_reaches_the_grader():
    assert verdicts([(BOXED, PLAIN, "2")]) == ["no_answer"]
    assert verdicts([(BOXED, PLAIN, "2")], final_number=True) == ["right"]
    rest = IN_BOX.removeprefix("<think>")
    assert verdicts([(BOXED, rest, "2"), (BOXED, IN_BOX, "2")]) == ["no_think", "right"]
    prefilled = verdicts([(BOXED, rest, "2"), (BOXED, IN_BOX, "2")], think_prefilled=True)
    assert prefilled == ["right", "no_think"]


def test_no_rows_and_uneven_rows():
    assert grade_rollouts([], [], [], think_prefilled=False, final_number=False) == []
    with pytest.raises(ValueError):
        grade_rollouts([BOXED], [IN_BOX], [], think_prefilled=False, final_number=False)
