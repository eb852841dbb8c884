"""Texts that would raise, hang or need gigabytes are a verdict, and a fault is a warning."""

import logging
import time

import pytest

from grading.boxes import last_boxed
from grading.compare import is_parseable, is_same_value
from grading.extract import extract, extract_short
from grading.grade import VERDICTS, grade, grade_all
from grading.lenient import grade_leniently


@pytest.mark.parametrize(
    "bomb",
    [
        "9^{9^{9}}", "9^{{9^{9^9}}}", r"9^{\frac{9^{9}}{1}}", "9^(9^9)", "9**9**9", "9^99999",
        "((9^{999})^{999})^{999}", "(3!)!^{9999}", "99999!", r"\binom{99999999}{5000000}",
        "e^{e^{e^{e^e}}}", r"\sqrt[10^{-9}]{7}", "1e999999999", r"\sinh(10^9)", "(999^{999})!",
        r"\pi^{10^{10}}",
    ],
)  # fmt: skip
def test_numbers_too_large_to_compute_with_are_refused_before_they_are_computed(bomb):
    assert not is_same_value(bomb, r"\sqrt{2}")
    assert is_same_value(bomb, bomb)  # as text
    assert not is_parseable(bomb)


@pytest.mark.parametrize(
    "text",
    [
        "9" * 5000, "{" * 200, "(" * 250, "-" * 400, r"\frac" * 90, "|" * 300, r"\text{" * 80,
        "x^" * 200, "1," * 240, r"\sqrt" * 90, "_" * 300, "((((1+1)" * 60, r"\{" * 240, "$" * 499,
        "\u221a" * 400, "\u221b" * 400, "A_\u2776", "A_\u24f5", "A_\u1369",
    ],
)  # fmt: skip
def test_odd_texts_raise_in_no_part_of_the_grader(text):
    """`grade` would turn what raises into a verdict."""
    assert not is_same_value(text, "5")
    assert not is_same_value("5", text)
    assert is_parseable(text) in (True, False)


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
def test_which_golds_can_be_read(answer, expected):
    assert is_parseable(answer) is expected


TANGENTS = [f"tan2^{{{39999 - n}}}" for n in range(30)]
FLOORS = [rf"\lfloor n/{k}\rfloor(2999-n)!" for k in range(180, 196)]  # they differ late


def boxed(answer):
    return rf"\boxed{{{answer}}}"


def in_boxes(*sets):
    return " ".join(boxed(rf"\{{{','.join(items)}\}}") for items in sets)


@pytest.mark.parametrize(
    "text",
    [
        boxed(" or ".join(TANGENTS)), in_boxes(TANGENTS),
        boxed(r"(\sqrt{2})!" * 40), boxed(r"\sin(\sqrt{2})" * 30),
        in_boxes(FLOORS, ["1", "2"]), in_boxes(*(FLOORS[at:6] + FLOORS[:at] for at in range(6))),
        r"$3x = y \boxed{7}$ and $\boxed{7}$ " * 5000,
    ],
)  # fmt: skip
def test_no_completion_takes_seconds(text):
    started = time.process_time()
    assert grade(f"<think>a</think> {text}", r"\{1,2\}").verdict != "right"
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    "piece",
    [
        r"\boxed{", r"\boxed", "$", "answer is ", "answer ", "=", "(", "####", "<answer>",
        "</answer>", "(B)", "(A) or ", r"\[", "1", "1/", "<think>", "</think>", "{", "}", "*", "<<",
        "[", "\\", "not 7 ", "or ", "\n=", "$$a", " ",
    ],
)  # fmt: skip
def test_long_texts_are_read_to_the_end(piece):
    """Of 100,000 characters: a search that is quadratic in them would not return."""
    text = piece * (100_000 // len(piece))
    for completion in (text, f"</think>{text} so 7", f"\\boxed{{{text}}}"):
        extract_short(completion)
        extract("<think>" + completion + "</think>" + completion, final_number=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"so \boxed{4}", "4"), (r"\boxed{1} then \boxed{2}", "2"), (r"\boxed {3}", "3"),
        (r"\boxed{7} and \boxed{\frac12", "7"),  # the last one never closes
        (r"\boxed{\boxed{4}}", r"\boxed{4}"),
        (r"\boxed{\left\{1, 2\right.}", r"\left\{1, 2\right."),  # an escaped brace is print
        (r"\boxed{}", ""), (r"\boxed{\frac12", None), (r"\boxed 4", "4"), (r"\fbox{4}", None),
    ],
)  # fmt: skip
def test_the_last_box_that_closes(text, expected):
    assert last_boxed(text) == expected


MU = r"\mu\pi, \mu \in \mathbb{Z}"


@pytest.mark.parametrize(
    "text", [r"f(x)=cx\text{ for all }\lambda\in\mathbb{R}", MU, r"AB\text{ with }AB\in\mathbb{Z}",
             r"x_1, x_1 \in \mathbb{N}", r"\{(a,b) : (a,b) \in \mathbb{Z}\}"],
)  # fmt: skip
def test_a_condition_on_any_name_raises_nothing(text, caplog):
    for gold in (text, "cx", "5"):
        assert grade(rf"<think>so</think> \boxed{{{text}}}", gold).verdict in VERDICTS
    assert caplog.records == []


@pytest.mark.parametrize("joint", ["+", "/", "^", "=", ",", "!", "-", r"\cup ", r"\pm ", r"\sqrt "])
@pytest.mark.parametrize("length", [90, 400])
def test_chains_of_any_length_raise_nothing(joint, length, caplog):
    text = joint.join(["(AB)"] * length)
    for prediction, golds in ((text, "5"), ("5", [text, "5"]), (r"\frac{5}{5}", [text, "1"])):
        found = grade(rf"<think>so</think> \boxed{{{prediction}}}", golds, f"Compute ${text}$.")
        assert found.verdict in VERDICTS
    assert caplog.records == []


def test_numbers_of_thousands_of_digits_raise_nothing(caplog):
    question = "Of $1$ to $2007^{2007}$ one is drawn. The probability is $a/b$. Find $a + b$."
    assert grade(r"<think>so</think> \boxed{1+1108}", "1109", question).verdict == "unevaluated"
    assert caplog.records == []


def test_a_fault_of_the_grader_is_a_verdict_and_a_warning(monkeypatch, caplog):
    def fail(*_):
        raise ValueError("a fault")

    for name in ("match", "golds_as_asked", "is_refused"):
        with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
            patch.setitem(grade_all.__globals__, name, fail)
            assert grade(r"<think>so</think> \boxed{2x+x}", "3x").verdict == "unparseable"
        assert "a fault" in caplog.text
        caplog.clear()


def test_the_lenient_reader_finds_answers_without_their_form():
    graded = {
        "The answer is approximately 7.": "right",
        "She needs 7 cm": "right",
        "I am lost.": None,
        "So 8.": "wrong",
        "\\boxed{7} is the total": "right",
        "9^{9^{9^9}} = $9^{9^{9^9}}$": "wrong",
    }
    assert grade_leniently(graded, ["7"] * len(graded)) == list(graded.values())
    assert grade_leniently(["So 8.", "Answer: B"], [["7", "8"], "B"]) == ["right", "right"]
    assert grade_leniently([], []) == []
