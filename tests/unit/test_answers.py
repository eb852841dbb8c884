"""The grader as a whole: the labelled tables, verdicts, several golds, and the child processes."""

import json
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from data_prep.grading.equivalence import is_parseable
from data_prep.grading.grade import (
    VERDICTS,
    grade,
    grade_all,
    grade_short_all,
    judge_all,
)

TABLES = Path(__file__).parent / "grader"
FILES = {
    "answers.jsonl": grade_short_all,  # bare answers and short texts, class by class
    "tricks.jsonl": grade_short_all,  # answers that want to be paid, and their honest twins
    "honest.jsonl": grade_short_all,  # right answers in unexpected words and notation
    "completions.jsonl": grade_all,
}
# Right rows that the grader misses, and why it is left so.
KNOWN_MISSES = {
    r"\pm 1 \pm i": "read with one sign for both, as in a quadratic formula",
    r"[4,5]\cup[5,6]": "unions are not merged",
    r"\begin{vmatrix}1&2\\3&4\end{vmatrix}": "determinants are not computed",
    r"\text{5 tenths}": "words and figures in one number",
    r"\text{5 and a half}": "words and figures in one number",
    r"\text{5 out of 6}": "words and figures in one number",
    r"x\equiv12\pmod 7": "congruences are compared as written",
    "There are twelve of them.": "number words are read alone, not in a sentence",
    r"k_{\max} = 9": "another name than the gold's",
    r"Thus $\gcd(m,n) = 1$ and $m+n = 5 + 32 = \mathbf{37}$.": "two statements look like a list",
    "Thus, Kylar needs to pay $64 for the 16 glasses.": "the last number is taken",
    r"Thus the required sum is $1 + 2 + \dots + 100 = 5050$.": "dots stand for anything",
}


def read_table(name: str) -> list[dict]:
    with (TABLES / name).open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.mark.parametrize("name", FILES)
def test_labelled_table(name):
    """No row is accepted that is wrong (precision 100 %), and the misses are those we know."""
    rows = read_table(name)
    assert len(rows) >= 300
    graded = FILES[name]([row["prediction"] for row in rows], [row["gold"] for row in rows])
    verdicts = list(zip(rows, [one.verdict for one in graded], strict=True))
    accepted = [row for row, verdict in verdicts if verdict == "right" and not row["right"]]
    missed = [row for row, verdict in verdicts if verdict != "right" and row["right"]]
    assert accepted == []
    assert {row["prediction"] for row in missed} <= set(KNOWN_MISSES)
    assert {verdict for _, verdict in verdicts} <= set(VERDICTS)


def test_recall_over_all_tables():
    """At least 99 %, and the list of misses is neither too short nor out of date."""
    num_right, missed = 0, []
    for name, grade_rows in FILES.items():
        rows = [row for row in read_table(name) if row["right"]]
        graded = grade_rows([row["prediction"] for row in rows], [row["gold"] for row in rows])
        num_right += len(rows)
        missed += [
            r["prediction"] for r, g in zip(rows, graded, strict=True) if g.verdict != "right"
        ]
    assert num_right > 1400
    assert set(missed) == set(KNOWN_MISSES)
    assert len(missed) <= 0.01 * num_right


def test_the_tables_cover_every_class_both_ways():
    count = Counter((row["class"], row["right"]) for row in read_table("answers.jsonl"))
    classes = {name for name, _ in count}
    assert len(classes) >= 40
    assert all(count[name, False] for name in classes)
    assert sum(bool(count[name, True]) for name in classes) >= 40


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


def test_forms():
    assert grade("<think>a</think><answer>18</answer>", "18", answer_tags=True).verdict == "right"
    assert grade(r"a</think>\boxed{18}", "18", think_prefilled=True).verdict == "right"
    assert grade("<think>a</think>It is 18.", "18", final_number=True).verdict == "right"
    assert grade("<think>a</think>It is 18.", "18").verdict == "no_answer"


def test_what_our_grammar_cannot_read_is_decided_by_algebra_in_a_child():
    pairs = [
        (r"\sum_{k=1}^{5} k", ["15"]),
        (r"\sum_{k=1}^{5} k", ["16"]),
        (r"\int_0^1 x \, dx", ["1/2"]),
        ("2", ["2"]),
    ]
    verdicts = [verdict for verdict, _ in judge_all(pairs)]
    assert verdicts == ["right", "wrong", "right", "right"]


def test_grading_works_in_any_thread():
    verdicts = []
    thread = threading.Thread(
        target=lambda: verdicts.append(judge_all([(r"\sum_{k=1}^{6} k", ["21"])])[0][0]),
        daemon=True,
    )
    thread.start()
    thread.join(60)
    assert verdicts == ["right"]


def test_integers_are_graded_without_sympy_and_without_a_child():
    code = (
        "import sys; from data_prep.grading.grade import grade\n"
        "from data_prep.grading import pool\n"
        "assert grade(r'<think>a</think>\\boxed{19}', '18').verdict == 'wrong'\n"
        "assert grade(r'<think>a</think>\\boxed{\\frac12}', '0.5').verdict == 'right'\n"
        "assert not {'math_verify', 'sympy', 'mpmath', 'torch'} & set(sys.modules)\n"
        "assert pool._shared is None"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_is_parseable():
    assert is_parseable(r"\frac{1}{2}") and is_parseable("x=5")
    assert not is_parseable("") and not is_parseable(r"\frac{1}{")
