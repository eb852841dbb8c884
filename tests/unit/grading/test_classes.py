"""The benchmark's classes of mistake, a few rows of each: nothing wrong is paid, little is lost."""

import pytest

from benchmarks.grader_classes import make_rows
from benchmarks.grader_rows import CLASSES
from grading.grade import grade_all

NUM_ROWS = 80


@pytest.mark.parametrize("name", CLASSES)
def test_nothing_wrong_is_paid_and_nothing_right_lost(name):
    rows = make_rows(name, 3, NUM_ROWS)
    texts, golds = [row.completion for row in rows], [row.gold for row in rows]
    questions = [row.question for row in rows]
    grades = grade_all(texts, golds, questions, final_number=name == "final")
    found = [(row, one.verdict == "right") for row, one in zip(rows, grades, strict=True)]
    assert [(row.prediction, row.gold) for row, paid in found if paid and not row.right] == []
    lost = [(row.prediction, row.gold) for row, paid in found if row.right and not paid]
    assert len(lost) <= 0.03 * sum(row.right for row in rows), lost[:9]
