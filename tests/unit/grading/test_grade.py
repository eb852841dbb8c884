"""The grader: labelled tables, verdicts, several golds and mixed batches."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from grading.grade import VERDICTS, grade, grade_all, grade_rollouts, grade_short_all
from pipeline.prompts import ANSWER_FORMS

TABLES = Path(__file__).parent / "tables"
FILES = {
    "answers.jsonl": grade_short_all,  # bare answers and short texts, class by class
    "tricks.jsonl": grade_short_all,  # answers that want to be paid, and their honest twins
    "honest.jsonl": grade_short_all,  # right answers in unexpected words and notation
    "completions.jsonl": grade_all,
}


@pytest.fixture(scope="module")
def graded():
    """{table: (row, verdict) of each row}."""
    found = {}
    for name, grade_rows in FILES.items():
        with (TABLES / name).open(encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        grades = grade_rows([row["prediction"] for row in rows], [row["gold"] for row in rows])
        found[name] = [(row, one.verdict) for row, one in zip(rows, grades, strict=True)]
    return found


@pytest.mark.parametrize("name", FILES)
def test_no_wrong_row_of_a_labelled_table_is_accepted(name, graded):
    assert len(graded[name]) >= 300
    assert [r for r, verdict in graded[name] if verdict == "right" and not r["right"]] == []
    assert {verdict for _, verdict in graded[name]} <= set(VERDICTS)


def test_recall_over_all_tables_is_99_percent_and_every_miss_is_known(graded):
    right = [pair for table in graded.values() for pair in table if pair[0]["right"]]
    missed = [row for row, verdict in right if verdict != "right"]
    assert len(right) > 1400 and len(missed) <= 0.01 * len(right)
    assert missed == [row for row, _ in right if "missed" in row]  # and why it is left so


@pytest.mark.parametrize(
    ("completion", "gold", "verdict", "prediction"),
    [
        (r"<think>a</think> \boxed{18}", "18", "right", "18"),
        (r"<think>a</think> \boxed{18}", ["17", "18"], "right", "18"),
        (r"<think>a</think> \boxed{18}", ["17", "19"], "wrong", "18"),
        (r"<think>a</think> \boxed{18}", [], "wrong", "18"),
        (r"<think>a</think> \boxed{17}", "18", "wrong", "17"),
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


UNFINISHED = [
    ("12/(1/25)", "300"), (r"\frac{-12}{-\frac{1}{25}}", "300"), (r"12 \cdot 25^1", "300"),
    (r"\sqrt{12^2}\cdot 25", "300"), (r"\frac{12}{0.04}", "300"), (r"12(1/25)^{-1}", "300"),
    (r"\frac{1}{\frac{1/12}{25}}", "300"), (r"\frac{6!}{4!}", "30"),
]  # fmt: skip
VALUES = [
    ("3/4", "0.75"), ("0.5/2", "0.25"), (r"\frac{\frac12}{3}", "1/6"), (r"-\frac{3}{-4}", "0.75"),
    (r"\frac{1}{\frac23}", "1.5"), (r"2\sqrt3", r"\sqrt{12}"), (r"\frac{22}{7}\pi", r"22\pi/7"),
    (r"\frac{3}{2\sqrt2}", r"\frac{3\sqrt2}{4}"), (r"3\times 10^{-1}", "0.3"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("prediction", "gold", "verdict"),
    [(*row, "unevaluated") for row in UNFINISHED] + [(*row, "right") for row in VALUES],
)
def test_a_product_is_left_to_do_in_whatever_print(prediction, gold, verdict):
    completion = rf"<think>a</think> \boxed{{{prediction}}}"
    assert grade(completion, gold, "How much is it?").verdict == verdict


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
    rest = IN_BOX.removeprefix("<think>")
    assert verdicts([(BOXED, rest, "2"), (BOXED, IN_BOX, "2")]) == ["no_think", "right"]
    prefilled = verdicts([(BOXED, rest, "2"), (BOXED, IN_BOX, "2")], think_prefilled=True)
    assert prefilled == ["right", "no_think"]


def test_no_rows_and_uneven_rows():
    assert grade_rollouts([], [], [], think_prefilled=False, final_number=False) == []
    with pytest.raises(ValueError):
        grade_rollouts([IN_BOX], [], [BOXED], think_prefilled=False, final_number=False)
