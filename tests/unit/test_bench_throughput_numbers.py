"""The benchmark's workload and its page, without a model."""

import json
from types import SimpleNamespace

import pytest

from benchmarks.bench_throughput import ThroughputArguments
from benchmarks.bench_throughput_lengths import SFT_ROWS, joint_quantiles
from benchmarks.bench_throughput_page import (
    SHAPES,
    TITLES,
    add_figures,
    summarise,
    workload,
    write_page,
)
from benchmarks.bench_throughput_workload import draw_groups, draw_sft_rows, length_pairs
from data_prep.config import UserError
from stages.preflight.flops import training_flops

CONFIG = SimpleNamespace(
    hidden_size=8, intermediate_size=16, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, vocab_size=10,
)  # fmt: skip
ROWS = [[(10, 20), (10, 40)], [(5, 15), (5, 10)]]


def run(seconds, memory=1e9):
    parts = {"generate": 1.0, "reward": 0.5, "log-probs": 0.0, "update": 0.0, "other": 0.1}
    parts["update"] = seconds - sum(parts.values())
    return {"seconds": {"step": seconds}, "parts": parts, "memory": memory}


FOUND = {
    "rows": ROWS,
    "runs": {"stock": [run(8.0), run(4.0)], "ours": [run(4.0, 3e9), run(2.0)]},
    "difference": 1e-7,
}


def about(shape="tiny", name="one core of X", precision="float32"):
    args = {"out": "x.md"} | {
        key: field.default for key, field in ThroughputArguments.__dataclass_fields__.items()
        if key not in ("out", "parts", "variants", "packed_lengths")
    }  # fmt: skip
    return {
        "device": {"name": name, "peak": {"float32": 1e9}}, "arguments": args | {"shape": shape},
        "versions": {"torch": "2"}, "commit": "abc", "precision": precision,
    }  # fmt: skip


def test_joint_quantiles_keep_pairs_and_spread_evenly():
    pairs = [(n, 2 * n) for n in range(100)]
    assert joint_quantiles(pairs[::-1], 4) == [(12, 24), (37, 74), (62, 124), (87, 174)]
    assert joint_quantiles(pairs, 100) == pairs


def test_groups_have_real_lengths_and_as_many_uniform_ones_as_asked():
    table = length_pairs("gsm8k")
    prompts, completions = ({pair[side] for pair in table} for side in (0, 1))
    groups = draw_groups(40, 8, 0.63, seed=1)
    assert len({group.prompt for group in groups}) == len(groups)
    uniform = [group for group in groups if len(set(group.rewards)) == 1]
    assert len(uniform) == 25
    for group in groups:
        assert len(group.prompt) in prompts and set(group.lengths) <= completions
        assert len(group.lengths) == len(group.rewards) == 8
    assert groups == draw_groups(40, 8, 0.63, seed=1) != draw_groups(40, 8, 0.63, seed=2)
    assert all(len(set(group.rewards)) == 2 for group in draw_groups(40, 8, 0.0, seed=1))


def test_long_prompts_get_the_completions_of_long_prompts():
    """The lengths of a group hang together as they do in the data."""
    groups = sorted(draw_groups(400, 4, 0.0, seed=0), key=lambda group: len(group.prompt))
    mean = [sum(sum(g.lengths) for g in part) / 400 for part in (groups[:100], groups[-100:])]
    table = sorted(length_pairs("gsm8k"))
    real = [sum(c for _, c in part) / len(part) for part in (table[:125], table[-125:])]
    assert mean == pytest.approx(real, rel=0.1) and real[1] > 1.3 * real[0]


def test_sft_rows_mix_the_sets_as_the_recipe_does():
    rows = draw_sft_rows(3000, 1024, seed=0)
    lengths = [len(row["input_ids"]) for row in rows]
    assert max(lengths) <= 1024
    assert all(len(row["completion_mask"]) == len(row["input_ids"]) for row in rows)
    kept = {
        source: [sum(pair) for pair in length_pairs(source) if sum(pair) <= 1024]
        for source in SFT_ROWS
    }
    weights = {s: SFT_ROWS[s] * len(kept[s]) / len(length_pairs(s)) for s in SFT_ROWS}
    expected = sum(weights[s] * sum(kept[s]) / len(kept[s]) for s in SFT_ROWS)
    assert sum(lengths) / len(lengths) == pytest.approx(expected / sum(weights.values()), rel=0.03)


def test_figures_by_hand():
    figures = summarise("update", FOUND, CONFIG, peak=1e9)
    # All but generation, reward and log-probs: 8 - 1.5 and 4 - 1.5 seconds.
    assert figures["stock"]["tokens_per_second"] == pytest.approx(115 / 9)
    assert figures["ours"]["tokens_per_second"] == pytest.approx(115 / 3)
    flops = training_flops(CONFIG, [(30, 20), (50, 40), (20, 15), (15, 10)])
    assert figures["ours"]["mfu"] == pytest.approx(flops / 3 / 1e9)
    ratio, low, high = figures["ours"]["ratio"]
    assert ratio == pytest.approx((6.5 / 2.5 * 2.5 / 0.5) ** 0.5) and low < ratio < high
    assert figures["stock"]["ratio"] == pytest.approx((1.0, 1.0, 1.0))
    assert figures["ours"]["memory"] == 3e9
    step = summarise("step", FOUND, CONFIG, peak=1e9)
    assert step["ours"]["ratio"][0] == pytest.approx(2) and step["ours"]["mfu"] is None
    assert sum(step["ours"]["parts"].values()) == pytest.approx(step["ours"]["seconds"])
    assert summarise("uniform", FOUND, CONFIG, 1e9)["ours"]["mfu"] is None
    assert workload(FOUND)["rectangle"] == pytest.approx((2 * 50 + 2 * 20) / 115)


def test_a_run_takes_the_place_of_an_earlier_one_and_no_other(tmp_path):
    page = tmp_path / "page.md"
    add_figures(page, about(), {"step": FOUND, "update": FOUND}, CONFIG)
    add_figures(page, about(shape="0.5B"), {"update": FOUND}, CONFIG)
    kept = add_figures(page, about() | {"commit": "new"}, {"update": FOUND}, CONFIG)
    found = [(entry["part"], entry["arguments"]["shape"], entry["commit"]) for entry in kept]
    assert found == [
        ("update", "0.5B", "abc"), ("update", "tiny", "new"), ("step", "tiny", "abc"),
    ]  # fmt: skip
    assert len(add_figures(page, about(name="H200"), {"step": FOUND}, CONFIG)) == 4
    assert json.loads(page.with_suffix(".json").read_text()) != kept[:3]


def test_the_page_names_what_was_not_measured(tmp_path):
    page = tmp_path / "page.md"
    text = write_page(page, add_figures(page, about(), {"update": FOUND}, CONFIG))
    assert page.read_text() == text
    assert "| tiny | ours | 38 | " in text and "3.61 [" in text
    assert text.count("not measured") == len(SHAPES) * len(TITLES) - 1
    widths = {line.count("|") for line in text.splitlines() if line.startswith("|")}
    assert widths == {7, 11}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"shape": "0.6B"}, "0.6B is no checkpoint folder"),
        ({"parts": ["sft", "eval"]}, "parts: 'eval' is none of"),
        ({"variants": ["stok"]}, "variants: 'stok' is none of"),
        ({"dtype": "float16"}, "dtype: 'float16' is none of"),
        ({"num_turns": 1}, "use 2 or more"),
        ({"grpo_batch_size": 24}, "24 does not divide the 16 x 8 rollouts"),
        ({"sft_batch_size": 5}, "sft_batch_size: 5 must divide"),
        ({"packed_lengths": [512]}, "packed_lengths: 512 would cut rows"),
    ],
)
def test_settings_that_cannot_be_measured_are_refused(values, message):
    with pytest.raises((ValueError, UserError), match=message.replace("[", r"\[")):
        ThroughputArguments(out="x.md", **values)
