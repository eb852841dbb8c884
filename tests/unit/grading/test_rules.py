"""Rules of the grader, some 300 rows of each: nothing incorrect accepted, little correct lost.

Generators that were written from the rules alone drew the rows. A label follows from how its row
was drawn. docs/results/grader.md names the rules.
"""

import json
from pathlib import Path

import pytest

from grading.grade import grade_all

TABLES = Path(__file__).parent / "tables"


def read(name):
    return [json.loads(line) for line in (TABLES / name).open(encoding="utf-8")]


ROWS = read("rules.jsonl")
RULES = list(dict.fromkeys(row["rule"] for row in ROWS))


def are_right(rows, flag):
    grades = grade_all(
        [row["completion"] for row in rows],
        [row["gold"] for row in rows],
        [row.get("question", "") for row in rows],
        think_prefilled=flag,
    )
    return [one.verdict == "right" for one in grades]


@pytest.mark.parametrize("rule", RULES)
def test_nothing_incorrect_is_accepted_and_98_percent_of_the_correct_are(rule):
    rows = [row for row in ROWS if row["rule"] == rule]
    num_right = sum(row["right"] for row in rows)
    assert len(rows) >= 300 and 0.25 < num_right / len(rows) < 0.75
    found = []
    for flag in (False, True, None):
        some = [row for row in rows if row.get("think_prefilled", False) is flag]
        found += zip(some, are_right(some, flag), strict=True)
    assert [row for row, is_right in found if is_right and not row["right"]] == []
    lost = [row for row, is_right in found if row["right"] and not is_right]
    assert len(lost) <= 0.02 * num_right, lost[:9]


def test_completions_that_were_labelled_twice_alike():
    """Written without having read the grader; the rows that are marked are known to be missed."""
    rows = read("labelled.jsonl")
    assert len(rows) > 1000
    wrong = [
        row["id"]
        for row, is_right in zip(rows, are_right(rows, None), strict=True)
        if is_right is not row["right"]
    ]
    assert wrong == [row["id"] for row in rows if "missed" in row]
