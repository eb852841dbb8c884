"""A pass rate whose logit is a normal: what follows from it, and how a group changes it.

    eta ~ N(mean, variance),  p = 1 / (1 + exp(-eta))

Integrals over eta are Gauss-Hermite quadratures with 31 nodes, around the prior or, where a group
has been seen, around the mode that it leads to. Pure functions of numpy arrays.
"""

import numpy as np

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(31)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_LOG_WEIGHTS = np.log(_WEIGHTS) + _NODES**2 / 2  # without the normal, for densities of any shape


def _logits(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Quadrature points, shape (N, 31)."""
    return mean[:, None] + np.sqrt(variance)[:, None] * _NODES


def _sigmoid(eta: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0, -eta))  # without overflow


def expected_rate(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """E[p], shape (N,), in [0, 1]."""
    return np.minimum(_sigmoid(_logits(mean, variance)) @ _WEIGHTS, 1.0)  # sums may round up


def useful_chance(mean: np.ndarray, variance: np.ndarray, num_generations: int) -> np.ndarray:
    """Chance that a group is neither all right nor all wrong.

        U = E[1 - p^G - (1-p)^G],  logit p ~ N(mean, variance)

    Args:
        mean, variance: of the logit, shape (N,).
        num_generations: G.

    Returns:
        Shape (N,), in [0, 1].
    """
    eta = _logits(mean, variance)  # (N, nodes)
    # log p and log (1-p) without overflow
    log_p, log_q = -np.logaddexp(0, -eta), -np.logaddexp(0, eta)
    useful = 1 - np.exp(num_generations * log_p) - np.exp(num_generations * log_q)
    return np.clip(useful @ _WEIGHTS, 0.0, 1.0)


def add_binomial(
    mean: np.ndarray, variance: np.ndarray, right: np.ndarray, total: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of logits after `right` of `total` successes.

        of  N(eta; mean, variance) * p^right * (1-p)^(total-right),  p = 1 / (1 + exp(-eta))

    Args:
        mean, variance: of the normal priors; right, total: counts; all shape (N,).

    Returns:
        Means and variances, shape (N,), to be taken for a normal again (assumed density filter).
    """
    # Nodes around the prior would step over the peak of many rollouts. Newton's method finds the
    # mode from 0 without overshooting: there the slope of the log density has its inflection.
    mode = np.zeros(len(mean))
    for _ in range(20):
        rate = _sigmoid(mode)
        curvature = total * rate * (1 - rate) + 1 / variance
        step = (right - total * rate - (mode - mean) / variance) / curvature
        mode += step
        if (np.abs(step) < 1e-3).all():  # the integrals do not hang on its last digits
            break
    eta = _logits(mode, 1 / curvature)  # (N, nodes)
    log_density = -((eta - mean[:, None]) ** 2) / (2 * variance[:, None])
    log_density -= right[:, None] * np.logaddexp(0, -eta)
    log_density -= (total - right)[:, None] * np.logaddexp(0, eta)
    log_weights = _LOG_WEIGHTS + log_density
    weights = np.exp(log_weights - log_weights.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    new_mean = (weights * eta).sum(axis=1)
    return new_mean, (weights * (eta - new_mean[:, None]) ** 2).sum(axis=1)
