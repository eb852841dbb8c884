"""Equivalence: laws by kind, answers that must not be paid, and hostile values."""

import contextlib
import time
from pathlib import Path

import pytest

from grading.equivalence.compare import TooLarge, can_be_asked, compare, is_parseable, is_same_value
from grading.equivalence.readings import read
from grading.grade import grade_all, grade_short_all
from tests.files import read_rows

TABLE = Path(__file__).parent / "tables/values.jsonl"
ROWS = read_rows(TABLE)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['prediction']} | {row['gold']}")
def test_value(row):
    assert is_same_value(row["prediction"], row["gold"]) is row["right"]


def test_what_was_paid_once_is_not_paid_by_way_of_algebra_or_a_sentence():
    wrong = [row for row in ROWS if "was_paid" in row]
    texts, golds = [row["prediction"] for row in wrong], [row["gold"] for row in wrong]
    boxed = [rf"<think>a</think>\boxed{{{text}}}" for text in texts]
    graded = grade_all(boxed, golds) + grade_short_all(texts, golds)
    assert [one.prediction for one in graded if one.verdict == "right"] == []


def test_several_readings_of_a_prediction_but_one_of_a_gold():
    assert compare("3,125", "3, 125") is True  # a list without its space
    assert compare("3, 125", "3,125") is False  # a gold with a thousands separator is a number


BOMBS = [
    "9^{9^{9}}", "9^{{9^{9^9}}}", r"9^{\frac{9^{9}}{1}}", "9^(9^9)", "9**9**9", "9^99999",
    "((9^{999})^{999})^{999}", "(3!)!^{9999}", "99999!", r"\binom{99999999}{5000000}",
    "e^{e^{e^{e^e}}}",
    r"\sqrt[10^{-9}]{7}", "1e999999999", r"\sinh(10^9)", "(999^{999})!", r"\pi^{10^{10}}",
]  # fmt: skip


@pytest.mark.parametrize("bomb", BOMBS)
def test_numbers_too_large_to_compute_with_are_refused_before_they_are_computed(bomb):
    with contextlib.suppress(TooLarge):
        assert compare(bomb, r"\sqrt{2}") is not True
    assert compare(bomb, bomb) is True  # as text
    assert not is_parseable(bomb)


@pytest.mark.parametrize(
    "text",
    ["9" * 5000, "{" * 200, "(" * 250, "-" * 400, r"\frac" * 90, "|" * 300, r"\text{" * 80,
     "x^" * 200, "1," * 240, r"\sqrt" * 90, "_" * 300, "((((1+1)" * 60, r"\{" * 240, "$" * 499],
)  # fmt: skip
def test_odd_texts_are_survived(text):
    assert compare(text, "5") is not True
    assert compare("5", text) is not True


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("5", True), ("1,234", True), (r"\sqrt{2}", True), ("x+1", True), (r"(0, \pi]", True),
        (r"\{x | x < 1\}", True), (r"\text{Evelyn}", True), (r"\textbf{(C)}\ 12", True),
        (r"\sum_{k=1}^{n} k", True), ("1011_2", True), ("x=5", True), ("AB", True),
        ("", False), (r"\frac{1}{", False), ("}{", False), ("1/0", False), ("9^{9^{9}}", False),
        ("one fish two fish red fish blue fish", False), (r"n \text{ is even}", False),
    ],
)  # fmt: skip
def test_is_parseable(answer, expected):
    assert is_parseable(answer) is expected


# Answers that were paid without being right, and inputs that broke the grader


@pytest.mark.parametrize(
    "text", ["\u221a" * 400, "\u221b" * 400, "A_\u2776", "A_\u24f5", "A_\u1369"]
)
def test_what_once_raised(text):
    assert grade_short_all([text], ["5"])[0].verdict != "right"
    is_parseable(text)


@pytest.mark.parametrize(
    "text",
    [
        " or ".join(f"tan2^{{{39999 - n}}}" for n in range(30)),
        r"\{" + ",".join(f"tan2^{{{39999 - n}}}" for n in range(30)) + r"\}",
        r"(\sqrt{2})!" * 40, r"\sin(\sqrt{2})" * 30,
    ],
)  # fmt: skip
def test_no_value_takes_seconds(text):
    started = time.process_time()
    with contextlib.suppress(TooLarge):
        assert compare(text[:500], r"\{1,2\}") is not True
    assert time.process_time() - started < 5


FLOORS = [rf"\lfloor n/{k}\rfloor(2999-n)!" for k in range(180, 196)]  # they differ late


@pytest.mark.parametrize(
    "sets", [[FLOORS, ["1", "2"]], [FLOORS[at:6] + FLOORS[:at] for at in range(6)]]
)
def test_no_completion_takes_seconds(sets):
    boxes = " ".join(rf"\boxed{{\{{{','.join(items)}\}}}}" for items in sets)
    started = time.process_time()
    assert grade_all([f"<think>a</think> {boxes}"], ["5"])[0].verdict != "right"
    assert time.process_time() - started < 5


def test_the_limit_of_work_is_of_one_comparison():
    floors = rf"\{{{','.join(FLOORS)}\}}"
    with pytest.raises(TooLarge):
        compare(floors, r"\{1,2\}")
    assert compare(FLOORS[0], FLOORS[1]) is False
    assert compare(r"\lfloor n/2\rfloor", r"\lfloor \frac{n}{2}\rfloor") is True


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\sum_{k=1}^{5} k", True), (r"\int_0^1 x dx", True), (r"\int x^2 dx", True),
        (r"\lim_{x\to 0}\frac{\sin x}{x}", True), (r"\max(3,5)", False),
        (r"\prod_{k=1}^{n} k", True),
        (r"\sum k", False), (r"\sum_{k=1}^{5}", False), (r"5\min", False), (r"\lim_{x=7}5", False),
        (r"\int", False), (r"\max", False), (r"\sum_{k=1}^{5}k=7", False),
    ],
)  # fmt: skip
def test_only_whole_operators_reach_math_verify(text, expected):
    assert can_be_asked(read(text, False)[0]) is expected
