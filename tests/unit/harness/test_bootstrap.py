"""Errors and intervals by hand where the bootstrap distribution is known, and by property."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.harness import metrics as bootstrap
from eval.harness.metrics import mean_interval, paired_difference, problem_means


def test_samples_of_one_problem_are_averaged_first():
    pairs = [("a", 1.0), ("b", 0.0), ("a", 0.0), ("a", 0.5), ("b", 1.0)]
    assert problem_means(pairs) == {"a": 0.5, "b": 0.5}


@pytest.mark.parametrize(
    ("values", "mean", "stderr"),
    [
        ([1, 0, 1, 0], 0.5, math.sqrt((4 * 0.25 / 3) / 4)),
        ([0.5, 0.5, 0.5], 0.5, 0.0),
        ([1, 0.25], 0.625, 0.375),  # s = 0.75 / sqrt(2), over sqrt(2)
    ],
)
def test_mean_and_stderr_by_hand(values, mean, stderr):
    found = mean_interval(values)
    assert (found["value"], found["n"]) == (pytest.approx(mean), len(values))
    assert found["stderr"] == pytest.approx(stderr)


@pytest.mark.parametrize(("level", "low", "high"), [(0.95, 0.0, 1.0), (0.4, 0.5, 0.5)])
def test_interval_of_two_problems_by_hand(level, low, high):
    # The means of two draws from {0, 1} are 0, 1/2, 1 with probabilities 1/4, 1/2, 1/4: the
    # quantiles 0.025 and 0.975 are 0 and 1, the quantiles 0.3 and 0.7 both 1/2.
    found = mean_interval([0.0, 1.0], level=level)
    assert (found["low"], found["high"]) == (low, high)


def test_one_problem_has_a_value_and_no_error():
    assert mean_interval([0.75]) == {
        "value": 0.75, "stderr": None, "low": None, "high": None, "n": 1
    }  # fmt: skip


def test_more_draws_than_one_block_holds(monkeypatch):
    whole = mean_interval([0.0, 1.0, 0.5] * 100, resamples=1000)
    monkeypatch.setattr(bootstrap, "BLOCK", 700)  # two rows at once
    blocks = mean_interval([0.0, 1.0, 0.5] * 100, resamples=1000)
    assert blocks["low"] == pytest.approx(whole["low"], abs=0.01)
    monkeypatch.setattr(bootstrap, "BLOCK", 10)  # fewer values than one row has
    assert mean_interval([0.0, 1.0] * 10, resamples=11)["n"] == 20


def test_paired_difference_by_hand():
    before = {"a": 1.0, "b": 0.0, "c": 0.5}
    after = {"c": 1.0, "a": 1.0, "b": 1.0}
    # Differences 0, 1, 0.5: mean 0.5, s = 0.5, s / sqrt(3). The lowest of the 27 equally likely
    # samples (0, 0, 0) has probability 1/27 > 0.025, and so has the highest.
    assert paired_difference(before, after) == {
        "value": 0.5, "stderr": pytest.approx(0.5 / math.sqrt(3)), "low": 0.0, "high": 1.0, "n": 3
    }  # fmt: skip


def test_same_seed_same_interval_in_any_order():
    before = {("s", str(i)): math.sin(i) for i in range(60)}
    after = {("s", str(i)): math.cos(3 * i) for i in range(60)}
    found = paired_difference(before, after)
    assert found == paired_difference(dict(reversed(before.items())), dict(reversed(after.items())))
    assert found != paired_difference(before, after, seed=1)


def test_other_problems_are_refused_by_name():
    with pytest.raises(ValueError, match=r"'b'\) was scored on one side only; run `make eval`"):
        paired_difference({("s", "a"): 1.0}, {("s", "a"): 1.0, ("s", "b"): 0.0})


@pytest.mark.parametrize(
    ("values", "setting", "expected"),
    [
        ([], {}, "no problems"),
        ([1, 0], {"resamples": 0}, "at least 1"),
        ([1, 0], {"level": 1}, "in"),
    ],
)
def test_what_cannot_be_computed_is_refused(values, setting, expected):
    with pytest.raises(ValueError, match=expected):
        mean_interval(values, **setting)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=2, max_size=30))
def test_an_interval_lies_within_the_values(values):
    found = mean_interval(values, resamples=200)
    assert min(values) - 1e-9 <= found["low"] <= found["high"] <= max(values) + 1e-9
    assert found["stderr"] >= 0
