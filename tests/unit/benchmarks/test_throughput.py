"""The throughput benchmark's workload, figures and settings, without a model."""

from types import SimpleNamespace

import pytest

from benchmarks.throughput import render, summarise, training_flops
from benchmarks.throughput_runs import check_equal
from pipeline.errors import UserError

CONFIG = SimpleNamespace(
    hidden_size=8, intermediate_size=16, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, vocab_size=10,
)  # fmt: skip


def run(seconds, memory=None):
    return {"seconds": seconds, "memory": memory, "attention": "sdpa"}


FOUND = {
    "rows": [[(10, 20), (10, 40)], [(5, 15), (5, 10)]],
    "runs": {"stock": [run(8.0), run(4.0)], "ours": [run(4.0, 3e9), run(1.0, 1e9)]},
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


def test_figures_by_hand():
    figures = summarise("update", FOUND, CONFIG, peak=1e9)
    assert figures["stock"]["tokens_per_second"] == pytest.approx(115 / 12)
    needed = training_flops(CONFIG, [(30, 20), (50, 40), (20, 15), (15, 10)])
    assert figures["ours"]["mfu"] == pytest.approx(needed / 5 / 1e9)
    ratio, low, high = figures["ours"]["ratio"]
    assert ratio == pytest.approx((8 / 4 * 4 / 1) ** 0.5) and low < ratio < high
    assert figures["stock"]["ratio"] == pytest.approx((1.0, 1.0, 1.0))
    assert (figures["stock"]["memory"], figures["ours"]["memory"]) == (None, 3e9)
    uniform = summarise("uniform", FOUND, CONFIG, 1e9)
    assert uniform["ours"]["mfu"] is None
    rows = render({"update": figures, "uniform": uniform})
    assert [row["trainer"] for row in rows] == ["stock", "ours"] * 2
    assert (rows[1]["tokens/s"], rows[1]["peak GB"], rows[0]["peak GB"]) == ("23", "3.00", "")
    assert rows[1]["speed"].startswith("2.83 [") and rows[3]["MFU, %"] == ""


@pytest.mark.parametrize("mine", [[1.0, 2.1], [1.0, float("nan")], [1.0], []])
def test_trainers_that_differ_get_no_ratio(mine):
    runs = {"stock": {"losses": [1.0, 2.0]}, "ours": {"losses": mine}}
    with pytest.raises(UserError, match="ours"):
        check_equal("x", runs, ("losses",), tolerance=0.01)
    runs["ours"] = {"losses": [1.0, 2.01]}
    assert check_equal("x", runs, ("losses",), tolerance=0.01) == pytest.approx(0.005)
