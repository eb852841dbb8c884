"""The throughput benchmark's workload, figures and settings, without a model."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from benchmarks import throughput
from benchmarks.length_mix import SFT_ROWS, joint_quantiles
from benchmarks.throughput import (
    BenchArguments,
    describe,
    merge,
    render,
    summarise,
    training_flops,
)
from benchmarks.throughput_runs import check_equal, peak_memory
from benchmarks.throughput_workload import draw_groups, draw_sft_rows, length_pairs
from data_prep.config import UserError

CONFIG = SimpleNamespace(
    hidden_size=8, intermediate_size=16, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, vocab_size=10,
)  # fmt: skip


def run(seconds, memory=1e9):
    parts = {"generate": 1.0, "reward": 0.5, "log-probs": 0.0, "update": 0.0, "other": 0.1}
    parts["update"] = seconds - sum(parts.values())
    return {"seconds": {"step": seconds}, "parts": parts, "memory": memory}


FOUND = {
    "rows": [[(10, 20), (10, 40)], [(5, 15), (5, 10)]],
    "runs": {"stock": [run(8.0), run(4.0)], "ours": [run(4.0, 3e9), run(2.0)]},
    "difference": 1e-7,
}


@pytest.mark.parametrize(("length", "scored"), [(1, 0), (3, 0), (3, 2), (5, 5)])
@pytest.mark.parametrize("head_dim", [None, 4])
def test_flops_by_hand(length, scored, head_dim):
    """Two layers, four heads of size 2 (or `head_dim`), of which two are of keys and values."""
    heads = 4 * (head_dim or 2)
    weights = 2 * 8 * heads + 2 * 8 * heads // 2 + 3 * 8 * 16  # of a layer: q, o; k, v; the MLP
    linear = 2 * length * weights + scored * 8 * 10  # 8 x 10 in the LM head
    pairs = sum(range(1, length + 1))  # of a token and one that it may see
    attention = 2 * 2 * heads * pairs * 2  # 2 products in 2 layers
    config = SimpleNamespace(**vars(CONFIG), head_dim=head_dim)
    assert training_flops(config, [(length, scored)] * 2) == 6 * (2 * linear + attention)


def test_joint_quantiles_keep_pairs_and_spread_evenly():
    pairs = [(n, 2 * n) for n in range(100)]
    assert joint_quantiles(pairs[::-1], 4) == [(12, 24), (37, 74), (62, 124), (87, 174)]
    assert joint_quantiles(pairs, 100) == pairs


def test_groups_have_real_lengths_and_as_many_uniform_ones_as_asked():
    table = length_pairs("gsm8k")
    prompts, completions = ({pair[side] for pair in table} for side in (0, 1))
    groups = draw_groups(40, 8, 0.63, seed=1)
    assert len({group.prompt for group in groups}) == len(groups)
    assert sum(len(set(group.rewards)) == 1 for group in groups) == 25
    for group in groups:
        assert len(group.prompt) in prompts and set(group.lengths) <= completions
        assert len(group.lengths) == len(group.rewards) == 8
    assert groups == draw_groups(40, 8, 0.63, seed=1) != draw_groups(40, 8, 0.63, seed=2)
    # Long prompts get the completions of long prompts.
    groups = sorted(draw_groups(400, 4, 0.0, seed=0), key=lambda group: len(group.prompt))
    mean = [sum(sum(g.lengths) for g in part) / 400 for part in (groups[:100], groups[-100:])]
    real = [sum(c for _, c in part) / 125 for part in (sorted(table)[:125], sorted(table)[-125:])]
    assert mean == pytest.approx(real, rel=0.1) and real[1] > 1.3 * real[0]


def test_sft_rows_mix_the_sets_as_the_recipe_does():
    rows = draw_sft_rows(3000, 1024, seed=0)
    lengths = [len(row["input_ids"]) for row in rows]
    assert max(lengths) <= 1024
    assert all(len(row["completion_mask"]) == len(row["input_ids"]) for row in rows)
    kept = {s: [sum(pair) for pair in length_pairs(s) if sum(pair) <= 1024] for s in SFT_ROWS}
    weights = {s: SFT_ROWS[s] * len(kept[s]) / len(length_pairs(s)) for s in SFT_ROWS}
    expected = sum(weights[s] * sum(kept[s]) / len(kept[s]) for s in SFT_ROWS)
    assert sum(lengths) / len(lengths) == pytest.approx(expected / sum(weights.values()), rel=0.03)


def test_figures_by_hand():
    figures = summarise("update", FOUND, CONFIG, peak=1e9)
    # All but generation, reward and log-probs: 8 - 1.5 and 4 - 1.5 seconds.
    assert figures["stock"]["tokens_per_second"] == pytest.approx(115 / 9)
    assert figures["ours"]["tokens_per_second"] == pytest.approx(115 / 3)
    needed = training_flops(CONFIG, [(30, 20), (50, 40), (20, 15), (15, 10)])
    assert figures["ours"]["mfu"] == pytest.approx(needed / 3 / 1e9)
    ratio, low, high = figures["ours"]["ratio"]
    assert ratio == pytest.approx((6.5 / 2.5 * 2.5 / 0.5) ** 0.5) and low < ratio < high
    assert figures["stock"]["ratio"] == pytest.approx((1.0, 1.0, 1.0))
    assert figures["ours"]["memory"] == 3e9
    step = summarise("step", FOUND, CONFIG, peak=1e9)
    assert step["ours"]["ratio"][0] == pytest.approx(2) and step["ours"]["mfu"] is None
    assert sum(step["ours"]["parts"].values()) == pytest.approx(step["ours"]["seconds"])
    assert summarise("uniform", FOUND, CONFIG, 1e9)["ours"]["mfu"] is None
    assert describe(FOUND)["rectangle"] == pytest.approx((2 * 50 + 2 * 20) / 115)


def entry(part="step", shape="tiny", device="X", commit="old"):
    return {
        "part": part, "arguments": {"shape": shape}, "device": {"name": device, "peak": {}},
        "precision": "float32", "commit": commit, "figures": summarise(part, FOUND, CONFIG, None),
    }  # fmt: skip


def test_a_run_takes_the_place_of_an_earlier_one_and_no_other():
    kept = [entry(), entry("update"), entry("update", "0.5B"), entry(device="H200")]
    merged = merge(kept, [entry("update", commit="new")])
    found = [(e["part"], e["arguments"]["shape"], e["device"]["name"], e["commit"]) for e in merged]
    assert found == [
        ("update", "0.5B", "X", "old"), ("update", "tiny", "X", "new"),
        ("step", "tiny", "H200", "old"), ("step", "tiny", "X", "old"),
    ]  # fmt: skip
    rows = render(merged[1:3])
    assert [row["trainer"] for row in rows] == ["stock", "ours"] * 2
    assert rows[1]["tokens/s"] == "38" and rows[1]["speed"].startswith("3.61 [")
    assert rows[3]["generate, %"] == "33.3" and "generate, %" not in rows[1]


@pytest.mark.parametrize("mine", [[1.0, 2.1], [1.0, float("nan")], [1.0], []])
def test_trainers_that_differ_get_no_ratio(mine):
    runs = {"stock": {"losses": [1.0, 2.0]}, "ours": {"losses": mine}}
    with pytest.raises(UserError, match="ours"):
        check_equal("x", runs, ("losses",), tolerance=0.01)
    runs["ours"] = {"losses": [1.0, 2.01]}
    assert check_equal("x", runs, ("losses",), tolerance=0.01) == pytest.approx(0.005)


def test_a_host_without_a_gpu(monkeypatch):
    """One whose /proc refuses to reset the mark of memory, and names no CPU, as on ARM."""

    def refuse(self, text):
        raise PermissionError(13, "Permission denied", str(self))

    found = {}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(Path, "write_text", refuse)
    with peak_memory(found):
        pass
    assert found["bytes"] > 1 << 20
    monkeypatch.setattr(throughput, "measure_peak", lambda dtype: 1.0)
    for text, name in (("model name\t: Xeon 9\n", "Xeon 9"), ("CPU implementer\t: 0x41\n", "CPU")):
        monkeypatch.setattr(Path, "read_text", lambda self, encoding, text=text: text)
        assert throughput.device()["name"] == f"one core of {name}"


@pytest.mark.parametrize(
    "values",
    [
        {"parts": ["sft", "eval"]}, {"variants": ["stok"]}, {"dtype": "float16"},
        {"num_turns": 0}, {"grpo_batch_size": 24}, {"sft_batch_size": 5},
        {"packed_lengths": [512]}, {"num_generations": 1, "grpo_batch_size": 1},
    ],
)  # fmt: skip
def test_settings_that_cannot_be_measured_are_refused(values):
    with pytest.raises(ValueError, match=f"^{next(iter(values))}: "):
        BenchArguments(out="x.md", **values)
