"""Verdicts of a completion: its form, several boxes and golds, mixed batches; the reward of TRL.

The labelled tables are in test_tables.py.
"""

import itertools
import subprocess
import sys
from functools import partial

import pytest

from grading import correctness_reward
from grading.extract import extract, is_well_formed
from grading.grade import grade, grade_rollouts, grade_short_all
from pipeline.prompts import ANSWER_FORMS


def verdict_in_every_form(text, gold):
    """The one verdict that all forms of an answer give a text; only an empty box is ill-formed."""
    places = {"box": "{}", "bare_box": "{}", "tags": "<answer>{}</answer>", "hashes": "#### {}"}
    verdict = grade_short_all([text], [gold])[0].verdict
    for form, place in places.items():
        completion = "<think>so</think> " + place.replace("{}", text)
        assert grade(completion, gold, answer_form=form).verdict == verdict
        assert is_well_formed(completion, answer_form=form) is (r"\boxed{}" not in text)
    return verdict


def gets_7(text):
    """Whether a text is right by the readers that ask for no form."""
    graded = grade(f"<think>a</think> {text}", "7", final_number=True)
    assert graded.seconds > 0
    return "right" in (graded.verdict, grade_short_all([text], ["7"])[0].verdict)


def test_offering_all_answers_is_not_right():
    assert not gets_7(", ".join(rf"\boxed{{{i}}}" for i in range(-90, 8)))
    assert not gets_7(" ".join(map(str, range(1, 5000))) + " 7")


PARTS, WHOLE = ("$3+{}$", "$3 - {}$", "$x^2+{}$", "$2\\cdot{}$"), ("{}", "${}$", "**{}**")


@pytest.mark.parametrize(("part", "whole"), [*itertools.product(PARTS, WHOLE)])
def test_a_part_beside_a_whole_box_still_counts_as_a_second_answer(part, whole):
    start = "<think>so</think> " + part.format(r"\boxed{5}") + " so "
    assert extract(start + whole.format(r"\boxed{5}")).prediction == "5"
    assert extract(start + whole.format(r"\boxed{8}")).prediction is None


def test_a_short_answer_is_read_by_its_question():
    questions = ["How many dozen eggs are there?", "How many eggs are there?"]
    grades = grade_short_all([r"\boxed{7} dozen"] * 2, ["7"] * 2, questions)
    assert [grade.verdict for grade in grades] == ["right", "no_answer"]


def test_rational_numbers_are_graded_without_libraries():
    code = (
        "import sys; from grading.grade import grade\n"
        "assert grade(r'<think>a</think>\\boxed{19}', '18').verdict == 'wrong'\n"
        "assert grade(r'<think>a</think>\\boxed{\\frac12}', '0.5').verdict == 'right'\n"
        "assert not {'math_verify', 'sympy', 'mpmath', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


BOXED, TAGGED, *_ = ANSWER_FORMS
IN_BOX, IN_TAGS = "<think>so</think> \\boxed{2}", "<think>so</think> <answer>2</answer>"
PLAIN = "<think>so</think> The answer is 2."


def verdicts(rows, think_prefilled=False, final_number=False):
    """Of rows of (form, completion, golds)."""
    forms, completions, golds = zip(*rows, strict=True)
    grades = grade_rollouts(
        completions, golds, forms, think_prefilled=think_prefilled, final_number=final_number
    )
    return [grade.verdict for grade in grades]


def test_each_row_has_its_own_form_and_its_own_golds():
    rows = [
        (TAGGED, IN_TAGS, "2"), (BOXED, IN_BOX, ["7", "2"]), (TAGGED, IN_BOX, "2"),
        (BOXED, IN_BOX, "3"), (BOXED, IN_TAGS, "2"), (TAGGED, IN_TAGS, "3"),
    ]  # fmt: skip
    expected = ["right", "right", "no_answer", "wrong", "no_answer", "wrong"]
    assert verdicts(rows) == expected
    assert verdicts(rows[::-1]) == expected[::-1]


def test_what_the_recipe_and_the_template_say_reaches_the_grader():
    assert verdicts([(BOXED, PLAIN, "2")]) == ["no_answer"]
    assert verdicts([(BOXED, PLAIN, "2")], final_number=True) == ["right"]
    rows = [(BOXED, IN_BOX.removeprefix("<think>"), "2"), (BOXED, IN_BOX, "2")]
    assert verdicts(rows) == ["no_think", "right"]
    assert verdicts(rows, think_prefilled=True) == ["right", "no_think"]


def test_no_rows_and_uneven_rows():
    assert grade_rollouts([], [], [], think_prefilled=False, final_number=False) == []
    with pytest.raises(ValueError):
        grade_rollouts([IN_BOX], [], [BOXED], think_prefilled=False, final_number=False)


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
