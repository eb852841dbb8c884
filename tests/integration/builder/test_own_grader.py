"""A build with a grader of the user's own: golds as they are, its file an input, clean failure."""

import datetime
import sys
from pathlib import Path

import pytest

from data_prep.builder import rows as build_rows
from data_prep.sources.base import get_golds
from grading import own_grader
from pipeline import manifest
from pipeline.errors import UserError
from tests.files import read_rows, write_rows
from tests.own_graders import SOURCES
from tests.unit.builder.helpers import run

pytestmark = pytest.mark.integration
GRADER = "json_grader:is_correct"
GENERIC = {"name": "generic", "prompt_key": "question", "answer_key": "answer"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder, with the module as a new process finds it."""
    (tmp_path / "json_grader.py").write_text(SOURCES["json"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(own_grader, "_taken", {})
    monkeypatch.delitem(sys.modules, "json_grader", raising=False)
    monkeypatch.setenv("ALLOW_CODE", "1")
    monkeypatch.delenv("FORCE", raising=False)
    own_grader._workers.cache_clear()
    yield tmp_path
    own_grader._workers.cache_clear()


def build(folder, answers, *flags, **keys):
    """Build one set of GRPO problems with these golds."""
    texts = ("red", "blue", "green", "tall", "far", "old", "new", "warm", "wet")
    rows = [
        {"question": f"Write a {word} record.", "answer": one}
        for word, one in zip(texts, answers, strict=False)
    ]
    write_rows(folder / "own.jsonl", rows)
    recipe = {"grpo": [GENERIC | {"file": "own.jsonl"}], "answer_form": "tags"}
    return run(folder, recipe | {"grader": GRADER} | keys, *flags)


def test_golds_are_taken_as_they_are_and_refused_by_the_grader_alone(folder):
    golds = [
        '{"a": 1}', '{"text": "x\\ty"}', ' {"a":\t"#### 1"}', '"\\\\boxed{5}"', '"A"', '"N/A"',
        {"kept": [1.0, None]}, ['{"one": 1}', "none", '{"other": 2}'], "no JSON",
    ]  # fmt: skip
    out, made = build(folder, golds)
    rows = {row["question"]: row for row in read_rows(out / "grpo_train.jsonl")}
    kept = [rows.get(f"Write a {word} record.") for word in ("red", "blue", "green", "tall")]
    assert [row["answers"] for row in kept] == [[gold] for gold in golds[:4]]
    assert rows["Write a new record."]["answers"] == ['{"kept": [1.0, null]}']
    assert rows["Write a warm record."]["answers"] == ['{"one": 1}', '{"other": 2}']
    assert len(rows) == 8 and {row["own_grader"] for row in rows.values()} == {GRADER}
    assert made["dropped"] == {"gold_refused": 1}
    assert made["inputs"]["json_grader.py"] == manifest.sha256("json_grader.py")


def test_the_grader_says_which_golds_are_one(folder):
    """Two copies of a question: equal golds are duplicates, others contradict each other."""
    rows = [
        {"question": "Write the record.", "answer": '{"a": 1, "b": 2}'},
        {"question": "Write the record.", "answer": '{"b": 2, "a": 1}'},
        {"question": "Write the list.", "answer": "[1, 2]"},
        {"question": "Write the list.", "answer": "[2, 1]"},
    ]
    write_rows(folder / "own.jsonl", rows)
    recipe = {"grpo": [GENERIC | {"file": "own.jsonl"}], "answer_form": "tags", "grader": GRADER}
    _, made = run(folder, recipe)
    assert made["dropped"] == {"conflicting_gold": 2, "duplicate_question": 1}


def test_worker_processes_ask_it_too(folder, monkeypatch):
    monkeypatch.setattr(build_rows, "CHUNK", 2)
    golds = ['{"a": 1}', "no", '{"b": 1}', '{"c": 1}', "no"]
    _, made = build(folder, golds, num_workers=2)
    assert (made["rows_out"], made["dropped"]) == (3, {"gold_refused": 2})


def test_a_yaml_may_name_it_only_where_the_user_allows_it(folder, monkeypatch):
    monkeypatch.delenv("ALLOW_CODE")
    Path("json_grader.py").write_text("raise SystemExit('was run')")
    with pytest.raises(UserError, match=r"data\.yaml: grader: .*ALLOW_CODE"):
        build(folder, ['{"a": 1}'])
    Path("json_grader.py").write_text(SOURCES["json"])
    _, made = build(folder, ['{"a": 1}'], "--grader", "json_grader.is_correct", grader=None)
    assert made["config"]["grader"] == "json_grader.is_correct"


def test_a_changed_file_makes_the_data_stale(folder, capsys):
    for source, is_new in (("", True), ("", False), ("# changed\n", True)):
        Path("json_grader.py").write_text(SOURCES["json"] + source)
        _, made = build(folder, ['{"a": 1}'])
        assert ("up to date" not in capsys.readouterr().out) is is_new
        assert made["inputs"]["json_grader.py"] == manifest.sha256("json_grader.py")


@pytest.mark.parametrize("number", [1, 2])
def test_a_fault_leaves_nothing_half_written(folder, monkeypatch, number):
    monkeypatch.setattr(build_rows, "CHUNK", 2)
    source = "def is_correct(text, answers):\n    return None if 'bad' in text else True\n"
    Path("json_grader.py").write_text(source)
    with pytest.raises(UserError, match=r"^grader: json_grader:is_correct \(.*json_grader\.py, "):
        build(folder, ["1", "2", "3", "4", "bad"], num_workers=number)
    assert not list((folder / "run/data").glob("*.jsonl*"))
    assert not (folder / "run/data/manifest.json").exists()


@pytest.mark.parametrize("gold", [datetime.date(2020, 1, 1), float("inf"), [1, b"x"]])
def test_a_gold_that_json_cannot_hold_is_one_line(gold):
    with pytest.raises(UserError, match=r"own\.parquet:3: answer: .* is no JSON"):
        get_golds({"answer": gold}, ("answer",), "own.parquet:3", as_written=True)
