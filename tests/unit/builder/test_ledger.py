"""The ledger of benchmark copies: hashes and ids, and no text."""

import hashlib
import json
import sys

import pytest

from data_prep.builder import ledger
from data_prep.decontamination.text import normalise_question
from pipeline import manifest
from pipeline.errors import UserError
from tests.files import read_rows, write_rows
from tests.unit.builder.helpers import run

GOLD = "A train travels 60 miles in 2 hours and then stops for a break of 15 minutes. How fast?"
GENERIC = {"name": "generic", "file": "a.jsonl", "prompt_key": "q", "answer_key": "a"}


def make(monkeypatch, data):
    monkeypatch.setattr(sys, "argv", ["ledger", "--data", str(data)])
    ledger.main()
    return read_rows(data.parent / "contamination-ledger/ledger.jsonl")


def test_the_ledger_has_each_copy_and_no_text(tmp_path, monkeypatch, capsys):
    (tmp_path / "gsm8k").mkdir()
    write_rows(tmp_path / "gsm8k/test.jsonl", [{"question": GOLD, "answer": "60/2\n#### 30"}])
    copy = "Solve this. " + GOLD.upper()
    rows = [copy, GOLD.replace("60", "90"), "How many legs have 12 cows and 3 hens?"]
    write_rows(tmp_path / "a.jsonl", [{"q": row, "a": "30"} for row in rows])
    write_rows(tmp_path / "b.jsonl", [{"q": rows[2], "a": "30"}])
    own = GENERIC | {"file": "b.jsonl"}
    recipe = {"grpo": [GENERIC], "test": [own], "decontaminate": ["gsm8k"]}
    folder, made = run(tmp_path, recipe)
    assert made["outputs"]["grpo_train.jsonl"]["dropped"] == {"in_eval_set": 2}
    (row,) = make(monkeypatch, folder)  # the recipe's own test set is no benchmark
    assert list(row) == list(ledger.COLUMNS)
    assert (row["file"], row["source"], row["benchmark"]) == (
        "grpo_train.jsonl", "a.jsonl", "gsm8k",
    )  # fmt: skip
    assert row["id"].startswith("generic-") and row["benchmark_id"] == "gsm8k-test-0"
    assert row["kind"] in ("exact", "embedded", "reworded") and 0 < row["score"] <= 1
    for column, text in (("question_sha256", copy), ("benchmark_sha256", GOLD)):
        assert row[column] == hashlib.sha256(normalise_question(text).encode()).hexdigest()
    assert not {"train", "travels", "miles"} & set(json.dumps(row).lower().split())
    assert manifest.read(tmp_path / "run/contamination-ledger")["counts"] == {"copies": 1}
    assert "1 copies" in capsys.readouterr().out


def test_a_build_that_is_missing_or_has_no_hashes_is_refused(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="run `make data` to its end"):
        make(monkeypatch, tmp_path / "data")
    (tmp_path / "data").mkdir()
    write_rows(
        tmp_path / "data/contamination.jsonl", [{"benchmark": "gsm8k", "file": "x", "id": "1"}]
    )
    manifest.write(tmp_path / "data", "data", {}, {}, {}, 0.0, decontamination={"gsm8k": 1})
    with pytest.raises(UserError, match=r"contamination\.jsonl.*source: missing; FORCE=1 make"):
        make(monkeypatch, tmp_path / "data")
    assert not (tmp_path / "contamination-ledger/ledger.jsonl").exists()
