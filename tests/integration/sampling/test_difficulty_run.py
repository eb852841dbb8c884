"""Pass rates of a tiny model: torn, resumed, extended, batched otherwise, shared by two."""

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
from tests.files import write_rows

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


@pytest.fixture
def flags(tmp_path, problems, tiny_model_dir):
    """Function: name of the output folder, changed keys -> command line."""

    def call(name, **changes):
        values = {
            "model_name_or_path": tiny_model_dir, "problems_file": problems,
            "output_dir": tmp_path / name, "num_samples": 4, "max_new_tokens": 16,
            "batch_size": 16, "dtype": "float32", "final_number": True,
        }  # fmt: skip
        values |= changes
        return [str(part) for key, value in values.items() for part in (f"--{key}", value)]

    return call


@pytest.fixture
def measure(tmp_path, flags):
    """Run it in this process; returns the rows, and how many samples were generated."""

    def call(name, **changes):
        before = len(read_store(tmp_path / name))
        argv = ["difficulty", *flags(name, **changes)]
        with (
            mock.patch.object(sys, "argv", argv),
            mock.patch("data_prep.sampling.problems.grade_rollouts", grade_rollouts),
            mock.patch.dict(os.environ),
        ):
            difficulty.main()
        lines = (tmp_path / name / "pass_rates.jsonl").read_text().splitlines()
        return list(map(json.loads, lines)), len(read_store(tmp_path / name)) - before

    return call


def read_store(folder):
    """The whole lines of the sample store."""
    found = []
    for path in (folder / "samples").glob("*.jsonl"):
        found += [json.loads(x) for x in path.read_bytes().split(b"\n") if x.endswith(b"]")]
    return found


def test_a_torn_run_is_finished(tmp_path, measure, tiny_model_dir, problems, capsys):
    folder, total = tmp_path / "torn", 31 * 4
    found, asked = measure("torn", batch_size=1)
    assert asked == total
    result = (folder / "pass_rates.jsonl").read_bytes()
    store = folder / "samples" / "samples-0.jsonl"
    store.write_bytes(store.read_bytes()[: store.stat().st_size // 2])
    num_done = len(read_store(folder))
    assert 0 < num_done < total

    assert measure("torn", batch_size=64)[1] == total - num_done
    assert f"difficulty: {num_done} samples are already stored\n" in capsys.readouterr().out
    keys = [line[0] for line in read_store(folder)]
    assert len(keys) == len(set(keys)) == total
    assert result == (folder / "pass_rates.jsonl").read_bytes()

    golds = {row["id"]: row["answers"] for row in map(json.loads, problems.open())}
    assert [row["id"] for row in found] == list(golds)
    assert len({row["num_right"] for row in found}) > 2
    assert not any(row["num_right"] for row in found if checksum(*golds[row["id"]]))
    digest = hash_checkpoint(str(tiny_model_dir), "model_name_or_path")
    assert {row["checkpoint"] for row in found} == {digest[:12]}
    written = manifest.read(folder)
    assert written["checkpoint"] == digest
    paths = [tiny_model_dir, problems]
    assert written["inputs"] == {str(path): manifest.sha256(path) for path in paths}


def test_more_samples_extend_and_batches_change_nothing(measure):
    two, asked = measure("a", num_samples=2, batch_size=1, limit=9)
    assert asked == 18
    four, asked = measure("a", num_samples=4, batch_size=50, limit=9)
    assert asked == 18
    fresh, asked = measure("b", num_samples=4, batch_size=7, limit=9)
    assert asked == 36 and fresh == four
    more = [b["num_right"] - a["num_right"] for a, b in zip(two, four, strict=True)]
    assert set(more) <= {0, 1, 2} and sum(more) > 0
    assert measure("a", num_samples=2, limit=5) == (two[:5], 0)


def grade_and_measure(*flags):
    """The whole of a process of `stages.difficulty`."""
    sys.argv = ["difficulty", *flags]
    with mock.patch("data_prep.sampling.problems.grade_rollouts", grade_rollouts):
        difficulty.main()
    sys.exit()


def test_two_processes_share(fork_server, flags, measure, tmp_path):
    setup = (grade_and_measure, *flags("two"))
    told = [
        [line for line in lines if line.startswith("difficulty: ")]
        for lines in fork_server.finish(tmp_path / "process", 2, setup=setup)
    ]
    assert told[0][0].startswith("difficulty: 31 problems (0 of 4 correct: ") and told[1] == []
    stores = sorted((tmp_path / "two" / "samples").iterdir())
    assert [path.name for path in stores] == ["samples-0.jsonl", "samples-1.jsonl"]
    assert [path.read_bytes().count(b"\n") for path in stores] == [62, 62]
    alone, _ = measure("alone")
    result = (tmp_path / "two" / "pass_rates.jsonl").read_text().splitlines()
    assert list(map(json.loads, result)) == alone
