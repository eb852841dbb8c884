"""The mismatch between sampler and trainer: next to none in float32, more in bf16."""

import math

import pytest
import torch

pytestmark = pytest.mark.integration


def test_figures_by_hand():
    from benchmarks.mismatch import compare

    logs = torch.tensor([[math.log(1.5), 0.0], [math.log(0.9), 7.0]])  # the 7 is padding
    found = compare(logs, torch.zeros(2, 2), torch.tensor([[1, 1], [1, 0]]))
    assert found["mean"] == pytest.approx((math.log(1.5) - math.log(0.9)) / 3)
    assert found["kl"] == pytest.approx((1.5 + 0.9 - 2 - math.log(1.5 * 0.9)) / 3)
    assert found["outside"] == pytest.approx(1 / 3)
    assert found["max"] == pytest.approx(math.log(1.5))
    assert found["low"] == pytest.approx(0.906) and found["high"] == pytest.approx(1.494)


def test_bf16_is_further_from_its_sampler_than_float32(write_recipe, tmp_path, monkeypatch):
    from benchmarks import mismatch, mismatch_runs

    monkeypatch.setattr(mismatch, "NUM_COMPLETIONS", 8)
    config = str(write_recipe("grpo"))
    args = mismatch_runs.BenchArguments(grpo_config=config, recipe_run=str(tmp_path), out="")
    exact = mismatch.measure_pair(args, "float32", "own", 0)
    rounded = mismatch.measure_pair(args, "bfloat16", "own", 0)
    copied = mismatch.measure_pair(args, "float32", "bfloat16", 0)
    for name in ("padded", "alone"):
        assert exact[name]["mean"] < 1e-5 < 1e-4 < rounded[name]["mean"]
        assert copied[name]["mean"] > 1e-4  # only the sampler rounds
    assert exact["batch"]["mean"] < 1e-5 and copied["batch"]["mean"] < 1e-5
