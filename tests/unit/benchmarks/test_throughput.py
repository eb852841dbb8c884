"""The throughput benchmark's figures, without a model."""

import pytest

from benchmarks.throughput import render, summarise
from benchmarks.throughput_runs import check_equal
from pipeline.errors import UserError


def run(seconds, memory=None):
    return {"seconds": seconds, "memory": memory, "attention": "sdpa"}


FOUND = {
    "tokens": 115,
    "runs": {"stock": [run(8.0), run(4.0)], "ours": [run(4.0, 3e9), run(1.0, 1e9)]},
    "difference": 1e-7,
}


def test_figures_by_hand():
    figures = summarise(FOUND)
    assert figures["stock"]["tokens_per_second"] == pytest.approx(115 / 12)
    ratio, low, high = figures["ours"]["ratio"]
    assert ratio == pytest.approx((8 / 4 * 4 / 1) ** 0.5) and low < ratio < high
    assert figures["stock"]["ratio"] == pytest.approx((1.0, 1.0, 1.0))
    stock, ours = render({"update": figures})
    assert (ours["tokens/s"], ours["peak GB"], stock["peak GB"]) == ("23", "3.00", "")
    assert ours["speed"].startswith("2.83 [")


@pytest.mark.parametrize("mine", [[1.0, 2.1], [1.0, float("nan")], [1.0], []])
def test_trainers_that_differ_get_no_ratio(mine):
    runs = {"stock": {"losses": [1.0, 2.0]}, "ours": {"losses": mine}}
    with pytest.raises(UserError, match="ours"):
        check_equal("x", runs, ("losses",), tolerance=0.01)
    runs["ours"] = {"losses": [1.0, 2.01]}
    assert check_equal("x", runs, ("losses",), tolerance=0.01) == pytest.approx(0.005)
