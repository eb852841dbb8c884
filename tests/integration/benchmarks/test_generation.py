"""The comparison of ways to generate, on the tiny model."""

import json
import sys

import pytest

from benchmarks import generation
from benchmarks.generation import Turn, completions, ratio

pytestmark = pytest.mark.integration


def test_both_generate_and_greedy_completions_are_equal(
    tiny_model_dir, data_dir, tmp_path, monkeypatch
):
    page = tmp_path / "generation.md"
    flags = {
        "model": tiny_model_dir, "problems": data_dir / "grpo_train.jsonl", "out": page,
        "num_prompts": 3, "num_rollouts": 4, "max_new_tokens": 6, "end_bias": 2.0,
        "num_turns": 2, "num_threads": 1,
    }  # fmt: skip
    argv = [word for key, value in flags.items() for word in (f"--{key}", str(value))]
    monkeypatch.setattr(sys, "argv", ["generation", *argv])
    generation.main()
    found = json.loads(page.with_suffix(".json").read_text())
    assert found["equal"] == "6 of 6"  # two rollouts of each prompt
    assert {name: len(turns) for name, turns in found["turns"].items()} == {
        "transformers": 2, "ours": 2,
    }  # fmt: skip
    tokens = [turn["num_tokens"] for turns in found["turns"].values() for turn in turns]
    assert all(12 <= count <= 72 for count in tokens)
    assert "|transformers|" in page.read_text()


def test_the_ratio_is_that_of_cpu_time_a_token():
    turns = {"transformers": [Turn(3.0, 1.0, 10)] * 2, "ours": [Turn(1.0, 0.0, 5)] * 2}
    assert ratio(turns)[0] == pytest.approx(2.0)


def test_a_completion_ends_with_the_first_end():
    import torch

    sequences = torch.tensor([[7, 1, 3, 1, 1], [7, 2, 3, 4, 5]])
    assert completions(sequences, 2, 1) == [[3, 1], [3, 4, 5]]
