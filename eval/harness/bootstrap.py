"""Bootstrap: how sure a score, or the difference between two checkpoints, is.

The problem is the unit: the k samples of one problem are not independent, so they are averaged
first (`problem_means`), and only the means of the problems are resampled. With problems as clusters
of equal size that is the clustered standard error (Miller 2024, "Adding Error Bars to Evals",
arXiv:2411.00640, on clustering and on resampling answers).
"""

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence

import numpy as np

BLOCK = 1_000_000  # values drawn at once: 16 MB for the indices and the values


def problem_means(values: Iterable[tuple[Hashable, float]]) -> dict[Hashable, float]:
    """`{problem: mean of its values}` from (problem, value) pairs, one for each completion."""
    found: dict[Hashable, list[float]] = defaultdict(list)
    for problem, value in values:
        found[problem].append(value)
    return {problem: math.fsum(each) / len(each) for problem, each in found.items()}


def mean_interval(
    values: Sequence[float], seed: int = 0, resamples: int = 10_000, level: float = 0.95
) -> dict[str, float | int | None]:
    """Mean over problems with its standard error and its percentile bootstrap interval.

    The standard error is s / sqrt(n), s with Bessel's n - 1. The interval is
    between the (1 - level) / 2 and (1 + level) / 2 quantiles of the means of `resamples` samples of
    n problems with replacement (Efron 1979). It cannot leave the range of the values; where all
    values are equal it has no width, which is no certainty.

    Args:
        values: one for each problem, the mean over its samples.
        seed: of the resampling; the same arguments give the same interval.
        resamples: number of bootstrap samples, at least 1.
        level: coverage, in (0, 1).

    Returns:
        `{"value", "stderr", "low", "high", "n"}`; of one problem stderr, low and high are None.

    Raises:
        ValueError: no values, or a setting out of its range.
    """
    if not len(values):
        raise ValueError("there are no problems to take a mean over; run `make eval` again")
    if resamples < 1 or not 0 < level < 1:
        raise ValueError(f"resamples = {resamples} must be at least 1, level = {level} in (0, 1)")
    n = len(values)
    mean = math.fsum(values) / n
    if n == 1:
        return {"value": mean, "stderr": None, "low": None, "high": None, "n": 1}
    stderr = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1) / n)
    means = _resampled_means(np.asarray(values, dtype=np.float64), seed, resamples)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return {"value": mean, "stderr": stderr, "low": float(low), "high": float(high), "n": n}


def _resampled_means(values: np.ndarray, seed: int, resamples: int) -> np.ndarray:
    """Means [resamples] of bootstrap samples of `values` [n], drawn in blocks of rows."""
    generator = np.random.default_rng(seed)
    n = len(values)
    rows = max(1, BLOCK // n)
    means = np.empty(resamples)
    for start in range(0, resamples, rows):
        count = min(rows, resamples - start)
        drawn = generator.integers(0, n, size=(count, n))  # [count, n]
        means[start : start + count] = values[drawn].mean(axis=1)
    return means


def paired_difference(
    before: Mapping[Hashable, float],
    after: Mapping[Hashable, float],
    seed: int = 0,
    resamples: int = 10_000,
    level: float = 0.95,
) -> dict[str, float | int | None]:
    """Mean over problems of `after - before`, with standard error and bootstrap interval.

    Pairing takes the problems' own difficulty out: the error is that of the differences (Miller
    2024, section 4.2), usually far below the two scores' own.

    Args:
        before: a number for each problem, the mean over its samples; see `problem_means`.
        after: the same of the other checkpoint, over the same problems in any order.
        seed, resamples, level: as for `mean_interval`.

    Returns:
        As `mean_interval`.

    Raises:
        ValueError: the two sides hold different problems, or none.
    """
    if before.keys() != after.keys():
        only = min(before.keys() ^ after.keys(), key=repr)
        raise ValueError(f"problem {only} was scored on one side only; run `make eval` again")
    # Sorted, so that the order of the files' lines does not move the interval.
    differences = [after[problem] - before[problem] for problem in sorted(before, key=repr)]
    return mean_interval(differences, seed, resamples, level)
