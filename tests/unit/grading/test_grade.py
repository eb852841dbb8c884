"""Verdicts of a completion: its form, several boxes and golds, mixed batches.

The labelled tables are in test_tables.py.
"""

import itertools
import subprocess
import sys

import pytest

from grading.compare import is_same_value
from grading.extract import extract, is_well_formed
from grading.grade import grade, grade_rollouts, grade_short_all
from pipeline.prompts import ANSWER_FORMS


@pytest.mark.parametrize(
    ("completion", "gold", "verdict", "prediction"),
    [
        (r"<think>a</think> \boxed{18}", "18", "right", "18"),
        (r"<think>a</think> \boxed{18}", ["17", "18"], "right", "18"),
        (r"<think>a</think> \boxed{18}", ["17", "19"], "wrong", "18"),
        (r"<think>a</think> \boxed{18}", [], "wrong", "18"),
        (r"<think>a</think> \boxed{4=5}", "5", "wrong", "4=5"),
        (r"<think>a</think> \boxed{9^{9^{9}}}", "5", "unparseable", "9^{9^{9}}"),
        (r"<think>a</think> \boxed{\foo 5 \bar}", "5", "unparseable", r"\foo 5 \bar"),
        (r"<think>a</think> \boxed{4} \boxed{5}", "5", "several_answers", None),
        (r"<think>a</think> 18", "18", "no_answer", None),
        (r"<think>\boxed{18}", "18", "unclosed_think", None),
        (r"\boxed{18}", "18", "no_think", None),
    ],
)
def test_a_verdict_says_why(completion, gold, verdict, prediction):
    graded = grade(completion, gold)
    assert (graded.verdict, graded.prediction) == (verdict, prediction)
    assert graded.seconds > 0


def test_several_readings_of_a_prediction_but_one_of_a_gold():
    assert is_same_value("3,125", "3, 125")  # a list without its space
    assert not is_same_value("3, 125", "3,125")  # a gold with a thousands separator is a number


PARTS, WHOLE = ("$3+{}$", "$3 - {}$", "$x^2+{}$", "$2\\cdot{}$"), ("{}", "${}$", "**{}**")


@pytest.mark.parametrize(("part", "whole"), [*itertools.product(PARTS, WHOLE)])
def test_a_part_beside_a_whole_box_still_counts_as_a_second_answer(part, whole):
    start = "<think>so</think> " + part.format(r"\boxed{5}") + " so "
    assert extract(start + whole.format(r"\boxed{5}")).prediction == "5"
    assert extract(start + whole.format(r"\boxed{8}")).prediction is None


@pytest.mark.parametrize(("num_parts", "verdict"), [(49, "right"), (50, "no_answer")])
def test_the_last_fifty_boxes_are_looked_at(num_parts, verdict):
    """A box that is an answer counts where no more than 49 parts of formulas follow it."""
    text = r"<think>so</think> $\boxed{5}$ " + r"$3x = y \boxed{5}$ and " * num_parts
    assert grade(text, "5").verdict == verdict


@pytest.mark.parametrize(
    ("text", "gold", "verdict"),
    [
        (r"$\boxed{18}$.", "18", "right"),
        (r"\boxed{18} dollars", "18", "right"),
        (r"$x=-\boxed{18}$", "-18", "no_answer"),
        (r"\boxed{18} cm", "18 m", "wrong"),
        (r"It is not \boxed{18}; it is 19.", "18", "no_answer"),
        (r"$3+\boxed{18}$", "18", "no_answer"),
        (r"\boxed{18} million", "18", "no_answer"),
        (r"\boxed{} 18", "18", "no_answer"),
    ],
)
def test_every_form_reads_a_box_alike(text, gold, verdict):
    places = {"box": "{}", "bare_box": "{}", "tags": "<answer>{}</answer>", "hashes": "#### {}"}
    for form, place in places.items():
        completion = "<think>so</think> " + place.replace("{}", text)
        assert grade(completion, gold, answer_form=form).verdict == verdict
        assert is_well_formed(completion, answer_form=form) is (r"\boxed{}" not in text)
    assert grade_short_all([text], [gold])[0].verdict == verdict


def test_a_short_answer_is_read_by_its_question():
    questions = ["How many dozen eggs are there?", "How many eggs are there?"]
    grades = grade_short_all([r"\boxed{7} dozen"] * 2, ["7"] * 2, questions)
    assert [grade.verdict for grade in grades] == ["right", "no_answer"]


def test_a_part_in_one_pair_of_tags_counts_beside_an_answer_in_another():
    part = r"<think>so</think> <answer>$2\boxed{18}$</answer> <answer>%s</answer>"
    for other in (r"\boxed{19}", "19"):
        assert grade(part % other, "19", answer_form="tags").verdict == "several_answers"
    assert grade(part % "18", "18", answer_form="tags").verdict == "right"


@pytest.mark.parametrize(
    "spam",
    [
        "1 2 3 4 5 6 7", "Maybe 1, 2, 3, 4, 5, 6, 7", "It is 6 or 7", "The answer is 5, 6 or 7.",
        " ".join(rf"\boxed{{{i}}}" for i in range(8)), "<answer>6, 7</answer>",
        ", ".join(rf"\boxed{{{i}}}" for i in range(-90, 8)), "= 5, 6, 7",
        " ".join(map(str, range(1, 5000))) + " 7", "= 7 apples or 6 apples",
    ],
)  # fmt: skip
def test_offering_many_answers_is_not_right(spam):
    assert grade(f"<think>a</think> {spam}", "7", final_number=True).verdict != "right"
    assert grade_short_all([spam], ["7"])[0].verdict != "right"


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
