"""Nothing around unsolved work makes it an answer: a condition, a unit, a set, a neutral term.

`tables/decorations.txt` has one decoration a line, `@` for what it decorates.
"""

import logging
from pathlib import Path

import pytest

from grading.grade import VERDICTS, grade, grade_all

TABLE = Path(__file__).parent / "tables/decorations.txt"
DECORATIONS = TABLE.read_text(encoding="utf-8").splitlines()
# (question, unsolved work, gold). Of the first rows no formula is in the question.
SUMS = [
    ("Natalia sold clips to 48 friends in April, then half as many. How many?", "48+24", "72"),
    ("She has 6 boxes of 12 eggs. How many eggs?", r"6\cdot 12", "72"),
    ("A box of 90 is shared by two. How many for each?", r"90\div 2", "45"),
    ("What part is left?", r"1-\frac{1}{4}", r"\frac{3}{4}"),
    ("How much is it in all?", "3(2.50+1.25)-1", "10.25"),
    ("He does it 7 times a week. How often is that?", r"1\cdot 7", "7"),
]
# Functions are values where nobody has told the question.
CALLS = (
    r"|@|", r"\lfloor @ \rfloor", r"\max(@)", r"\gcd(@,0)", r"e^{\ln(@)}",
    r"\operatorname{lcm}(@,1)",
)  # fmt: skip
QUOTIENTS = [("How many bags of 110 cups are 550 cups?", r"\frac{550}{110}", "5")]
COPIES = [
    (r"Evaluate $\sqrt{16}+3$.", r"\sqrt{16}+3", "7"),
    (r"Simplify $\sqrt{75}$.", r"\sqrt{75}", r"5\sqrt{3}"),
    (r"Simplify $3x+5x$.", "3x+5x", "8x"),
    (r"Expand $(x+1)(x+2)$.", "(x+1)(x+2)", "x^2+3x+2"),
    (r"Simplify $\frac{a^2-9}{a-3}$.", r"\frac{a^2-9}{a-3}", "a+3"),
    (
        r"Compute $\cos 60^\circ \cdot \sqrt{2}$.",
        r"\cos 60^\circ \cdot \sqrt{2}",
        r"\frac{\sqrt2}{2}",
    ),
    (r"Calculate $(2+3i)(1-i)$.", "(2+3i)(1-i)", "5+i"),
]


def verdicts(rows, decoration):
    texts = [rf"<think>so</think> \boxed{{{decoration.replace('@', work)}}}" for _, work, _ in rows]
    golds, questions = [gold for *_, gold in rows], [question for question, *_ in rows]
    return [one.verdict for one in grade_all(texts, golds, questions)]


def test_the_solved_values_are_accepted():
    rows = [(question, gold, gold) for question, _, gold in SUMS + COPIES]
    assert set(verdicts(rows, "@")) == {"right"}
    assert set(verdicts(rows, r"@\text{ for all }x")) == {"right"}


@pytest.mark.parametrize("decoration", DECORATIONS)
def test_no_decoration_makes_unsolved_work_an_answer(decoration):
    assert "right" not in verdicts(SUMS, decoration)
    assert "right" not in verdicts(QUOTIENTS, decoration)
    assert "right" not in verdicts(COPIES, decoration)
    bare = [("", work, gold) for _, work, gold in SUMS]
    if decoration not in CALLS:
        assert "right" not in verdicts(bare, decoration)  # nobody has told the question


@pytest.mark.parametrize(
    "text",
    [
        r"f(x)=cx\text{ for all }\lambda\in\mathbb{R}",
        r"\mu\pi, \mu \in \mathbb{Z}",
        r"AB\text{ with }AB\in\mathbb{Z}",
        r"x_1, x_1 \in \mathbb{N}",
        r"\{(a,b) : (a,b) \in \mathbb{Z}\}",
    ],
)
def test_a_condition_on_any_name_is_read(text, caplog):
    with caplog.at_level(logging.WARNING):
        for gold in (text, "cx", "5"):
            assert grade(rf"<think>so</think> \boxed{{{text}}}", gold).verdict in VERDICTS
    assert caplog.records == []


@pytest.mark.parametrize("joint", ["+", "/", "^", "=", ",", "!", "-", r"\cup ", r"\pm ", r"\sqrt "])
@pytest.mark.parametrize("length", [90, 900])
def test_chains_of_any_length_raise_nowhere(joint, length, caplog):
    text = joint.join(["(AB)"] * length)
    with caplog.at_level(logging.WARNING):
        for prediction, golds in ((text, "5"), ("5", [text, "5"]), (r"\frac{5}{5}", [text, "1"])):
            found = grade(rf"<think>so</think> \boxed{{{prediction}}}", golds, f"Compute ${text}$.")
            assert found.verdict in VERDICTS
    assert caplog.records == []


def test_numbers_of_thousands_of_digits_raise_nowhere(caplog):
    question = "Of $1$ to $2007^{2007}$ one is drawn. The probability is $a/b$. Find $a + b$."
    with caplog.at_level(logging.WARNING):
        text = r"<think>so</think> \boxed{1+1108}"
        assert grade(text, "1109", question).verdict == "unevaluated"
    assert caplog.records == []


def test_a_parameter_of_any_name_is_the_same():
    text = r"<think>so</think> \boxed{\mu\pi, \mu \in \mathbb{Z}}"
    assert grade(text, r"k\pi, k \in \mathbb{Z}").verdict == "right"
    assert grade(text, r"2k\pi, k \in \mathbb{Z}").verdict != "right"


def test_a_fault_of_the_grader_is_a_verdict_and_a_warning(monkeypatch, caplog):
    def fail(*_):
        raise ValueError("a fault")

    for name in ("match", "golds_as_asked", "is_refused"):
        with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
            patch.setitem(grade_all.__globals__, name, fail)
            assert grade(r"<think>so</think> \boxed{2x+x}", "3x").verdict == "unparseable"
        assert "a fault" in caplog.text
        caplog.clear()
