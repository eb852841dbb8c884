"""Labelled tables: each row is graded as its label says, unless `missed` says why it is not.

A label is `right`, whether the row earns the reward, or a `verdict`. docs/results/grader.md says
where the rows come from; most were drawn by generators that were written from the rules alone.
Nothing around unsolved work makes it an answer: `tables/decorations.txt` has one decoration a line,
`@` for what it decorates; `cases.jsonl` has single copies of a question's formula.
"""

import functools
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from grading.compare import is_same_value
from grading.extract import extract, extract_short, is_well_formed
from grading.grade import VERDICTS, grade, grade_all, grade_short_all
from tests.files import read_rows

TABLES = Path(__file__).parent / "tables"
SHORT = ("answers", "tricks", "honest")  # bare answers and short texts
THOUGHT = "<think>\nLet me work this out.\n</think>\n\n"
ROWS = {
    name: read_rows(TABLES / f"{name}.jsonl")
    for name in ("cases", *SHORT, "completions", "classes", "rules", "labelled", "values")
}


def group_of(row):
    return row.get("rule", row.get("class", ""))


GROUPS = list(dict.fromkeys((name, group_of(row)) for name in ROWS for row in ROWS[name]))


def verdict_on(table, row):
    """The verdict on a row, by the reader that its table is for."""
    text = row.get("completion", row.get("prediction"))
    gold, question = row["gold"], row.get("question", "")
    if table == "values":
        return "right" if is_same_value(text, gold) else "wrong"
    if table in SHORT:
        return grade_short_all([text], [gold], [question])[0].verdict
    if table == "classes":
        is_final = row["class"] == "final"
        return grade(THOUGHT + text, gold, question, final_number=is_final).verdict
    may_lack_thought = None if table in ("cases", "labelled") else False
    prefilled = row.get("think_prefilled", may_lack_thought)
    return grade(text, gold, question, think_prefilled=prefilled).verdict


@pytest.mark.parametrize(("table", "group"), GROUPS)
def test_rows_are_graded_as_labelled(table, group):
    rows = [row for row in ROWS[table] if group_of(row) == group]
    found = [(row, verdict_on(table, row)) for row in rows]
    assert {verdict for _, verdict in found} <= {*VERDICTS}
    differ = [
        (row, verdict)
        for row, verdict in found
        if row.get("verdict", verdict) != verdict
        or row.get("right", verdict == "right") is not (verdict == "right")
    ]
    assert [pair for pair in differ if "missed" not in pair[0]] == []
    assert [row for row, _ in differ] == [row for row in rows if "missed" in row]


def test_misses_are_few_and_nothing_incorrect_is_among_them():
    """Of what was written by hand, four incorrect completions are accepted."""
    drawn = [row for name, table in ROWS.items() if name != "labelled" for row in table]
    assert all(row["right"] for row in drawn if "missed" in row)
    assert sum("missed" in row for row in drawn) <= 0.002 * len(drawn)
    assert sum("missed" in row for row in ROWS["labelled"]) <= 0.008 * len(ROWS["labelled"])


def test_what_was_paid_once_is_not_paid_by_way_of_algebra_or_a_sentence():
    wrong = [row for row in ROWS["values"] if "was_paid" in row]
    texts, golds = [row["prediction"] for row in wrong], [row["gold"] for row in wrong]
    boxed = [rf"<think>a</think>\boxed{{{text}}}" for text in texts]
    graded = grade_all(boxed, golds) + grade_short_all(texts, golds)
    assert [one.prediction for one in graded if one.verdict == "right"] == []


READERS = {
    "box": extract,
    "answer_tags": functools.partial(extract, answer_form="tags"),
    "bare_box": functools.partial(extract, answer_form="bare_box"),
    "hashes": functools.partial(extract, answer_form="hashes"),
    "final_number": functools.partial(extract, final_number=True),
    "short": extract_short,
}


@pytest.mark.parametrize("form", READERS)
def test_what_each_reader_finds(form):
    rows = [row for row in read_rows(TABLES / "readings.jsonl") if row["form"] == form]
    assert rows
    for row in rows:
        found = READERS[form](row["text"])
        assert (found.status, found.prediction) == (row["status"], row["prediction"]), row
        if "well_formed" in row:
            assert is_well_formed(row["text"]) is row["well_formed"], row


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
