"""Equivalence: laws by kind, answers that must not be paid, and hostile values."""

import time
from pathlib import Path

import pytest

from grading.compare import is_parseable, is_same_value
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
    assert is_same_value("3,125", "3, 125")  # a list without its space
    assert not is_same_value("3, 125", "3,125")  # a gold with a thousands separator is a number


BOMBS = [
    "9^{9^{9}}", "9^{{9^{9^9}}}", r"9^{\frac{9^{9}}{1}}", "9^(9^9)", "9**9**9", "9^99999",
    "((9^{999})^{999})^{999}", "(3!)!^{9999}", "99999!", r"\binom{99999999}{5000000}",
    "e^{e^{e^{e^e}}}",
    r"\sqrt[10^{-9}]{7}", "1e999999999", r"\sinh(10^9)", "(999^{999})!", r"\pi^{10^{10}}",
]  # fmt: skip


@pytest.mark.parametrize("bomb", BOMBS)
def test_numbers_too_large_to_compute_with_are_refused_before_they_are_computed(bomb):
    assert not is_same_value(bomb, r"\sqrt{2}")
    assert is_same_value(bomb, bomb)  # as text
    assert not is_parseable(bomb)


@pytest.mark.parametrize(
    "text",
    ["9" * 5000, "{" * 200, "(" * 250, "-" * 400, r"\frac" * 90, "|" * 300, r"\text{" * 80,
     "x^" * 200, "1," * 240, r"\sqrt" * 90, "_" * 300, "((((1+1)" * 60, r"\{" * 240, "$" * 499],
)  # fmt: skip
def test_odd_texts_are_survived(text):
    assert not is_same_value(text, "5")
    assert not is_same_value("5", text)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("5", True), ("1,234", True), (r"\sqrt{2}", True), ("x+1", True), (r"(0, \pi]", True),
        (r"\{x | x < 1\}", True), (r"\text{Evelyn}", True), (r"\textbf{(C)}\ 12", True),
        (r"\sum_{k=1}^{n} k", False), ("1011_2", True), ("x=5", True), ("AB", True),
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
    """`match` and `is_parseable` themselves: the grader would turn what raises into a verdict."""
    assert not is_same_value(text, "5")
    assert is_parseable(text) in (True, False)


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
    assert not is_same_value(text[:500], r"\{1,2\}")
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
