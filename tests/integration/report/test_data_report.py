"""The data report on folders that the builder has just written: small ones, and of real files."""

import json
import subprocess
import sys

import pytest
import yaml

from data_prep import manifest
from data_prep.build import __main__ as build
from eval.report import data_report

pytestmark = pytest.mark.integration

SYNTHETIC = {"name": "synthetic", "sample": 60, "options": {"max_level": 3}}


def build_data(tmp_path, monkeypatch, recipe, *flags):
    """Run the builder on a recipe; returns its folder."""
    config = tmp_path / "data.yaml"
    config.write_text(yaml.safe_dump({"output_dir": "{run}/data"} | recipe), encoding="utf-8")
    argv = ["build", "--config", str(config), "--run_dir", str(tmp_path / "run"), *flags]
    monkeypatch.setattr(sys, "argv", argv)
    build.main()
    return tmp_path / "run/data"


def report_on(monkeypatch, data, *flags):
    """Run the report; returns the content of data-report.json."""
    monkeypatch.setattr(sys, "argv", ["data_report", "--data", str(data), *flags])
    data_report.main()
    return json.loads((data.parent / "data-report/data-report.json").read_text())


def check(report, data):
    """The report counts what the manifest says and the files hold, and no log is short."""
    built = manifest.read(data)
    assert report["adds_up"] and report["files"].keys() == built["outputs"].keys()
    for name, file in report["files"].items():
        assert file["num_rows"] == file["rows_out"] == len((data / name).read_text().splitlines())
        assert file["adds_up"] and file["dropped"] == built["outputs"][name]["dropped"]
        logged = {r: n for r, n in file["dropped"].items() if r != "not_sampled"}
        assert file["num_logged"] == logged
        samples = {reason: len(rows) for reason, rows in file["samples"].items()}
        assert samples == {r: min(5, n) for r, n in logged.items()}
    assert not any("manifest" in warning for warning in report["warnings"])


def test_generated_problems_give_no_warning(tmp_path, monkeypatch, capsys):
    recipe = {"sft": [SYNTHETIC], "grpo": [SYNTHETIC | {"split": "rl"}],
              "test": [SYNTHETIC | {"split": "test"}]}  # fmt: skip
    data = build_data(tmp_path, monkeypatch, recipe)
    capsys.readouterr()
    report = report_on(monkeypatch, data)
    check(report, data)
    assert report["warnings"] == [] and "warning" not in capsys.readouterr().out
    levels = report["files"]["sft_train.jsonl"]["made_of"]["level"]
    assert {level for level, _ in levels} == {f"synthetic {level}" for level in (1, 2, 3)}


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
    data = build_data(tmp_path, monkeypatch, recipe)
    report = report_on(monkeypatch, data)
    check(report, data)
    file = report["files"]["grpo_train.jsonl"]
    assert list(file["dropped"]) == [
        "bad_row", "sentinel_answer", "in_eval_set", "duplicate_question", "conflicting_gold",
        "not_in_mix",
    ]  # fmt: skip
    assert report["matches"] == [["test", "grpo_train.jsonl", "exact", 2]]
    shown = {pair["benchmark_question"] for pair in report["pairs"]}
    assert shown == {questions[7], questions[8]}
    words = " ".join(report["warnings"])
    assert "cannot be read" in words
    assert "gsm8k was not kept out" in words
    assert set(file["bands"]) == {"easy", "hard"}


def test_cli_says_one_line_and_exits_2(tmp_path):
    command = [sys.executable, "-m", "eval.report.data_report", "--data", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(f"error: data: {tmp_path} has no manifest.json")
    assert done.stderr.count("\n") == 1
