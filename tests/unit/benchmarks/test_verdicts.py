"""The comparison of two graders: the same rows on every run, no text kept, every change listed."""

import os
import re
import subprocess
import sys
from collections import Counter

import pytest

from benchmarks import verdict_rows, verdicts
from benchmarks.verdict_rows import Problem, Row, make_rows, read_sources
from grading.grade import Grade
from pipeline.errors import UserError
from tests.files import write_rows

SOURCES = {
    "gsm8k-train": [Problem("A box has 12 eggs. Ann has 6. How many eggs?", "72", "<<6*12=72>>72")],
    "math-test": [
        Problem(r"Simplify $\frac{x^2-9}{x-3}$.", "x+3", r"It is $\boxed{x+3}$."),
        Problem(r"Evaluate $\frac12+\frac14$.", r"\frac{3}{4}", r"\boxed{\frac{3}{4}}"),
    ],
    "arc": [Problem("What is hot?\n(A) ice\n(B) fire\n(C) snow", "B")],
}
PRINT_HASHES = """
from benchmarks.verdicts import hash_of
from benchmarks.verdict_rows import make_rows
from tests.unit.benchmarks.test_verdicts import SOURCES
for row in make_rows(SOURCES):
    print(row.kind, hash_of(row))
"""
GOOD = Row("sums", r"<think>a</think> \boxed{72}", "72", "How many eggs?", True)
BAD = Row("sums", r"<think>a</think> \boxed{6\cdot 12}", "72", "How many eggs are it?", False)
SHORT = Row("short", "72", "72", settings={"short": True})


@pytest.fixture(scope="module")
def rows():
    return [*make_rows(SOURCES)]


def test_the_rows_are_the_same_on_every_run(rows):
    known = [f"{row.kind} {verdicts.hash_of(row)}" for row in rows]
    done = subprocess.run(
        [sys.executable, "-c", PRINT_HASHES],
        env=os.environ | {"PYTHONHASHSEED": "11"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == known


def test_one_source_more_leaves_the_rows_of_the_tables(rows):
    kinds = {"labelled", "rules", "readings", "drawn sums", "bombs"}
    fewer = [row for row in make_rows({}) if row.kind in kinds]
    assert fewer == [row for row in rows if row.kind in kinds]


def test_every_kind_has_rows_and_labels_of_what_it_says(rows):
    labels = {}
    for row in rows:
        labels.setdefault(row.kind, Counter())[row.earns] += 1
    assert {*labels} >= {
        *("labelled", "rules", "solutions math-test", "golds arc", "changed golds", "same print"),
        *("correct sentences", "incorrect sentences", "fixed answers", "left to do", "options"),
        *("copies where asked to work", "copies", "strategies", "compositions", "bombs"),
    }
    assert {*labels["correct sentences"], *labels["golds arc"]} == {True}
    assert {*labels["left to do"], *labels["copies"], *labels["bombs"]} == {False}
    assert {*labels["options"]} == {True, False}
    assert all(row.gold not in (row.question, "") for row in rows if row.kind.startswith("golds"))


def test_a_missing_file_is_a_source_that_is_missing(tmp_path):
    (tmp_path / "gsm8k").mkdir()
    row = {"question": "2 and 3?", "answer": "2+3=<<2+3=5>>5\n#### 5"}
    write_rows(tmp_path / "gsm8k/test.jsonl", [row])
    assert read_sources(tmp_path) == {"gsm8k-test": [Problem("2 and 3?", "5", row["answer"])]}


def run(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["verdicts", *map(str, words)])
    monkeypatch.setattr(verdicts, "make_rows", lambda _: iter([GOOD, BAD, SHORT, GOOD]))
    verdicts.main()
    return capsys.readouterr().out


def test_a_record_has_no_text_and_a_comparison_shows_what_changed(monkeypatch, capsys, tmp_path):
    file = tmp_path / "before.tsv"
    table = run(monkeypatch, capsys, "record", file, "--data_root", tmp_path)
    assert re.search(r"\| sums +\| 2 +\| 1 +\| 0 +\| 0 ", table) and "skipped aime" in table
    lines = file.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 3 and all(
        re.fullmatch(r"(sums|short)\t[0-9a-f]{16}\t(right|unevaluated)\t", line) for line in lines
    )
    assert "no verdict has changed" in run(monkeypatch, capsys, "compare", file)

    def other(texts, *_, **__):
        """Accepts what is left to do, and raises where all is done."""
        if "cdot" not in texts[0]:
            raise KeyError(texts[0])
        return [Grade("right", "6*12")]

    monkeypatch.setattr(verdicts, "grade_all", other)
    found = run(monkeypatch, capsys, "compare", file)
    groups = re.findall(r"## (.*): 1 rows", found)
    assert groups == ["unevaluated -> right", "right -> raised: KeyError"]
    accepted = found[found.index("## unevaluated") : found.index("## right")]
    for text in ("sums (should not earn)", "72", "prediction 6*12", "How many eggs are it?"):
        assert text in accepted
    some = run(monkeypatch, capsys, "compare", file, "--kinds", "short")
    assert "no verdict has changed" in some and "not made now: 0" in some


def test_the_command_grades_the_rows_of_a_kind(tmp_path):
    file = tmp_path / "before.tsv"
    command = [sys.executable, "-m", "benchmarks", "verdicts", "record", str(file)]
    command += ["--kinds", "readings", "drawn sums", "--data_root", str(tmp_path)]
    env = {key: value for key, value in os.environ.items() if key not in ("ARGS", "MAKEFLAGS")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    kinds = Counter(line.split("\t")[0] for line in file.read_text("utf-8").splitlines())
    assert {*kinds} == {"readings", "drawn sums"} and min(kinds.values()) > 100
    assert re.search(rf"\| drawn sums +\| {kinds['drawn sums']} ", done.stdout)


def test_a_slow_row_is_marked_and_an_endless_one_ended(monkeypatch):
    def slow(*_, **__):
        while True:
            pass

    monkeypatch.setattr(verdicts, "grade_all", slow)
    monkeypatch.setattr(verdicts, "LONGEST", 0.05)
    monkeypatch.setattr(verdicts, "SLOW", 0.01)
    ((_, _, found),) = verdicts.judge_all([(None, GOOD)])
    assert (found.verdict, found.marks) == ("raised: TooSlow", "slow")


@pytest.mark.parametrize("text", [None, "labelled\tright\n"])
def test_a_file_that_is_no_record_is_one_line(text, monkeypatch, capsys, tmp_path):
    file = tmp_path / "before.tsv"
    if text:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=re.escape(str(file))):
        run(monkeypatch, capsys, "compare", file)


def test_pieces_are_read_as_rules():
    for name in ("same_print", "other_value", "same_work"):
        for rule, new in verdict_rows.rules(name):
            rule.sub(new, r"-\frac{1}{2}+x\sqrt{3}=(1, 12345)")
