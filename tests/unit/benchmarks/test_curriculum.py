"""The figures of the curriculum's benchmark, on runs made up so that each can be worked out."""

import math
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from benchmarks.curriculum import (
    MODES,
    BenchArguments,
    accuracy_at,
    compare,
    cost_of,
    render_accuracy,
    render_groups,
    summary,
)
from stages.arguments import GRPO, GrpoArguments
from stages.rules import check_grpo_keys
from tests.settings import settings_of

RECIPE = Path(__file__).parents[3] / "configs/skewed-cpu/grpo.yaml"
INF = math.inf


def made_up(accuracies, tokens=1000, seconds=10.0, zero_std=(0.5, 0.5), **keys):
    """A run with a test before the first step and after each; each step takes as much."""

    def costs(i):
        return {"tokens": tokens * i, "seconds": seconds * i}

    tests = [costs(i) | {"accuracy": accuracy} for i, accuracy in enumerate(accuracies)]
    steps = [costs(i) | {"zero_std": s, "groups": [0, 8, 3, 5]} for i, s in enumerate(zero_std, 1)]
    result = {"tests": tests, "steps": steps, "groups_per_step": 4, "num_generations": 8}
    return result | {"scoring": {"tokens": 0, "seconds": 0.0}} | keys


RUN = made_up([0.1, 0.3, 0.2, 0.4])  # risen: 0.1, 0.25, 0.25, 0.4


@pytest.mark.parametrize(("axis", "unit"), [("tokens", 1), ("seconds", 0.01)])
def test_cost_of_an_accuracy_and_accuracy_at_a_cost(axis, unit):
    costs = {0.05: 0, 0.1: 0, 0.175: 500, 0.25: 1000, 0.325: 2500, 0.4: 3000, 0.41: INF}
    for accuracy, cost in costs.items():
        assert cost_of(RUN, accuracy, axis) == pytest.approx(cost * unit)
    for cost, accuracy in {0: 0.1, 500: 0.175, 1500: 0.25, 3000: 0.4, 3001: math.nan}.items():
        assert accuracy_at(RUN, cost * unit, axis) == pytest.approx(accuracy, nan_ok=True)


def test_summary():
    result = made_up([0.1, 0.3, 0.2], zero_std=(0.5, 0.25), tokens=1250)
    result["steps"][1]["groups"] = [8, 1, 7, 0, 4, 0]  # with two that were replaced
    # Useful: half of 4, then three quarters of 4, in 2,500 tokens. Uniform: 2 of 4, then 3 of 6.
    expected = {
        "zero_std": 0.375, "generated_zero_std": 0.5, "useful_per_1k": 2.0,
        "tokens": 2500, "seconds": 20.0, "steps": 2, "final_accuracy": 0.25,
    }  # fmt: skip
    assert summary(result) == pytest.approx(expected)


def test_compare():
    """Stock gets to 0.3 in 2,000 tokens and 20 s, the mode in 1,000 and 10, and then further."""
    fast = made_up([0.1, 0.3, 0.4], zero_std=(0.1, 0.3))
    figures = compare({("stock", 0): made_up([0.1, 0.2, 0.3, 0.3]), ("fast", 0): fast}, "fast")
    assert figures["tokens_ratio"] == figures["seconds_ratio"] == pytest.approx((0.5, 0, INF))
    assert figures["mean_curves_ratio"][0] == pytest.approx(0.5)
    assert figures["at_tokens"] == pytest.approx((0.1, -INF, INF))
    assert figures["useful_per_1k"] == pytest.approx(3.2)  # 0.9 and 0.7 of 4, in 2,000 tokens
    assert figures["useful_ratio"][0] == pytest.approx(1.6)  # stock's are 2
    # At the greatest cost that both have got to: 1,000 tokens, 20 seconds.
    short = made_up([0.1, 0.2, 0.2], tokens=500, seconds=30.0)
    figures = compare({("stock", 0): made_up([0.1, 0.2, 0.3]), ("short", 0): short}, "short")
    assert figures["at_tokens"][0] == pytest.approx(0.0)
    assert figures["at_seconds"][0] == pytest.approx(1 / 15 + 0.1 - 0.3)
    assert figures["tokens_ratio"] == (INF, 0, INF)


def test_the_mean_curve_reaches_what_single_seeds_do_not():
    """One seed stays at 0.2, the other gets to 0.5 within half of stock's tokens."""
    runs = {("stock", seed): made_up([0.1, 0.2, 0.3]) for seed in (0, 1)}
    runs |= {("fast", 0): made_up([0.1, 0.2, 0.2]), ("fast", 1): made_up([0.1, 0.5, 0.5])}
    figures = compare(runs, "fast")
    assert figures["tokens_ratio"] == (INF, 0, INF)
    value, low, high = figures["mean_curves_ratio"]
    assert value == pytest.approx(0.4, abs=0.01) and high == INF  # 0.1 to 0.35 within 1,000
    assert low == pytest.approx(0.25, abs=0.01)  # the second alone


def test_what_scoring_has_cost_comes_before_the_first_step():
    offline = made_up([0.1, 0.3, 0.4], scoring={"tokens": 500, "seconds": 5.0})
    runs = {("stock", 0): made_up([0.1, 0.2, 0.3]), ("offline", 0): offline}
    assert compare(runs, "offline")["tokens_ratio"][0] == pytest.approx(0.5)
    counted = compare(runs, "offline", with_scoring=True)
    assert counted["tokens_ratio"][0] == counted["seconds_ratio"][0] == pytest.approx(0.75)
    assert counted["at_tokens"][0] == counted["at_seconds"][0] == pytest.approx(0.05)
    assert counted["useful_per_1k"] == pytest.approx(2 * 2000 / 2500)


def test_modes_are_paired_by_seed():
    """Ratios 0.5 and 1 are 0.5 and 1 however much slower one seed's machine was."""
    slow = made_up([0.1, 0.2, 0.4], tokens=3000, seconds=70.0)
    runs = {("fast", 1): slow, ("stock", 0): made_up([0.1, 0.2, 0.3]), ("stock", 1): slow}
    runs["fast", 0] = made_up([0.1, 0.3, 0.4])
    runs["fast", 2] = made_up([0.9, 0.9, 0.9])  # stock has not run yet
    figures = compare(runs, "fast")
    assert figures["seeds"] == 2 and figures["final_accuracy"] == pytest.approx(0.4)
    for axis in ("tokens", "seconds"):
        value, low, high = figures[f"{axis}_ratio"]
        assert value == pytest.approx(math.sqrt(0.5))
        assert low * high == pytest.approx(0.5) and low < value
        assert figures[f"at_{axis}"][0] == pytest.approx(0.05)


def test_nothing_learned_gives_no_ratio():
    figures = compare({("stock", 0): made_up([0.0, 0.0], zero_std=(1.0,))}, "stock")
    assert figures["useful_ratio"] == figures["tokens_ratio"] == (INF, 0, INF)
    (groups,), (accuracy,) = (part({"stock": figures}) for part in (render_groups, render_accuracy))
    assert groups["ratio to stock"] == accuracy["tokens needed"] == "none"
    assert accuracy["final accuracy, %"] == "0.0"


def test_modes_are_settings_of_the_recipe():
    names = {f.name for f in fields(GrpoArguments)}
    recipe = yaml.safe_load(RECIPE.read_text(encoding="utf-8"))
    for mode, changes in MODES.items():
        assert not any(letter.isspace() for letter in mode)  # they are a list in make
        values = recipe | changes
        values |= {"pass_rates": "made.jsonl"} if mode == "offline" else {}
        check_grpo_keys(settings_of(values, GrpoArguments, GRPO))
        GrpoArguments(**{key: value for key, value in values.items() if key in names})


def test_stock_is_always_run():
    keys = {"grpo_config": "c", "recipe_run": "r", "out": "o"}
    assert BenchArguments(**keys).modes == [*MODES]
    assert BenchArguments(**keys, modes=["refill"]).modes == ["stock", "refill"]
