"""The grader: structure, equivalence, and hostile input."""

import subprocess
import sys
import threading
import time

import pytest

from data_prep.answers import (
    equivalent,
    extract,
    find_boxes,
    grade,
    is_parseable,
    is_well_formed,
    last_boxed,
)
from data_prep.reading import read_rows
from data_prep.sources import gsm8k


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"so \boxed{4}", "4"),
        (r"\boxed{1} then \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed {3}", "3"),
        (r"\boxed{7} and \boxed{\frac12", "7"),  # the last one never closes
        (r"\boxed{\boxed{4}}", r"\boxed{4}"),
        (r"\boxed{\left\{1, 2\right.}", r"\left\{1, 2\right."),  # an escaped brace is print
        (r"\boxed{}", ""),
        (r"\boxed{\frac12", None),
        (r"\boxed 4", None),
        (r"\fbox{4}", None),
        ("", None),
    ],
)
def test_last_boxed(text, expected):
    assert last_boxed(text) == expected


def test_find_boxes_is_linear_on_unclosed_boxes():
    started = time.perf_counter()
    assert find_boxes(r"\boxed{" * 20_000) == []
    assert time.perf_counter() - started < 2


STRUCTURES = [
    # completion, status, prediction, well formed
    (r"<think>a</think> \boxed{4}", "ok", "4", True),
    (r"<think>a</think> \boxed{4} or \boxed{5}", "several_answers", None, True),
    (r"<think>a</think> \boxed{4}, again \boxed{4.0}", "ok", "4.0", True),
    (r"<think>\boxed{3}</think> \boxed{4}", "ok", "4", True),
    (r"<think>so \boxed{4}</think> done", "no_answer", None, True),
    (r"<think>a</think> \boxed{}", "no_answer", None, True),
    (r"<think>a</think> \boxed{4", "no_answer", None, True),
    (r"<think>a</think>", "no_answer", None, False),
    (r"<think>a \boxed{4}", "unclosed_think", None, False),
    (r"<think>a</think><think>b \boxed{4}", "unclosed_think", None, False),
    (r"</think>a<think> \boxed{4}", "unclosed_think", None, False),
    (r"<think>a</think><think>b</think> \boxed{4}", "no_think", None, False),
    (r"<think>a</think> b</think> \boxed{4}", "no_think", None, False),
    (r"<think><think>a</think> \boxed{4}", "no_think", None, False),
    (r"<think> </think> \boxed{4}", "no_think", None, False),
    (r"a</think> \boxed{4}", "no_think", None, False),
    (r"\boxed{4}", "no_think", None, False),
    ("", "no_think", None, False),
]


@pytest.mark.parametrize(("completion", "status", "prediction", "well_formed"), STRUCTURES)
def test_structure(completion, status, prediction, well_formed):
    found = extract(completion)
    assert (found.status, found.prediction) == (status, prediction)
    assert is_well_formed(completion) is well_formed


def test_prefilled_think_tag_counts_as_opened():
    assert extract(r"a</think> \boxed{4}", think_prefilled=True).prediction == "4"
    assert is_well_formed(r"a</think> \boxed{4}", think_prefilled=True)
    assert extract(r"<think>a</think> \boxed{4}", think_prefilled=True).status == "no_think"
    assert extract(r"a \boxed{4}", think_prefilled=True).status == "unclosed_think"


@pytest.mark.parametrize(
    ("answer", "status", "prediction"),
    [
        ("<answer>4</answer>", "ok", "4"),
        (r"<answer> \boxed{4} </answer>", "ok", "4"),
        ("<answer>4</answer> or <answer>5</answer>", "several_answers", None),
        ("<answer> </answer>", "no_answer", None),
        ("<answer>4", "no_answer", None),
        (r"\boxed{4}", "no_answer", None),
    ],
)
def test_answer_tags(answer, status, prediction):
    found = extract(f"<think>a</think>{answer}", answer_tags=True)
    assert (found.status, found.prediction) == (status, prediction)


EQUAL = [
    ("18", "18"), ("18.00", "18"), (r"\$18", "18"), ("$18$.", "18"), ("1,234", "1234"),
    (r"1\,234", "1234"), ("1{,}234.5", "1234.5"), ("025", "25"), ("5.", "5"), ("- 5", "-5"),
    (r"50\%", "50"), ("0.5", r"50\%"), ("\u20ac5", "5"), ("5\u200b", "5"), ("1.5e3", "1500"),
    (r"2.1 \times 10^{9}", "2100000000"), (r"\frac12", "0.5"), (r"\dfrac{3}{4}", "6/8"),
    ("1 1/2", "3/2"), (r"1\frac{1}{2}", "1.5"), (r"-\frac{1}{2}", r"\frac{-1}{2}"),
    (r"336^\circ", "336"), (r"18 \text{ dollars}", "18"), ("18 dollars", "18"),
    (r"995\text{ dollars}", "995"), (r"150 \, \text{cm}^2", "150"), (r"\text{C}", "(C)"),
    ("x=5", "5"), ("2x+1", "f(x) = 2x + 1"), ("1011", "1011_2"), (r"\boxed{7}", "7"),
    (r"\sqrt3", r"\sqrt{3}"), (r"\frac{1}{\sqrt2}", r"\frac{\sqrt{2}}{2}"), ("4,5", "5, 4"),
    (r"7 \text{ and } 1", r"1 \text{ and } 7"), ("(1,2)", "(1, 2)"), (r"2^{10}", "1024"),
    ("(x+1)^2", "x^2+2x+1"), (r"(5,\infty)", "x>5"), (r"(0, \frac{1}{2}]", r"(0, 0.5]"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1 \\ 2\end{pmatrix}"),
]  # fmt: skip
UNEQUAL = [
    ("17", "18"), ("-5", "5"), ("4=5", "5"), ("x=3=5", "5"), (r"\leq 5", "5"), ("5 6", "11"),
    ("1011_3", "1011_2"), ("1011_2", "1011"), ("BA", "AB"), ("n", "N"), ("B", "(C)"),
    ("4 or 5", "5"), ("4, 5", "5"), ("(2,1)", "(1,2)"), ("[1,2]", "(1,2)"), ("11/2", "1 1/2"),
    ("0.5%", r"50\%"), ("12,34", "1234"), ("0.333333", "1/3"), ("1/0", "1"), ("", ""),
    ("", "5"), (r"0.\overline{3}", "0"), ("{x|0 < x < 1}", "1"), ("1e999999999", "5"),
    (r"3^{2018}-1", r"3^{2018}"), (r"1 \text{ hour } 5 \text{ minutes}", "1"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1\\3\end{pmatrix}"),
]  # fmt: skip


@pytest.mark.parametrize(("prediction", "gold"), EQUAL)
def test_equal_values(prediction, gold):
    assert equivalent(prediction, gold) is True


@pytest.mark.parametrize(("prediction", "gold"), UNEQUAL)
def test_unequal_values(prediction, gold):
    assert equivalent(prediction, gold) is False


BOMBS = [
    "9^{9^{9}}", "9^{{9^{9^9}}}", r"9^{\frac{9^{9}}{1}}", "9^(9^9)", "9**9**9", "9^99999",
    "((9^{999})^{999})^{999}", "(3!)!", "3!!!", "99999!", r"\binom{99999999}{5000000}",
    "(x+y+z+w)^{99}", r"9^{9\cdot9999}", "9^{9!}", "9" * 5000, "{" * 200, "(" * 250,
    r"\sum_{k=1}^{999999999} k", "import os",
]  # fmt: skip


@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs_are_wrong_at_once_even_without_the_alarm(bomb):
    """Off the main thread math-verify has no time-out, so only our guards act."""
    verdicts = []
    thread = threading.Thread(
        target=lambda: verdicts.append(equivalent(bomb, r"\sqrt{2}")), daemon=True
    )
    thread.start()
    thread.join(5)
    assert verdicts == [False]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("5", True), ("1,234", True), (r"\sqrt{2}", True), ("x+1", True), (r"(0, \pi]", True),
        ("", False), (r"\frac{1}{", False), ("}{", False), ("one fish two", False),
        (r"\{x | x < 1\}", False), (r"n \text{ is even}", False), ("9^{9^{9}}", False),
    ],
)  # fmt: skip
def test_is_parseable(answer, expected):
    assert is_parseable(answer) is expected


def test_grade():
    completion = r"<think>a</think> \boxed{18}"
    assert grade(completion, "18").verdict == "right"
    assert grade(completion, ["17", "18"]).verdict == "right"
    assert grade(completion, "17").verdict == "wrong"
    assert grade(completion, "17").prediction == "18"
    assert grade(r"<think>\boxed{18}", "18").verdict == "unclosed_think"
    assert grade("<think>a</think><answer>18</answer>", "18", answer_tags=True).verdict == "right"


def test_integers_are_graded_without_sympy():
    code = (
        "import sys; from data_prep.answers import grade\n"
        "assert grade(r'<think>a</think>\\boxed{19}', '18').verdict == 'wrong'\n"
        "assert not {'math_verify', 'sympy', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_gsm8k_gold_is_right_in_its_own_box(shared_data):
    for where, row in read_rows(shared_data / "gsm8k/train.jsonl"):
        gold = gsm8k.build_problem(row, where, where).answer
        assert grade(f"<think>a</think> \\boxed{{{gold}}}", gold).verdict == "right", where
        assert grade(f"<think>a</think> \\boxed{{{gold}1}}", gold).verdict == "wrong", where
