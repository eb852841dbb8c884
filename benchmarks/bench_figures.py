"""Figures of the curriculum's benchmark: from the runs' results to a table with paired intervals.

Pure functions; `benchmarks.bench_curriculum` runs and writes.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats
from scipy.optimize import isotonic_regression

Result = dict[str, Any]  # what `benchmarks.bench_run` writes


def learning_curve(result: Result, axis: str) -> tuple[np.ndarray, np.ndarray]:
    """Cost and held-out accuracy at each test, the accuracies made to rise (isotonic regression).

    A noisy curve crosses any level too early; its best rising fit does not favour either side.

    Args:
        axis: "tokens" or "seconds".

    Returns:
        Two arrays, shape (tests,).
    """
    cost = np.array([test[axis] for test in result["tests"]], dtype=float)
    return cost, isotonic_regression([test["accuracy"] for test in result["tests"]]).x


def cost_of(result: Result, accuracy: float, axis: str) -> float:
    """Cost at which the learning curve first reaches an accuracy; infinite where it never does."""
    cost, curve = learning_curve(result, axis)
    reached = np.flatnonzero(curve >= accuracy)
    if not len(reached):
        return math.inf
    after = reached[0]
    if after == 0:
        return cost[0]
    share = (accuracy - curve[after - 1]) / (curve[after] - curve[after - 1])
    return float(cost[after - 1] + share * (cost[after] - cost[after - 1]))


def accuracy_at(result: Result, cost: float, axis: str) -> float:
    """Held-out accuracy at a cost, between the tests in proportion; NaN beyond the last."""
    costs, curve = learning_curve(result, axis)
    return float(np.interp(cost, costs, curve)) if cost <= costs[-1] else math.nan


def summary(result: Result) -> dict[str, float]:
    """What one run says by itself.

    Returns:
        `zero_std` (mean of TRL's `frac_reward_zero_std` over the steps, of what is trained on; with
        `advantage: batch` that figure is the batch's, and the groups are counted instead),
        `generated_zero_std` (of all groups that were generated), `useful_per_1k` (groups with a
        signal that were trained on, per 1,000 generated tokens), `tokens`, `seconds`, `steps`,
        `final_accuracy` (end of the learning curve).
    """
    steps, size = result["steps"], result["num_generations"]
    groups = [right for step in steps for right in step["groups"]]
    if result.get("arguments", {}).get("advantage") == "batch":
        steps = [
            step | {"zero_std": float(np.mean([right in (0, size) for right in step["groups"]]))}
            for step in steps
        ]
    useful = sum(1 - step["zero_std"] for step in steps) * result["groups_per_step"]
    tokens = steps[-1]["tokens"]
    return {
        "zero_std": float(np.mean([step["zero_std"] for step in steps])),
        "generated_zero_std": float(np.mean([right in (0, size) for right in groups])),
        "useful_per_1k": 1000 * useful / tokens,
        "tokens": tokens,
        "seconds": steps[-1]["seconds"],
        "steps": len(steps),
        "final_accuracy": float(learning_curve(result, "tokens")[1][-1]),
    }


def mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean of paired differences and its 95 % interval (Student's t); no interval of one value."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, -math.inf, math.inf
    half = stats.t.ppf(0.975, len(values) - 1) * float(np.std(values, ddof=1)) / len(values) ** 0.5
    return mean, mean - half, mean + half


def ratio_interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Geometric mean of paired ratios and its 95 % interval; infinite where one ratio is."""
    if not all(0 < ratio < math.inf for ratio in ratios):
        return math.inf, 0.0, math.inf
    mean, low, high = mean_interval([math.log(ratio) for ratio in ratios])
    return math.exp(mean), math.exp(low), math.exp(high)


def compare(runs: dict[tuple[str, int], Result], mode: str, with_scoring: bool) -> dict[str, Any]:
    """A mode beside "stock", paired by seed.

    Args:
        runs: results by (mode, seed); "stock" has all the seeds of `mode`.
        with_scoring: add what the offline filter's pass rates have cost to every cost.

    Returns:
        `(value, low, high)` of the ratios `useful_ratio`, `tokens_ratio` and `seconds_ratio` (cost
        at which stock's final accuracy is reached, over stock's), and of the differences in
        accuracy `at_tokens` and `at_seconds`, each at the greatest cost both have got to; means of
        the single runs' figures.
    """
    pairs = []
    for (name, seed), result in sorted(runs.items()):
        if name == mode and ("stock", seed) in runs:
            extra = result["scoring"] if with_scoring else {"tokens": 0, "seconds": 0.0}
            shifted = [
                {**test, **{axis: test[axis] + extra[axis] for axis in extra}}
                for test in result["tests"]
            ]
            pairs.append((result | {"tests": shifted}, runs["stock", seed], extra))
    assert pairs, mode
    singles = [summary(mine) for mine, _, _ in pairs]
    figures: dict[str, Any] = {"seeds": len(pairs)}
    figures |= {key: float(np.mean([single[key] for single in singles])) for key in singles[0]}
    figures["useful_per_1k"] = float(
        np.mean([useful_with(s, extra) for s, (_, _, extra) in zip(singles, pairs, strict=True)])
    )
    useful = [
        useful_with(summary(mine), extra) / summary(stock)["useful_per_1k"]
        for mine, stock, extra in pairs
    ]
    figures["useful_ratio"] = ratio_interval(useful)
    for axis in ("tokens", "seconds"):
        ratios, differences = [], []
        for mine, stock, _ in pairs:
            target = summary(stock)["final_accuracy"]
            ratios.append(cost_of(mine, target, axis) / cost_of(stock, target, axis))
            cost = min(result["tests"][-1][axis] for result in (mine, stock))
            differences.append(accuracy_at(mine, cost, axis) - accuracy_at(stock, cost, axis))
        figures[f"{axis}_ratio"] = ratio_interval(ratios)
        figures[f"at_{axis}"] = mean_interval(differences)
    return figures


def useful_with(single: dict[str, float], scoring: dict[str, float]) -> float:
    """Useful groups per 1,000 generated tokens where scoring's tokens count as well."""
    return single["useful_per_1k"] * single["tokens"] / (single["tokens"] + scoring["tokens"])
