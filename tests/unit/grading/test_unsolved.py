"""Nothing around unsolved work makes it an answer: a condition, a unit, a set, a neutral term.

`tables/decorations.txt` has one decoration a line, `@` for what it decorates. `cases.jsonl` has
single copies of a question's formula.
"""

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from grading.grade import grade_all

HERE = Path(__file__).parent
DECORATIONS = (HERE / "tables/decorations.txt").read_text(encoding="utf-8").splitlines()
CASES = yaml.safe_load((HERE / "unsolved.yaml").read_text(encoding="utf-8"))
SUMS, COPIES = CASES["sums"], CASES["copies"]


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
    assert "right" not in verdicts(SUMS + CASES["quotients"] + COPIES, decoration)
    bare = [("", work, gold) for _, work, gold in SUMS]
    if decoration not in CASES["calls"]:
        assert "right" not in verdicts(bare, decoration)  # nobody has told the question


@pytest.mark.parametrize("repeated", CASES["repeated"])
def test_a_formula_of_the_question_within_an_answer_is_a_copy(repeated):
    assert "right" not in verdicts(CASES["repeatable"], repeated)


@settings(max_examples=50, derandomize=True, database=None, deadline=None)
@given(st.integers(2, 30), st.integers(2, 9), st.integers(1, 99))
def test_copies_of_a_sum_are_wrong_and_its_value_is_right(root, factor, term):
    product = rf"{factor}\sqrt{{{root * root}}}"
    asked, swapped, gold = f"{product}+{term}", f"{term}+{product}", str(root * factor + term)
    question = f"Evaluate ${asked}$."
    rows = [(question, text, gold) for text in (asked, swapped, gold, f"{gold}.0")]
    assert verdicts(rows, "@") == ["wrong", "wrong", "right", "right"]
    assert verdicts([(f"Which is larger, ${asked}$ or ${term}$?", asked, asked)], "@") == ["right"]
