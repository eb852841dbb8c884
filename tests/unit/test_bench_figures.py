"""The figures of the curriculum's benchmark, on runs made up so that each can be worked out."""

import math
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from benchmarks.bench_curriculum import DEFAULT_MODES, MODES, BenchArguments
from benchmarks.bench_figures import (
    accuracy_at,
    compare,
    cost_of,
    learning_curve,
    mean_interval,
    ratio_interval,
    summary,
)
from benchmarks.bench_page import TARGETS, figures_of, short, targets, write_page
from stages.settings.arguments import GrpoArguments, check_grpo_numbers

RECIPE = Path(__file__).parents[2] / "configs/skewed-cpu/grpo.yaml"
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
    assert short(result) == {
        "mode": "m", "seed": 0, "scoring": NO_SCORING, "tests": result["tests"], "commit": "abc",
        "summary": summary(result),
    }  # fmt: skip


# Intervals


def test_mean_interval():
    # Mean 2, standard error 1; t of one degree of freedom is tan(0.475 pi) = 12.7062.
    assert mean_interval([1, 3]) == pytest.approx((2, 2 - 12.7062, 2 + 12.7062), abs=1e-4)
    # Standard deviation 1, t of two degrees 4.30265, so half is 4.30265 / sqrt 3.
    assert mean_interval([1, 2, 3]) == pytest.approx((2, -0.484137, 4.484137), abs=1e-5)
    assert mean_interval([2, 2, 2]) == (2, 2, 2)
    assert mean_interval([5]) == (5, -INF, INF)


def test_ratio_interval():
    half = math.exp(4.302653 * math.log(2) / math.sqrt(3))  # logs -ln 2, 0, ln 2
    assert ratio_interval([0.5, 1, 2]) == pytest.approx((1, 1 / half, half), rel=1e-5)
    half = math.exp(12.706205 * math.log(2))
    assert ratio_interval([1, 4]) == pytest.approx((2, 2 / half, 2 * half), rel=1e-5)
    value, low, high = ratio_interval([0.5])
    assert (value, low, high) == (pytest.approx(0.5), 0, INF)
    for bad in (INF, math.nan, 0.0):
        assert ratio_interval([0.5, bad]) == (INF, 0, INF)


# Modes beside stock


def test_compare():
    """Stock gets to 0.3 in 2,000 tokens and 20 s, the mode in 1,000 and 10, and then further."""
    runs = {
        ("stock", 0): made_up([0.1, 0.2, 0.3, 0.3]),
        ("fast", 0): made_up([0.1, 0.3, 0.4], zero_std=(0.1, 0.3)),
    }
    figures = compare(runs, "fast", with_scoring=False)
    assert figures["seeds"] == 1
    assert figures["tokens_ratio"] == pytest.approx((0.5, 0, INF))
    assert figures["seconds_ratio"] == pytest.approx((0.5, 0, INF))
    assert figures["at_tokens"] == pytest.approx((0.1, -INF, INF))
    assert figures["useful_per_1k"] == pytest.approx(3.2)  # 0.9 and 0.7 of 4, in 2,000 tokens
    assert figures["useful_ratio"][0] == pytest.approx(1.6)  # stock's are 2
    assert figures["zero_std"] == pytest.approx(0.2) and figures["final_accuracy"] == 0.4
    stock = compare(runs, "stock", with_scoring=False)
    assert stock["tokens_ratio"][0] == 1 and stock["at_seconds"][0] == 0


def test_compare_at_the_greatest_cost_that_both_have_got_to():
    runs = {
        ("stock", 0): made_up([0.1, 0.2, 0.3]),
        ("short", 0): made_up([0.1, 0.2, 0.2], tokens=500, seconds=30.0),
    }
    figures = compare(runs, "short", with_scoring=False)
    assert figures["at_tokens"][0] == pytest.approx(0.0)  # at 1,000 tokens
    assert figures["at_seconds"][0] == pytest.approx(1 / 15 + 0.1 - 0.3)  # at 20 s
    assert figures["tokens_ratio"] == (INF, 0, INF)


def test_what_scoring_has_cost_comes_before_the_first_step():
    scoring = {"tokens": 500, "seconds": 5.0}
    runs = {
        ("stock", 0): made_up([0.1, 0.2, 0.3]),
        ("offline", 0): made_up([0.1, 0.3, 0.4], scoring=scoring),
    }
    figures = compare(runs, "offline", with_scoring=False)
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
    figures = compare(runs, "fast", with_scoring=False)
    assert figures["seeds"] == 2
    for axis in ("tokens", "seconds"):
        value, low, high = figures[f"{axis}_ratio"]
        assert value == pytest.approx(math.sqrt(0.5))
        assert low * high == pytest.approx(0.5) and low < value
        assert figures[f"at_{axis}"][0] == pytest.approx(0.05)
    assert figures["final_accuracy"] == pytest.approx(0.4) and figures["tokens"] == 4000


# The page

GOOD = {"zero_std": 0.25, "useful_ratio": (1.3, 1.01, 2), "tokens_ratio": (0.6, 0.3, 0.99)}
GOOD |= {"seconds_ratio": (0.5, 0.3, 0.99)}


@pytest.mark.parametrize(
    ("key", "change"),
    [
        (None, {}),
        ("zero_std", {"zero_std": 0.251}),
        ("useful_ratio", {"useful_ratio": (1.29, 1.01, 2)}),
        ("useful_ratio", {"useful_ratio": (1.5, 1.0, 2)}),
        ("tokens_ratio", {"tokens_ratio": (0.61, 0.3, 0.99)}),
        ("tokens_ratio", {"tokens_ratio": (0.4, 0.2, 1.0)}),
        ("tokens_ratio", {"tokens_ratio": (INF, 0, INF)}),
        ("seconds_ratio", {"seconds_ratio": (0.51, 0.3, 0.99)}),
        ("seconds_ratio", {"seconds_ratio": (0.4, 0.2, 1.0)}),
    ],
)
def test_targets(key, change):
    figures = {"stock": {"zero_std": 0.5}, "predictive": GOOD | change}
    figures["predictive+refill"] = {"zero_std": 0.05}
    assert targets(figures) == {name: name != key for name in TARGETS}


def test_targets_that_need_what_was_not_run_or_is_not_there():
    assert targets({"stock": {"zero_std": 0.6}}) == dict.fromkeys(TARGETS)
    assert targets({"stock": {"zero_std": 0.49}, "predictive": GOOD}) == {
        "zero_std": False, "useful_ratio": True, "tokens_ratio": True, "seconds_ratio": True,
        "refill": None,
    }  # fmt: skip
    refill = {"stock": {"zero_std": 0.6}, "predictive+refill": {"zero_std": 0.051}}
    assert targets(refill) == dict.fromkeys(TARGETS) | {"refill": False}


def test_the_page():
    slow = [0.1, 0.1, 0.1, 0.2, 0.3]
    scoring = {"tokens": 1000, "seconds": 10.0}
    runs = {}
    for seed in (0, 1):
        runs["stock", seed] = made_up(slow, zero_std=(0.7,) * 4)
        runs["predictive", seed] = made_up([0.1, 0.3, 0.4, 0.4, 0.4], zero_std=(0.1,) * 4)
        runs["offline", seed] = made_up([0.1, 0.2, 0.3, 0.3, 0.3], scoring=scoring)
        runs["refill", seed] = made_up([0.1, 0.1, 0.1, 0.1, 0.2], seconds=40.0)
    figures = figures_of(runs, ["stock", "predictive", "offline", "refill"])
    assert [*figures] == ["stock", "predictive", "offline", "refill", "offline, scoring counted"]
    about = {
        "command": "make it", "token_budget": 4000, "cpu": "2 CPU cores",
        "commits": ["abc", "def"], "versions": {"trl": "1.16.0"},
    }  # fmt: skip
    page = write_page(figures, about, "page.png")
    assert page.startswith("# Curriculum, measured\n\n`make it`\n\nEvery run generates 4,000 ")
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    first, second = rows[:7], rows[7:]
    assert {row.count("|") for row in first} == {9} and {row.count("|") for row in second} == {7}
    assert first[2:4] == [
        "| stock | 2 | 4.0 | 0.700 | 0.500 | 1.20 | 1.00 [1.00, 1.00] | 40.0 |",
        "| predictive | 2 | 4.0 | 0.100 | 0.500 | 3.60 | 3.00 [3.00, 3.00] | 40.0 |",
    ]
    # Stock's 0.3 costs 4,000 tokens; refill is at 0.1 when stock's 40 s are over.
    assert second[2:] == [
        "| stock | 30.0 | 1 | 1 | 0 | 0 |",
        "| predictive | 40.0 | 0.25 [0.25, 0.25] | 0.25 [0.25, 0.25] | "
        "10.0 [10.0, 10.0] | 10.0 [10.0, 10.0] |",
        "| offline | 30.0 | 0.50 [0.50, 0.50] | 0.50 [0.50, 0.50] | "
        "0.0 [0.0, 0.0] | 0.0 [0.0, 0.0] |",
        "| refill | 20.0 | not reached by all | not reached by all | "
        "-10.0 [-10.0, -10.0] | -20.0 [-20.0, -20.0] |",
        "| offline, scoring counted | 30.0 | 0.75 [0.75, 0.75] | 0.75 [0.75, 0.75] | "
        "0.0 [0.0, 0.0] | 0.0 [0.0, 0.0] |",
    ]
    words = [line.rpartition(": ")[2] for line in page.splitlines() if line.startswith("- ")]
    assert words == ["met", "met", "met", "met", "not measured"]
    assert "](page.png)\n" in page and page.endswith("Commit abc, def. Versions: trl 1.16.0.\n")
    for seed in (0, 1):
        runs["predictive", seed] = made_up(slow, zero_std=(0.7,) * 4)
    page = write_page(figures_of(runs, ["stock", "predictive"]), about, "page.png")
    words = [line.rpartition(": ")[2] for line in page.splitlines() if line.startswith("- ")]
    assert words == ["**missed**"] * 4 + ["not measured"]


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
    with pytest.raises(ValueError, match="modes: 'best' is none of stock, offline"):
        BenchArguments(**keys, modes=["best"])
