"""The data report on a folder that the builder has just written."""

import json
import sys

import pytest
import yaml

from data_prep.builder import __main__ as build
from eval.report import data_report
from tests.files import write_rows

pytestmark = pytest.mark.integration


def test_what_the_builder_leaves_is_shown(tmp_path, monkeypatch):
    """Rows that cannot be read, repeat each other or a test, or miss the mix."""
    questions = [f"What is {n} plus {3 * n} plus 11 plus 12?" for n in range(40)]
    rows = [{"q": q, "a": str(n), "d": n % 5} for n, q in enumerate(questions)]
    rows += [rows[3], {"q": "x"}]
    files = {"train": rows, "test": [{"question": questions[7], "answer": "#### 7"}]}
    for name, found in files.items():
        write_rows(tmp_path / f"{name}.jsonl", found)
    source = {"name": "generic", "file": str(tmp_path / "train.jsonl"), "prompt_key": "q",
              "answer_key": "a", "level_key": "d",
              "difficulty": {"by": "level", "medium": 2, "hard": 4}}  # fmt: skip
    recipe = {
        "output_dir": "{run}/data",
        "grpo": [source],
        "test": [{"name": "gsm8k", "file": str(tmp_path / "test.jsonl"), "split": "test"}],
        "mix": {"grpo": {"easy": 0.5, "hard": 0.5, "size": 100}},
        "on_bad_row": "skip",
    }
    (tmp_path / "data.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    argv = ["build", "--config", f"{tmp_path}/data.yaml", "--run_dir", f"{tmp_path}/run"]
    monkeypatch.setattr(sys, "argv", argv)
    build.main()
    monkeypatch.setattr(sys, "argv", ["data_report", "--data", f"{tmp_path}/run/data"])
    data_report.main()
    report = json.loads((tmp_path / "run/data-report/data-report.json").read_text())
    file = report["files"]["grpo_train.jsonl"]
    assert set(file["dropped"]) == {"bad_row", "in_eval_set", "duplicate_question", "not_in_mix"}
    samples = {reason: len(rows) for reason, rows in file["samples"].items()}
    assert samples == {reason: min(5, n) for reason, n in file["dropped"].items()}
    assert file["num_rows"] == file["rows_out"] and set(file["bands"]) == {"easy", "hard"}
    assert report["matches"] == [["test", "grpo_train.jsonl", "exact", 1]]
    assert report["pairs"][0]["benchmark_question"] == questions[7]
    words = " ".join(report["warnings"])
    assert "cannot be read" in words and "`decontaminate`): gsm8k, " in words
