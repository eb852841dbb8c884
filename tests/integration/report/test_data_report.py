"""The data report on a folder that the builder has just written."""

import json
import sys

import pytest
import yaml

from data_prep.build import __main__ as build
from eval.report import data_report

pytestmark = pytest.mark.integration


def test_every_kind_of_drop_is_shown(tmp_path, monkeypatch):
    """Rows that cannot be read, have no gold, repeat each other or a test, or miss the mix."""
    questions = [f"What is {n} plus {3 * n} plus 11 plus 12?" for n in range(40)]
    rows = [{"q": q, "a": str(n), "d": n % 5} for n, q in enumerate(questions)]
    rows += [rows[3], rows[4] | {"a": "5000"}, {"q": "Find x.", "a": "N/A", "d": 1}, {"q": "x"}]
    lines = [json.dumps(row) for row in rows] + ['{"q": "cut']
    (tmp_path / "train.jsonl").write_text("\n".join(lines) + "\n")
    test = [{"question": questions[n], "answer": f"#### {n}"} for n in (7, 8)]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in test))
    source = {"name": "generic", "file": str(tmp_path / "train.jsonl"), "prompt_key": "q",
              "answer_key": "a", "level_key": "d",
              "difficulty": {"by": "level", "medium": 2, "hard": 4}}  # fmt: skip
    recipe = {
        "grpo": [source],
        "test": [{"name": "gsm8k", "file": str(tmp_path / "test.jsonl"), "split": "test"}],
        "mix": {"grpo": {"easy": 0.5, "hard": 0.5, "size": 100}},
        "on_bad_row": "skip",
    }
    config = tmp_path / "data.yaml"
    config.write_text(yaml.safe_dump({"output_dir": "{run}/data"} | recipe), encoding="utf-8")
    argv = ["build", "--config", str(config), "--run_dir", str(tmp_path / "run")]
    monkeypatch.setattr(sys, "argv", argv)
    build.main()
    data = tmp_path / "run/data"
    monkeypatch.setattr(sys, "argv", ["data_report", "--data", str(data)])
    data_report.main()
    report = json.loads((tmp_path / "run/data-report/data-report.json").read_text())
    for name, file in report["files"].items():
        assert file["num_rows"] == file["rows_out"] == len((data / name).read_text().splitlines())
        samples = {reason: len(rows) for reason, rows in file["samples"].items()}
        assert samples == {reason: min(5, n) for reason, n in file["dropped"].items()}
    file = report["files"]["grpo_train.jsonl"]
    assert set(file["dropped"]) == {
        "bad_row", "sentinel_answer", "in_eval_set", "duplicate_question", "conflicting_gold",
        "not_in_mix",
    }  # fmt: skip
    assert report["matches"] == [["test", "grpo_train.jsonl", "exact", 2]]
    shown = {pair["benchmark_question"] for pair in report["pairs"]}
    assert shown == {questions[7], questions[8]}
    words = " ".join(report["warnings"])
    assert "cannot be read" in words
    assert "gsm8k was not kept out" in words
    assert set(file["bands"]) == {"easy", "hard"}
