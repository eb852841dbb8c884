"""Nothing around unsolved work makes it an answer: a condition, a unit, a set, a neutral term.

`tables/decorations.txt` has one decoration a line, `@` for what it decorates. `cases.jsonl` has
single copies of a question's formula.
"""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grading.grade import grade, grade_all

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
COSINE = r"\cos 60^\circ \cdot \sqrt{2}"
COPIES = [
    (r"Evaluate $\sqrt{16}+3$.", r"\sqrt{16}+3", "7"),
    (r"Simplify $\sqrt{75}$.", r"\sqrt{75}", r"5\sqrt{3}"),
    (r"Simplify $3x+5x$.", "3x+5x", "8x"),
    (r"Expand $(x+1)(x+2)$.", "(x+1)(x+2)", "x^2+3x+2"),
    (r"Simplify $\frac{a^2-9}{a-3}$.", r"\frac{a^2-9}{a-3}", "a+3"),
    (f"Compute ${COSINE}$.", COSINE, r"\frac{\sqrt2}{2}"),
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
    assert "right" not in verdicts(SUMS + QUOTIENTS + COPIES, decoration)
    bare = [("", work, gold) for _, work, gold in SUMS]
    if decoration not in CALLS:
        assert "right" not in verdicts(bare, decoration)  # nobody has told the question


@pytest.mark.parametrize(
    "repeated",
    [
        "2(@)-(@)", r"\frac{@}{2}+\frac{@}{2}", r"\frac{(@)^2}{@}", r"\frac{1}{\frac{1}{@}}",
        r"100(@)\%", r"\sqrt{@}\sqrt{@}", "-i^2(@)", r"\frac{(@)^3}{(@)^2}", "((@)^{-1})^{-1}",
    ],
)  # fmt: skip
def test_a_formula_of_the_question_within_an_answer_is_a_copy(repeated):
    rows = [row for row in COPIES if row[1] not in (r"\sqrt{16}+3", "3x+5x", COSINE)]
    assert "right" not in verdicts(rows, repeated)


@settings(max_examples=50, derandomize=True, database=None, deadline=None)
@given(st.integers(2, 30), st.integers(2, 9), st.integers(1, 99))
def test_copies_of_a_sum_are_wrong_and_its_value_is_right(root, factor, term):
    product = rf"{factor}\sqrt{{{root * root}}}"
    asked, swapped, gold = f"{product}+{term}", f"{term}+{product}", str(root * factor + term)
    question = f"Evaluate ${asked}$."
    rows = [(question, text, gold) for text in (asked, swapped, gold, f"{gold}.0")]
    assert verdicts(rows, "@") == ["wrong", "wrong", "right", "right"]
    assert verdicts([(f"Which is larger, ${asked}$ or ${term}$?", asked, asked)], "@") == ["right"]


def test_a_parameter_of_any_name_is_the_same():
    text = r"<think>so</think> \boxed{\mu\pi, \mu \in \mathbb{Z}}"
    assert grade(text, r"k\pi, k \in \mathbb{Z}").verdict == "right"
    assert grade(text, r"2k\pi, k \in \mathbb{Z}").verdict != "right"
