"""Pass rates of a tiny model: extended, batched otherwise, and up to date."""

import json
import os
import sys
import zlib
from unittest import mock

import pytest

from data_prep.sampling.hashes import hash_checkpoint
from data_prep.schema import grpo_row
from data_prep.sources import synthetic
from grading.grade import Grade
from pipeline import manifest
from stages import difficulty
from tests.files import read_rows, write_rows

pytestmark = pytest.mark.integration
# The model writes noise: grade it by a checksum, or every pass rate would be zero. A gold with
# an odd checksum is never found, so that a rate at the wrong problem shows.


def checksum(text):
    return zlib.crc32(text.encode()) % 2


def grade_rollouts(completions, golds, forms, questions, *, own_graders, **flags):
    assert not any(own_graders) and flags == {"think_prefilled": False, "final_number": True}
    assert {*forms} == {"box"}
    rows = zip(completions, golds, strict=True)
    is_right = [not checksum(gold) and checksum(text) for text, (gold,) in rows]
    return [Grade("right" if right else "wrong", None) for right in is_right]


@pytest.fixture
def problems(tmp_path):
    rows = [grpo_row(p, "none") for p in synthetic.load("rl", 31, 0, max_level=2)]
    path = tmp_path / "problems.jsonl"
    write_rows(path, rows)
    return path


def read_store(folder):
    """The whole lines of the sample store."""
    found = []
    for path in (folder / "samples").glob("*.jsonl"):
        found += [json.loads(x) for x in path.read_bytes().split(b"\n") if x.endswith(b"]")]
    return found


@pytest.fixture
def measure(tmp_path, problems, tiny_model_dir):
    """Run it in this process; returns the rows, and how many samples were generated."""

    def call(name, **changes):
        values = {
            "model_name_or_path": tiny_model_dir, "problems_file": problems,
            "output_dir": tmp_path / name, "num_samples": 4, "max_new_tokens": 16,
            "batch_size": 16, "dtype": "float32", "final_number": True,
        }  # fmt: skip
        flags = [
            str(part) for key, value in (values | changes).items() for part in (f"--{key}", value)
        ]
        before = len(read_store(tmp_path / name))
        with (
            mock.patch.object(sys, "argv", ["difficulty", *flags]),
            mock.patch("data_prep.sampling.problems.grade_rollouts", grade_rollouts),
            mock.patch.dict(os.environ),
        ):
            difficulty.main()
        return read_rows(tmp_path / name / "pass_rates.jsonl"), len(
            read_store(tmp_path / name)
        ) - before

    return call


def test_rates_extend_and_batches_change_nothing(
    measure, tmp_path, tiny_model_dir, problems, capsys
):
    two, asked = measure("a", num_samples=2, batch_size=1, limit=9)
    assert asked == 18
    four, asked = measure("a", limit=9, batch_size=50)
    assert asked == 18
    fresh, asked = measure("b", limit=9, batch_size=7)
    assert asked == 36 and fresh == four
    more = [b["num_right"] - a["num_right"] for a, b in zip(two, four, strict=True)]
    assert set(more) <= {0, 1, 2} and sum(more) > 0
    assert measure("a", num_samples=2, limit=5) == (two[:5], 0)

    capsys.readouterr()
    found, asked = measure("a", batch_size=64)
    assert asked == (31 - 9) * 4 and found[:9] == four
    assert "difficulty: 36 samples are already stored\n" in capsys.readouterr().out
    golds = {row["id"]: row["answers"] for row in read_rows(problems)}
    assert [row["id"] for row in found] == list(golds)
    assert len({row["num_right"] for row in found}) > 2
    assert not any(row["num_right"] for row in found if checksum(*golds[row["id"]]))
    digest = hash_checkpoint(str(tiny_model_dir), "model_name_or_path")
    assert {row["checkpoint"] for row in found} == {digest[:12]}
    written = manifest.read(tmp_path / "a")
    assert written["checkpoint"] == digest
    paths = [tiny_model_dir, problems]
    assert written["inputs"] == {str(path): manifest.sha256(path) for path in paths}
    assert measure("a", batch_size=64) == (found, 0)
    assert "difficulty: up to date" in capsys.readouterr().out
