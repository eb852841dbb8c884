"""Classes of mistake, some 80 rows of each: nothing incorrect is rewarded, little correct is lost.

The rows were drawn by rules, and a label follows from how its row was drawn.
docs/results/grader.md names the classes.
"""

import json
from pathlib import Path

import pytest

from grading.grade import grade_all

TABLE = Path(__file__).parent / "tables/classes.jsonl"
ROWS = [json.loads(line) for line in TABLE.read_text(encoding="utf-8").splitlines()]
CLASSES = list(dict.fromkeys(row["class"] for row in ROWS))


@pytest.mark.parametrize("name", CLASSES)
def test_nothing_incorrect_is_rewarded_and_little_correct_is_lost(name):
    rows = [row for row in ROWS if row["class"] == name]
    assert len(rows) >= 60 and {row["right"] for row in rows} == {True, False}
    texts = [f"<think>\nLet me work this out.\n</think>\n\n{row['prediction']}" for row in rows]
    golds, questions = [row["gold"] for row in rows], [row.get("question", "") for row in rows]
    grades = grade_all(texts, golds, questions, final_number=name == "final")
    found = [(row, one.verdict == "right") for row, one in zip(rows, grades, strict=True)]
    rewarded = [row for row, is_right in found if is_right and not row["right"]]
    assert rewarded == []
    lost = [row for row, is_right in found if row["right"] and not is_right]
    assert len(lost) <= 0.03 * sum(row["right"] for row in rows), lost[:9]
