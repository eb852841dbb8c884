"""Every real gold, written as a completion and graded against itself and against its neighbour.

No row needs an exception: the golds that are known to be wrong (480 for 197 in one AIME 2024 file)
are still answers in form.
"""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from grading.boxes import last_boxed
from grading.grade import grade_all
from pipeline.prompts import ANSWER_FORMS, build_completion
from pipeline.rows import read_rows

pytestmark = pytest.mark.integration

GOLDS = yaml.safe_load(Path(__file__).with_name("golds.yaml").read_text(encoding="utf-8"))
GRADED = [name for name, place in GOLDS.items() if "num_rows" in place]
QUESTION_COLUMNS = ("question", "problem", "prompt")


def gold_of(row, name):
    """The gold of a row of the file."""
    place, value = GOLDS[name], row
    for key in place["column"].split("."):
        value = value[int(key) if key.isdigit() else key]
    readers = {"hashes": lambda text: text.split("#### ")[1], "box": last_boxed}
    return readers[place["within"]](value) if "within" in place else value


def golds(folder: Path, name: str) -> Iterator[tuple[str, str, str]]:
    """(place, question, gold) of the rows of a file."""
    for where, row in read_rows(folder / name):
        question = next(str(row[c]) for c in QUESTION_COLUMNS if row.get(c))
        yield where, question, str(gold_of(row, name))


@pytest.mark.parametrize("name", GRADED)
@pytest.mark.parametrize("form", ANSWER_FORMS)
def test_every_gold_is_right_as_its_own_completion(name, form, shared_data):
    rows = list(golds(shared_data, name))
    assert GOLDS[name]["num_rows"] in (None, len(rows))
    completions = [build_completion(question, gold, form) for _, question, gold in rows]
    grades = grade_all(completions, [gold for *_, gold in rows], answer_form=form)
    pairs = zip(rows, grades, strict=True)
    assert [(row, one.verdict) for row, one in pairs if one.verdict != "right"] == []


# Neighbours that are one value in two spellings.
EQUAL = {
    ("5", "x=5"), ("-1", "x = -1"), (r"120^\circ", "120"), (r"\frac{3}{4}", r"\frac34"),
}  # fmt: skip


@pytest.mark.parametrize("name", GRADED)
def test_no_gold_is_right_for_its_neighbour(name, shared_data):
    rows = [gold for *_, gold in golds(shared_data, name)]
    pairs = [(a, b) for a, b in pairwise(rows) if a != b]
    graded = grade_all([build_completion("work", a) for a, _ in pairs], [b for _, b in pairs])
    accepted = {pair for pair, one in zip(pairs, graded, strict=True) if one.verdict == "right"}
    assert accepted <= EQUAL
    verdicts = {one.verdict for one in graded}
    assert "wrong" in verdicts and verdicts <= {"right", "wrong", "unparseable"}
