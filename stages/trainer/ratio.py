"""Minibatch early-stop: a minibatch that the policy has drifted too far from is not learned from.

The rule of RealHF, AReaL and RLinf: where the mean importance ratio of a minibatch's completion
tokens, taken over all processes, exceeds a threshold (5.0 there), its loss is replaced by zero. It
differs from theirs in three ways. A ratio or a loss that is not finite counts as exceeding, where
`nan > 5` would let it pass. A window of minibatches that were all dropped takes no optimizer step
at all: with a gradient of zero Adam would still apply its momentum and the weight decay. And
neither does one whose gradient is not finite.

The ratio is 1 by construction unless TRL keeps `old_per_token_logps`, which it does where several
optimizer steps share a generation batch, and with vLLM.
"""

import math

import torch


class Window:
    """The minibatches of one optimizer step, and how many of them were dropped.

    A skipped step still counts as a step, for the learning-rate schedule too. The minibatches that
    remain in a window keep their weight: the loss is divided by what it would be divided by without
    the drop (for `dapo` the tokens of the whole generation batch).
    """

    def __init__(self) -> None:
        self._num_minibatches = self._num_dropped = 0

    def add(self, is_kept: bool) -> None:
        """Count a minibatch."""
        self._num_minibatches += 1
        self._num_dropped += not is_kept

    def close(self, grad_norm: float) -> bool:
        """Whether to take the optimizer step; a new window begins."""
        is_taken = self._num_dropped < self._num_minibatches and math.isfinite(grad_norm)
        self._num_minibatches = self._num_dropped = 0
        return is_taken


def ratio_totals(
    logps: torch.Tensor, old_logps: torch.Tensor | None, mask: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sum of the importance ratios of one process's completion tokens, and their number.

        ratio_t = pi(o_t) / pi_old(o_t) = exp(logp_t - old_logp_t)

    Args:
        logps: of the policy, shape (B, C).
        old_logps: of the policy that wrote the completions, shape (B, C); None where it is the
            policy itself.
        mask: not 0 where a token counts, shape (B, C).

    Returns:
        Two 0-d float32 tensors. The sum is inf or NaN where the ratio of a token that counts is.
    """
    logps = logps.detach().float()
    old_logps = logps if old_logps is None else old_logps.float()
    # Chosen, not multiplied, because padding may hold anything and NaN * 0 is NaN.
    ratios = torch.where(mask.bool(), torch.exp(logps - old_logps), 0.0)
    return ratios.sum(), mask.bool().sum().float()


def zero_loss(logps: torch.Tensor) -> torch.Tensor:
    """0.0 whatever the log-probs, with a gradient of 0 for each of them.

    The gradient must run through the model: DDP and FSDP wait for every parameter's, and at a
    window's last minibatch they also carry those of the others. Where the model's own activations
    are not finite, 0 * inf makes some NaN on the way; then the whole window is left out.

    Args:
        logps: with their graph, shape (B, C).
    """
    return (torch.nan_to_num(logps) * 0.0).sum()
