"""Metrics of one problem, errors and intervals: by hand, by brute force, by property."""

import math
import random
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.harness import metrics
from eval.harness.metrics import majority_at_k, mean_interval, pass_at_k


@settings(max_examples=60, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=8), st.data())
def test_pass_at_k_is_the_mean_over_all_subsets(right, data):
    k = data.draw(st.integers(1, len(right)))
    subsets = list(combinations(right, k))
    expected = sum(map(any, subsets)) / len(subsets)
    assert pass_at_k(len(right), sum(right), k) == pytest.approx(expected)
    assert pass_at_k(200, 1, 100) == 1 / 2  # in integers


def votes(*predictions):
    """Records that vote as told; `"4"` and `"=4"` are right, None abstains."""
    return [
        {"verdict": "right" if one in ("4", "=4") else "wrong", "prediction": one}
        for one in predictions
    ]


def majority(predictions):
    """In either order."""
    records = votes(*predictions)
    assert majority_at_k(records) == majority_at_k(records[::-1])
    return majority_at_k(records)


def mean_of(values):
    found = mean_interval(values)
    return [found["value"], found["stderr"], found["n"]]


def interval_of(value, bounds):
    """Of thirty such values."""
    found = mean_interval([value] * 30, bounds)
    assert found["stderr"] == 0
    return [found["low"], found["high"]]


def test_majority_compares_each_answer_with_a_few_classes_only(monkeypatch):
    calls = []
    monkeypatch.setattr(metrics, "is_same_value", lambda *pair: bool(calls.append(pair)))
    scattered = [f"x^{i}" for i in range(255)]
    assert majority_at_k(votes("4", *scattered)) == pytest.approx(1 / 256)
    assert len(calls) <= 255 * metrics.MAX_CLASSES
    calls.clear()
    # Nothing to compare where the result is known: no right vote, or too few wrong ones.
    assert majority_at_k(votes(*scattered)) == 0.0
    assert majority_at_k(votes(*["4"] * 3, *scattered[:2])) == 1.0
    assert not calls


def test_the_interval_by_hand():
    # Two more values, 0 and 1: seven, of mean 3/7, whose squares about it sum to 12/7.
    half = 2.776 * math.sqrt(12 / 7 / 6 / 7)
    for least in (0.0, -1.0):
        found = mean_interval([1.0, 0.0, 0.0, 1.0, 0.0], bounds=(least, 1.0))
        expected = max(least, 3 / 7 - half), 3 / 7 + half
        assert (found["low"], found["high"]) == pytest.approx(expected)


def beta(a, b, k):
    return lambda rng: sum(rng.random() < rate for rate in [rng.betavariate(a, b)] * k) / k


def paired(gain, loss):
    return lambda rng: (u := rng.random()) and (float(u < gain) - float(u > 1 - loss))


# One problem's value, its mean and bounds; greedy, k samples, paired differences.
KINDS = {
    "even": (lambda rng: float(rng.random() < 0.5), 0.5, 0),
    "easy": (lambda rng: float(rng.random() < 0.9), 0.9, 0),
    "rare": (lambda rng: float(rng.random() < 0.03), 0.03, 0),
    "avg@4": (beta(0.5, 0.5, 4), 0.5, 0),
    "avg@16": (beta(0.3, 1.2, 16), 0.2, 0),
    "more gained than lost": (paired(0.2, 0.1), 0.1, -1),
    "few gained": (paired(0.05, 0.0), 0.05, -1),
    "k samples": (lambda rng: beta(2, 1, 8)(rng) - beta(1, 2, 8)(rng), 1 / 3, -1),
}


def test_intervals_cover_95_percent_at_30_problems():
    """95 % on average, no kind below 90; the percentile bootstrap covered 57 % of the rare ones."""
    rng, covered = random.Random(0), {}
    for name, (draw, mean, low) in KINDS.items():
        found = [mean_interval([draw(rng) for _ in range(30)], (low, 1.0)) for _ in range(400)]
        covered[name] = sum(one["low"] <= mean <= one["high"] for one in found) / len(found)
    assert min(covered.values()) >= 0.9, covered
    assert sum(covered.values()) / len(covered) >= 0.95, covered


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=2, max_size=30))
def test_an_interval_holds_the_mean_and_keeps_its_bounds(values):
    found = mean_interval(values, (-1.0, 1.0))
    assert -1 <= found["low"] <= found["value"] + 1e-12 and found["value"] - 1e-12 <= found["high"]
    assert found["high"] <= 1
