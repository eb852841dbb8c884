"""The data build of the 7B recipe on real GSM8K and NuminaMath rows, where they are at hand."""

import sys
from pathlib import Path

import pytest

from data_prep import manifest
from data_prep.build import __main__ as build
from data_prep.reading.rows import read_rows

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def test_grpo7b_recipe_on_real_rows(tmp_path, monkeypatch, shared_data):
    config = Path(__file__).parents[3] / "configs/grpo7b/data.yaml"
    flags = ["--config", str(config), "--data_root", str(shared_data)]
    monkeypatch.setattr(sys, "argv", ["build", *flags, "--run_dir", str(tmp_path)])
    build.main()
    outputs = manifest.read(tmp_path / "data")["outputs"]
    counts = {name: (each["rows_in"], each["rows_out"]) for name, each in outputs.items()}
    assert counts["grpo_train.jsonl"] == (7473, 7473)  # GSM8K: no row is lost, none is in an
    assert counts["test.jsonl"] == (1319, 1319)  # evaluation set
    assert counts["sft_train.jsonl"][0] == 7473 + 2000
    for each in outputs.values():
        assert each["rows_in"] == each["rows_out"] + sum(each["dropped"].values())
    sources = [row["source"] for _, row in read_rows(tmp_path / "data/sft_train.jsonl")]
    assert sources.count("gsm8k") == 7473 and sources.count("numinamath") > 1200
