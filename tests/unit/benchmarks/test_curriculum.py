"""The figures of the curriculum's benchmark, on runs made up so that each can be worked out."""

import math
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from benchmarks.curriculum import (
    DEFAULT_MODES,
    MODES,
    BenchArguments,
    accuracy_at,
    compare,
    compare_all,
    cost_of,
    learning_curve,
    render,
    summary,
    targets,
)
from stages.settings.arguments import GrpoArguments, check_grpo_numbers

RECIPE = Path(__file__).parents[3] / "configs/skewed-cpu/grpo.yaml"
INF = math.inf
NO_SCORING = {"tokens": 0, "seconds": 0.0}


def made_up(accuracies, tokens=1000, seconds=10.0, zero_std=(0.5, 0.5), scoring=NO_SCORING, **keys):
    """A run with a test before the first step and after each; each step takes as much."""
    tests = [
        {"tokens": tokens * i, "seconds": seconds * i, "accuracy": accuracy}
        for i, accuracy in enumerate(accuracies)
    ]
    steps = [
        {"tokens": tokens * i, "seconds": seconds * i, "zero_std": share, "groups": [0, 8, 3, 5]}
        for i, share in enumerate(zero_std, start=1)
    ]
    result = {"tests": tests, "steps": steps, "groups_per_step": 4, "num_generations": 8}
    result |= {"scoring": scoring, "mode": "m", "seed": 0, "commit": "abc"}
    return result | keys


# Curves


@pytest.mark.parametrize(
    ("accuracies", "curve"),
    [
        ([0.1, 0.2, 0.4], [0.1, 0.2, 0.4]),
        ([0.1, 0.3, 0.2, 0.4], [0.1, 0.25, 0.25, 0.4]),
        ([0.3, 0.2, 0.1], [0.2, 0.2, 0.2]),
        ([0.2, 0.5, 0.4, 0.3, 0.4], [0.2, 0.4, 0.4, 0.4, 0.4]),
    ],
)
def test_curves_are_made_to_rise(accuracies, curve):
    cost, found = learning_curve(made_up(accuracies), "seconds")
    assert cost.tolist() == [10.0 * i for i in range(len(accuracies))]
    assert found == pytest.approx(curve)


RUN = made_up([0.1, 0.3, 0.2, 0.4])  # risen: 0.1, 0.25, 0.25, 0.4


@pytest.mark.parametrize(
    ("accuracy", "tokens"),
    [
        (0.05, 0), (0.1, 0),  # at the first test
        (0.175, 500), (0.25, 1000), (0.325, 2500), (0.4, 3000),
        (0.41, INF), (1.0, INF),  # never
    ],
)  # fmt: skip
def test_cost_of(accuracy, tokens):
    assert cost_of(RUN, accuracy, "tokens") == pytest.approx(tokens)
    assert cost_of(RUN, accuracy, "seconds") == pytest.approx(tokens / 100)


@pytest.mark.parametrize(
    ("tokens", "accuracy"),
    [(0, 0.1), (500, 0.175), (1500, 0.25), (2500, 0.325), (3000, 0.4), (3001, math.nan)],
)
def test_accuracy_at(tokens, accuracy):
    assert accuracy_at(RUN, tokens, "tokens") == pytest.approx(accuracy, nan_ok=True)
    assert accuracy_at(RUN, tokens / 100, "seconds") == pytest.approx(accuracy, nan_ok=True)


def test_summary():
    result = made_up([0.1, 0.3, 0.2], zero_std=(0.5, 0.25), tokens=1250)
    result["steps"][1]["groups"] = [8, 1, 7, 0, 4, 0]  # with two that were replaced
    # Useful: half of 4, then three quarters of 4, in 2,500 tokens. Uniform: 2 of 4, then 3 of 6.
    assert summary(result) == pytest.approx(
        {
            "zero_std": 0.375, "generated_zero_std": 0.5, "useful_per_1k": 2.0,
            "tokens": 2500, "seconds": 20.0, "steps": 2, "final_accuracy": 0.25,
        }
    )  # fmt: skip
    result["steps"][1]["groups"] = [8, 8, 8, 8, 8, 8]
    assert summary(result)["generated_zero_std"] == 0.8


# Modes against stock


def test_compare():
    """Stock gets to 0.3 in 2,000 tokens and 20 s, the mode in 1,000 and 10, and then further."""
    runs = {
        ("stock", 0): made_up([0.1, 0.2, 0.3, 0.3]),
        ("fast", 0): made_up([0.1, 0.3, 0.4], zero_std=(0.1, 0.3)),
    }
    figures = compare(runs, "fast")
    assert figures["seeds"] == 1
    assert figures["tokens_ratio"] == pytest.approx((0.5, 0, INF))
    assert figures["seconds_ratio"] == pytest.approx((0.5, 0, INF))
    assert figures["at_tokens"] == pytest.approx((0.1, -INF, INF))
    assert figures["useful_per_1k"] == pytest.approx(3.2)  # 0.9 and 0.7 of 4, in 2,000 tokens
    assert figures["useful_ratio"][0] == pytest.approx(1.6)  # stock's are 2
    assert figures["zero_std"] == pytest.approx(0.2) and figures["final_accuracy"] == 0.4
    stock = compare(runs, "stock")
    assert stock["tokens_ratio"][0] == 1 and stock["at_seconds"][0] == 0


def test_compare_at_the_greatest_cost_that_both_have_got_to():
    runs = {
        ("stock", 0): made_up([0.1, 0.2, 0.3]),
        ("short", 0): made_up([0.1, 0.2, 0.2], tokens=500, seconds=30.0),
    }
    figures = compare(runs, "short")
    assert figures["at_tokens"][0] == pytest.approx(0.0)  # at 1,000 tokens
    assert figures["at_seconds"][0] == pytest.approx(1 / 15 + 0.1 - 0.3)  # at 20 s
    assert figures["tokens_ratio"] == (INF, 0, INF)


def test_what_scoring_has_cost_comes_before_the_first_step():
    scoring = {"tokens": 500, "seconds": 5.0}
    runs = {
        ("stock", 0): made_up([0.1, 0.2, 0.3]),
        ("offline", 0): made_up([0.1, 0.3, 0.4], scoring=scoring),
    }
    figures = compare(runs, "offline")
    assert (figures["tokens_ratio"][0], figures["useful_ratio"][0]) == pytest.approx((0.5, 1))
    figures = compare(runs, "offline", with_scoring=True)
    assert figures["tokens_ratio"][0] == pytest.approx(0.75)
    assert figures["seconds_ratio"][0] == pytest.approx(0.75)
    assert figures["at_tokens"][0] == pytest.approx(0.05)  # 0.35 at 2,000
    assert figures["at_seconds"][0] == pytest.approx(0.05)
    assert figures["useful_per_1k"] == pytest.approx(2 * 2000 / 2500)
    assert figures["useful_ratio"][0] == pytest.approx(0.8)
    assert runs["offline", 0]["tests"][0]["tokens"] == 0


def test_modes_are_paired_by_seed():
    """Ratios 0.5 and 1 are 0.5 and 1 however much slower one seed's machine was."""
    runs = {
        ("fast", 1): made_up([0.1, 0.2, 0.4], tokens=3000, seconds=70.0),
        ("stock", 0): made_up([0.1, 0.2, 0.3]),
        ("fast", 0): made_up([0.1, 0.3, 0.4]),
        ("stock", 1): made_up([0.1, 0.2, 0.4], tokens=3000, seconds=70.0),
        ("fast", 2): made_up([0.9, 0.9, 0.9]),  # stock has not run yet
    }
    figures = compare(runs, "fast")
    assert figures["seeds"] == 2
    for axis in ("tokens", "seconds"):
        value, low, high = figures[f"{axis}_ratio"]
        assert value == pytest.approx(math.sqrt(0.5))
        assert low * high == pytest.approx(0.5) and low < value
        assert figures[f"at_{axis}"][0] == pytest.approx(0.05)
    assert figures["final_accuracy"] == pytest.approx(0.4) and figures["tokens"] == 4000


# Targets and table

GOOD = {"zero_std": 0.25, "useful_ratio": (1.3, 1.01, 2), "tokens_ratio": (0.6, 0.3, 0.99)}
GOOD |= {"seconds_ratio": (0.5, 0.3, 0.99)}


@pytest.mark.parametrize(
    ("missed", "change"),
    [
        (None, {}),
        ("zero-std", {"zero_std": 0.251}),
        ("useful", {"useful_ratio": (1.29, 1.01, 2)}),
        ("useful", {"useful_ratio": (1.5, 1.0, 2)}),
        ("tokens", {"tokens_ratio": (0.61, 0.3, 0.99)}),
        ("tokens", {"tokens_ratio": (0.4, 0.2, 1.0)}),
        ("seconds", {"seconds_ratio": (INF, 0, INF)}),
    ],
)
def test_targets(missed, change):
    figures = {"stock": {"zero_std": 0.5}, "predictive": GOOD | change}
    figures["predictive+refill"] = {"zero_std": 0.05}
    found = targets(figures)
    words = ["zero-std", "useful", "tokens", "seconds", "zero-std"]
    assert len(found) == 5 and all(word in name for word, name in zip(words, found, strict=True))
    assert [*found.values()] == [word != missed for word in words[:4]] + [True]


def test_targets_whose_modes_were_not_run_are_left_out():
    assert targets({"stock": {"zero_std": 0.6}}) == {}
    assert [*targets({"stock": {"zero_std": 0.49}, "predictive": GOOD}).values()] == [
        False, True, True, True,
    ]  # fmt: skip
    refill = {"stock": {"zero_std": 0.6}, "predictive+refill": {"zero_std": 0.051}}
    assert [*targets(refill).values()] == [False]


def test_the_table():
    slow = [0.1, 0.1, 0.1, 0.2, 0.3]
    scoring = {"tokens": 1000, "seconds": 10.0}
    runs = {}
    for seed in (0, 1):
        runs["stock", seed] = made_up(slow, zero_std=(0.7,) * 4)
        runs["offline", seed] = made_up([0.1, 0.2, 0.3, 0.3, 0.3], scoring=scoring)
        runs["refill", seed] = made_up([0.1, 0.1, 0.1, 0.1, 0.2], seconds=40.0)
    figures = compare_all(runs, ["stock", "offline", "refill"])
    assert [*figures] == ["stock", "offline", "refill", "offline, scoring counted"]
    rows = {row["mode"]: [*row.values()][1:] for row in render(figures)}
    assert rows["stock"][:7] == ["2", "4.0", "0.700", "0.500", "1.20", "1.00 [1.00, 1.00]", "40.0"]
    # Stock's 0.3 costs 4,000 tokens; refill is at 0.1 when stock's 40 s are over.
    assert rows["offline, scoring counted"][7:10] == ["30.0", *["0.75 [0.75, 0.75]"] * 2]
    assert rows["refill"][7:] == [
        "20.0", "none", "none", "-10.0 [-10.0, -10.0]", "-20.0 [-20.0, -20.0]",
    ]  # fmt: skip


def test_nothing_learned_gives_no_ratio():
    runs = {("stock", 0): made_up([0.0, 0.0], zero_std=(1.0,))}
    figures = compare(runs, "stock")
    assert figures["useful_ratio"] == figures["tokens_ratio"] == (INF, 0, INF)


# What is run


def test_modes():
    assert "stock" in DEFAULT_MODES and {*DEFAULT_MODES} <= {*MODES}
    names = {f.name for f in fields(GrpoArguments)}
    recipe = yaml.safe_load(RECIPE.read_text(encoding="utf-8"))
    for mode, changes in MODES.items():
        assert not any(letter.isspace() for letter in mode)  # they are a list in make
        values = recipe | {key: value for key, value in changes.items() if key != "stock"}
        values |= {"pass_rates": "made.jsonl"} if mode == "offline" else {}
        check_grpo_numbers(values)
        GrpoArguments(**{key: value for key, value in values.items() if key in names})
    assert len({str(changes) for changes in MODES.values()}) == len(MODES)


def test_stock_is_always_run():
    keys = {"grpo_config": "c", "recipe_run": "r", "out": "o"}
    assert BenchArguments(**keys).modes == DEFAULT_MODES
    assert BenchArguments(**keys, modes=["refill"]).modes == ["stock", "refill"]
    assert BenchArguments(**keys, modes=["refill", "stock"]).modes == ["refill", "stock"]
    with pytest.raises(ValueError, match=r"modes: must be some of stock.* \(got 'best'"):
        BenchArguments(**keys, modes=["best"])
