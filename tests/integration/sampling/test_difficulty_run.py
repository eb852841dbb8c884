"""Pass rates of a tiny model: extended by more samples and problems, and up to date."""

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
from tests.integration.harness.eval_runs import counting

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


def test_rates_extend(tmp_path, tiny_model_dir, capsys):
    problems, folder = tmp_path / "problems.jsonl", tmp_path / "out"
    write_rows(problems, [grpo_row(p, "none") for p in synthetic.load("rl", 31, 0, max_level=2)])
    values = {
        "model_name_or_path": tiny_model_dir, "problems_file": problems, "output_dir": folder,
        "max_new_tokens": 16, "batch_size": 16, "dtype": "float32", "final_number": True,
    }  # fmt: skip

    def measure(num_samples, **changes):
        """The rows, and how many samples were generated."""
        settings = values | {"num_samples": num_samples} | changes
        flags = [str(part) for key, value in settings.items() for part in (f"--{key}", value)]
        with (
            mock.patch.object(sys, "argv", ["difficulty", *flags]),
            mock.patch("data_prep.sampling.problems.grade_rollouts", grade_rollouts),
            mock.patch.dict(os.environ),
            counting() as asked,
        ):
            difficulty.main()
        return read_rows(folder / "pass_rates.jsonl"), len(asked)

    two, asked = measure(2, limit=9)
    assert asked == 18
    four, asked = measure(4, limit=9, batch_size=1)
    more = [b["num_right"] - a["num_right"] for a, b in zip(two, four, strict=True)]
    assert asked == 18 and set(more) <= {0, 1, 2} and sum(more) > 0
    assert measure(2, limit=5) == (two[:5], 0)
    capsys.readouterr()
    found, asked = measure(4)
    assert asked == (31 - 9) * 4 and found[:9] == four
    assert "difficulty: 36 samples are already stored\n" in capsys.readouterr().out
    golds = {row["id"]: row["answers"] for row in read_rows(problems)}
    assert [row["id"] for row in found] == list(golds)
    assert len({row["num_right"] for row in found}) > 2
    assert not any(row["num_right"] for row in found if checksum(*golds[row["id"]]))
    digest, written = (
        hash_checkpoint(str(tiny_model_dir), "model_name_or_path"),
        manifest.read(folder),
    )
    assert {row["checkpoint"] for row in found} == {digest[:12]} and written["checkpoint"] == digest
    paths = [tiny_model_dir, problems]
    assert written["inputs"] == {str(path): manifest.sha256(path) for path in paths}
    assert measure(4) == (found, 0)
    assert "difficulty: up to date" in capsys.readouterr().out
