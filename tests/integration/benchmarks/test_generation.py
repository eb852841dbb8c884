"""The comparison of ways to generate, on the tiny model."""

import json
import sys

import pytest

from benchmarks import generation
from data_prep.sampling.fastest import LOOPS, choose

pytestmark = pytest.mark.integration


def test_all_generate_and_greedy_completions_are_equal(
    tiny_model_dir, data_dir, tmp_path, monkeypatch
):
    page = tmp_path / "generation.md"
    flags = {
        "model": tiny_model_dir, "problems": data_dir / "grpo_train.jsonl", "out": page,
        "sizes": 3, "num_rollouts": 4, "max_new_tokens": 6, "end_share": 0.2, "num_turns": 1,
        "memory": 0.01, "keep": "true",
    }  # fmt: skip
    argv = [word for key, value in flags.items() for word in (f"--{key}", str(value))]
    monkeypatch.setattr(sys, "argv", ["generation", *argv])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    generation.main()
    found = json.loads(page.with_suffix(".json").read_text())
    assert [*found["turns"]] == [*found["tokens_per_second"]] == [*LOOPS]
    assert all(12 <= sizes["3"][0][1] < 72 for sizes in found["turns"].values())  # tokens
    assert page.read_text().count("|6 of 6|") == len(LOOPS)  # two rollouts of each prompt
    assert choose("cpu")[1].startswith("gpu-check found ")


def test_a_completion_ends_with_the_first_end():
    assert [generation.cut(row, {1, 3}) for row in ([3, 1], [2, 1, 3], [2])] == [[3], [2, 1], [2]]
