"""Hostile answers in real batches: each costs its own limit and nothing else."""

import json
from pathlib import Path

import pytest

from data_prep.grading.grade import grade, grade_short_all

pytestmark = pytest.mark.integration
TABLE = Path(__file__).parents[1] / "unit/grader/answers.jsonl"

# Past our grammar and past the guards in front of math-verify: only the clock can stop these.
SLOW = [rf"\sum_{{k=1}}^{{9999}}\sum_{{j=1}}^{{9999}} \frac{{1}}{{k+j+{n}}}" for n in range(6)]


def test_ten_bombs_in_a_batch_cost_their_own_limits_only():
    with TABLE.open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file][:990]
    texts, golds = [row["prediction"] for row in rows], [row["gold"] for row in rows]
    alone = [one.verdict for one in grade_short_all(texts, golds)]
    bombs = [*BOMBS[:4], *SLOW]
    for at, bomb in enumerate(bombs):
        texts.insert(97 * at, bomb)
        golds.insert(97 * at, r"\sqrt{2}")
    mixed = [one.verdict for one in grade_short_all(texts, golds)]
    places = [97 * at for at in range(len(bombs))]
    assert [v for at, v in enumerate(mixed) if at not in places] == alone
    assert {mixed[at] for at in places[:4]} <= {"unparseable", "wrong"}
    assert [mixed[at] for at in places[4:]] == ["timeout"] * 6
    assert len(mixed) == 1000


BOMBS = [
    "9^{9^{9}}", "9^(9^9)", "((9^{999})^{999})^{999}", "(3!)!", "3!!!", "99999!",
    r"\binom{99999999}{5000000}", "(x+y+z+w)^{99}", r"9^{9\cdot9999}", "9^{9!}", "9" * 5000,
    "{" * 200, "(" * 250, r"\sum_{k=1}^{999999999} k", "import os", "1e999999999",
    r"\prod_{k=1}^{999999} k", r"\lim_{x\to 0} x^{x^{x^{x}}}",
]  # fmt: skip


@pytest.mark.parametrize("bomb", BOMBS)
def test_no_bomb_is_right_or_fatal(bomb):
    assert grade(rf"<think>a</think>\boxed{{{bomb}}}", r"\sqrt{2}").verdict not in ("right", None)
