"""The data build on real GSM8K and NuminaMath rows, where they are at hand."""

import sys
from collections import Counter
from pathlib import Path

import pytest

from data_prep import build, manifest
from data_prep.reading import read_rows
from data_prep.sources import Drop, numinamath

pytestmark = pytest.mark.integration


def test_grpo7b_recipe_on_real_rows(tmp_path, monkeypatch, shared_data):
    config = Path(__file__).parents[2] / "configs/grpo7b/data.yaml"
    flags = ["--config", str(config), "--data_root", str(shared_data)]
    monkeypatch.setattr(sys, "argv", ["build", *flags, "--run_dir", str(tmp_path)])
    build.main()
    outputs = manifest.read(tmp_path / "data")["outputs"]
    assert outputs["grpo_train.jsonl"] == {"rows_in": 7473, "rows_out": 7473, "dropped": {}}
    assert outputs["test.jsonl"] == {"rows_in": 1319, "rows_out": 1319, "dropped": {}}
    sources = [row["source"] for _, row in read_rows(tmp_path / "data/sft_train.jsonl")]
    assert sources.count("gsm8k") == 7473 and sources.count("numinamath") > 1200


def test_real_numinamath_rows_are_kept_or_named(shared_data):
    path = shared_data / "numinamath_cot/numina_cot_2k.jsonl"
    built = [numinamath.build_problem(row, w, w) for w, row in read_rows(path)]
    reasons = Counter(b.reason for b in built if isinstance(b, Drop))
    assert set(reasons) <= {
        "image", "proof", "no_boxed_answer", "unbalanced_box", "empty_box", "multiple_choice",
        "text_answer", "gold_not_parseable",
    }  # fmt: skip
    assert len(built) - reasons.total() > 1200
