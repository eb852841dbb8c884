"""The rows of a task as the harness gets them."""

import json

from eval.harness import suite
from grading.own_grader import COLUMN

ROW = {"id": "a", "question": "2 + 2?", "answers": ["4"], "answer_form": "box"}
ROW |= {"prompt": [{"role": "user", "content": "2 + 2?"}]}


def test_a_grader_that_only_a_later_row_names_is_kept(tmp_path, monkeypatch):
    file = tmp_path / "test.jsonl"
    rows = [ROW, ROW | {"id": "b", COLUMN: "mine:grade"}, ROW | {"id": "c"}]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr("data_prep.schema.take_grader", lambda *_: None)
    monkeypatch.setattr(suite, "load_tokenizer_once", lambda *_, **__: None)
    monkeypatch.setattr(suite, "render_prompts", lambda rows, _: [str(row) for row in rows])
    settings = {"benchmark": "held_out", "test_file": str(file), "data_root": None}
    found = suite.load_rows("model", prompt="none", **settings)["test"]
    assert found[COLUMN] == [None, "mine:grade", None]


def test_a_column_that_only_a_later_row_of_an_official_file_has_is_kept(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"question": "1?"}\n{"question": "2?", "level": 3}\n')
    found = suite.load_official("owner/set", {"test": ["a.jsonl"]}, str(tmp_path))["test"]
    assert found["level"] == [None, 3] and found["question"] == ["1?", "2?"]
