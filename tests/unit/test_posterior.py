"""The posterior of a logit, beside dense sums over a fine grid and by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.trainer.posterior import add_binomial, expected_rate, useful_chance

quick = settings(deadline=None, max_examples=50, derandomize=True, database=None)
MEANS, VARIANCES = st.floats(-40, 40), st.floats(0.01, 30)
COUNTS = st.integers(1, 64).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


def add(mean, variance, right, total):
    """`add_binomial` of one problem."""
    (new_mean,), (new_variance,) = add_binomial(
        *(np.array([x], dtype=float) for x in (mean, variance, right, total))
    )
    return float(new_mean), float(new_variance)


def useful(mean, variance, num_generations):
    return float(useful_chance(np.array([mean]), np.array([variance]), num_generations)[0])


def rate(mean, variance):
    return float(expected_rate(np.array([mean]), np.array([variance]))[0])


def on_grid(mean, variance, right=0, total=0):
    """Points and normalised weights of the density, on a grid that is fine and wide enough."""
    reach = 12 * variance**0.5
    low, high = mean - reach - variance * (total - right), mean + reach + variance * right
    eta = np.linspace(low, high, 20_001)
    log_density = -((eta - mean) ** 2) / (2 * variance)
    log_density += right * np.log(sigmoid(eta)) + (total - right) * np.log(sigmoid(-eta))
    weights = np.exp(log_density - log_density.max())
    return eta, weights / weights.sum()


def sigmoid(eta):
    return 1 / (1 + np.exp(-np.clip(eta, -700, 700)))


def logit(p):
    return np.log(p / (1 - p))


# Without any doubt about p: 1 - p^G - (1-p)^G.
@pytest.mark.parametrize(
    ("p", "num_generations", "chance"),
    [(0.5, 2, 0.5), (0.5, 4, 0.875), (0.5, 8, 1 - 2 / 256), (0.1, 2, 0.18), (0.9, 4, 0.3438)],
)
def test_useful_chance_by_hand(p, num_generations, chance):
    assert useful(logit(p), 1e-12, num_generations) == pytest.approx(chance, abs=1e-9)
    assert rate(logit(p), 1e-12) == pytest.approx(p, abs=1e-9)


@pytest.mark.parametrize("variance", [0.01, 2.25, 4.5, 10.0, 30.0])
@pytest.mark.parametrize("mean", [0.0, 1.5, -4.0, 12.0])
def test_expectations_agree_with_a_fine_grid(mean, variance):
    eta, weights = on_grid(mean, variance)
    p = sigmoid(eta)
    # The curriculum's priors start at 4.5; beyond 10, 31 nodes are coarse for a step of width 1.
    tolerance = 0.003 if variance <= 10 else 0.015
    assert rate(mean, variance) == pytest.approx(weights @ p, abs=tolerance)
    for size in (2, 4, 8, 16):
        expected = weights @ (1 - p**size - (1 - p) ** size)
        assert useful(mean, variance, size) == pytest.approx(expected, abs=tolerance), size


@pytest.mark.parametrize("variance", [0.01, 0.3, 2.25, 4.5, 30.0])
@pytest.mark.parametrize(
    ("right", "total"), [(0, 8), (1, 8), (4, 8), (8, 8), (0, 1), (32, 64), (1000, 1000)]
)
def test_add_binomial_agrees_with_a_fine_grid(variance, right, total):
    for mean in (0.0, 1.5, -4.0, 12.0):
        eta, weights = on_grid(mean, variance, right, total)
        expected = weights @ eta
        spread = weights @ (eta - expected) ** 2
        new_mean, new_variance = add(mean, variance, right, total)
        assert new_mean == pytest.approx(expected, abs=0.03 * spread**0.5), mean
        assert new_variance == pytest.approx(spread, rel=0.02), mean


def test_many_rollouts_outweigh_the_prior():
    """Mean logit(k/n) and variance 1 / (n p (1-p)), as of a binomial alone."""
    new_mean, new_variance = add(0.0, 4.5, 800, 1000)
    assert new_mean == pytest.approx(logit(0.8), abs=0.01)
    assert new_variance == pytest.approx(1 / 160, rel=0.02)


def test_no_rollouts_change_nothing():
    assert add(1.5, 2.0, 0, 0) == pytest.approx((1.5, 2.0), rel=1e-9)


@pytest.mark.parametrize("mean", [-1000.0, -40.0, 40.0, 1000.0])
@pytest.mark.parametrize("variance", [0.01, 4.5, 30.0])
def test_a_policy_that_is_sure_and_wrong_about_it_is_no_overflow(mean, variance):
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        assert rate(mean, variance) == pytest.approx(float(mean > 0), abs=1e-2)
        assert useful(mean, variance, 8) <= 0.05
        for right in (0, 8):
            new_mean, new_variance = add(mean, variance, right, 8)
            assert np.isfinite(new_mean) and 0 < new_variance <= 1.03 * variance
    # So far out the likelihood is exp(8 eta) or flat: the normal moves by 8 variances, or stays.
    if abs(mean) == 1000:
        against = -1 if mean > 0 else 1
        assert add(mean, variance, 4 - 4 * against, 8) == pytest.approx((mean, variance), rel=1e-6)
        moved, kept = add(mean, variance, 4 + 4 * against, 8)
        assert moved == pytest.approx(mean + against * 8 * variance, rel=1e-6)
        assert kept == pytest.approx(variance, rel=1e-6)


@quick
@given(MEANS, VARIANCES, COUNTS)
def test_more_right_is_a_higher_mean_and_seeing_is_never_less_sure(mean, variance, counts):
    right, total = counts
    new_mean, new_variance = add(mean, variance, right, total)
    assert np.isfinite(new_mean) and 0 < new_variance <= 1.02 * variance
    if right < total:
        assert add(mean, variance, right + 1, total)[0] > new_mean
    if right == 0:
        assert new_mean <= mean + 1e-9
        assert add(mean, variance, 0, total + 1)[0] <= new_mean
    # Right and wrong are alike.
    mirrored = add(-mean, variance, total - right, total)
    assert mirrored == pytest.approx((-new_mean, new_variance), rel=1e-6, abs=1e-9)


@quick
@given(MEANS, VARIANCES, st.integers(2, 32))
def test_chances_are_chances(mean, variance, size):
    chance, expected = useful(mean, variance, size), rate(mean, variance)
    assert 0 <= chance <= 1 - 2 * 0.5**size + 1e-12 and 0 <= expected <= 1
    assert useful(-mean, variance, size) == pytest.approx(chance, abs=1e-12)
    assert rate(-mean, variance) == pytest.approx(1 - expected, abs=1e-12)
    assert useful(mean, variance, size + 1) >= chance - 1e-12
    assert rate(mean + 1, variance) >= expected


def test_problems_are_computed_side_by_side():
    mean, variance = np.array([0.0, -3.0, 5.0]), np.array([0.5, 4.5, 9.0])
    right, total = np.array([8, 1, 0]), np.array([8, 4, 16])
    new_mean, new_variance = add_binomial(mean, variance, right, total)
    rows = list(zip(mean, variance, right, total, strict=True))
    assert [*zip(new_mean, new_variance, strict=True)] == [
        pytest.approx(add(*row), rel=1e-12) for row in rows
    ]
    assert useful_chance(mean, variance, 8) == pytest.approx([useful(*r[:2], 8) for r in rows])
    assert expected_rate(mean, variance) == pytest.approx([rate(*r[:2]) for r in rows])
    assert mean.tolist() == [0.0, -3.0, 5.0] and variance.tolist() == [0.5, 4.5, 9.0]
