"""The way of one row through the build is short: few files, few jumps between them."""

import itertools
import json
import sys
from pathlib import Path

import pytest
import yaml

import data_prep
from data_prep.build import __main__ as build

pytestmark = pytest.mark.integration

PACKAGE = str(Path(data_prep.__file__).parent)
MAX_FILES, MAX_SWITCHES = 20, 60


def calls_of(function):
    """(file, function) of every call into the package, in order."""
    calls = []

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            calls.append((frame.f_code.co_filename, frame.f_code.co_name))

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls


def test_a_gsm8k_row_passes_few_files(tmp_path, monkeypatch, shared_data):
    with Path(shared_data, "gsm8k/train.jsonl").open(encoding="utf-8") as file:
        (tmp_path / "train.jsonl").write_text(file.readline(), encoding="utf-8")
    recipe = {
        "output_dir": str(tmp_path / "out"), "data_root": str(tmp_path), "num_workers": 1,
        "languages": ["en"], "grpo": [{"name": "gsm8k", "file": "train.jsonl"}],
    }  # fmt: skip
    (tmp_path / "data.yaml").write_text(yaml.safe_dump(recipe))
    monkeypatch.setattr(sys, "argv", ["build", "--config", str(tmp_path / "data.yaml")])
    calls = calls_of(build.main)
    names = [name for _, name in calls]
    # From the set's beginning to its last written line.
    last = max(at for at, name in enumerate(names) if name == "line")
    files = [file for file, _ in calls[names.index("build_set") : last + 1]]
    switches = sum(one != other for one, other in itertools.pairwise(files))
    assert "reading/rows.py" in "".join(files) and "sources/gsm8k.py" in "".join(files)
    assert len(set(files)) <= MAX_FILES and switches <= MAX_SWITCHES, (set(files), switches)
    (row,) = map(json.loads, (tmp_path / "out/grpo_train.jsonl").read_text().splitlines())
    assert row["answers"] == ["72"]
