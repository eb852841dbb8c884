"""The data report on a folder that the builder has just written."""

import sys

import pytest

from eval.report import data_report
from tests.files import write_rows
from tests.unit.builder.helpers import run

pytestmark = pytest.mark.integration


def test_what_the_builder_leaves_is_printed(tmp_path, monkeypatch, capsys):
    """Rows that cannot be read, repeat each other or a test, or miss the mix."""
    questions = [f"What is {n} plus {3 * n} plus 11\x1b plus 12?" for n in range(40)]
    rows = [{"q": q, "a": str(n), "d": n % 5} for n, q in enumerate(questions)]
    rows += [rows[3], {"q": "x"}]
    files = {"train": rows, "test": [{"question": questions[7], "answer": "#### 7"}]}
    monkeypatch.chdir(tmp_path)  # the lines name the files
    for name, found in files.items():
        write_rows(tmp_path / f"{name}.jsonl", found)
    source = {"name": "generic", "file": "train.jsonl", "prompt_key": "q",
              "answer_key": "a", "level_key": "d",
              "difficulty": {"by": "level", "medium": 2, "hard": 4}}  # fmt: skip
    test = {"name": "gsm8k", "file": "test.jsonl", "split": "test"}
    mix = {"grpo": {"easy": 0.5, "hard": 0.5, "size": 100}}
    recipe = {"grpo": [source], "test": [test], "mix": mix, "on_bad_row": "skip"}
    folder, _ = run(tmp_path, recipe | {"data_root": None})
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["data_report", "--data", str(folder)])
    for room, num_shown in ((60, 3 + 1 + 1 + 1), (12, 1 + 1 + 1 + 1), (6, 0)):
        monkeypatch.setattr(data_report, "MAX_LINES", room)
        data_report.main()
        text = capsys.readouterr().out
        lines = text.splitlines()
        shown = [line for line in lines if line.startswith("    ")]
        assert len(lines) <= room and len(shown) == num_shown
        assert all(len(line) <= 120 for line in shown) and "\x1b" not in text
        assert "grpo_train.jsonl: 16 of 42 rows (16 of generic)" in lines
        assert "grpo_train.jsonl: not_in_mix 23" in lines and lines[3].startswith("not compared")
    assert lines[-1] == "3 more reasons"
