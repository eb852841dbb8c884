"""Minibatch early-stop: a minibatch that the policy has drifted too far from is not learned from.

Used by the trainer of `stages.grpo`. The rule of RealHF, AReaL and RLinf: where the mean importance
ratio of a minibatch's completion tokens, taken over all processes, exceeds a threshold (5.0 there),
its loss is replaced by zero. It differs from theirs in three ways. A ratio or a loss that is not
finite counts as exceeding, where `nan > 5` would let it pass. A window of minibatches that were all
dropped takes no optimizer step at all: with a gradient of zero Adam would still apply its momentum
and the weight decay. And neither does one whose gradient is not finite.

The ratio is 1 by construction unless TRL keeps `old_per_token_logps`, which it does where several
optimizer steps share a generation batch, and with vLLM.
"""

import math
from typing import Any

import torch
from trl import GRPOTrainer

from data_prep.config import UserError


class MinibatchEarlyStop(GRPOTrainer):
    """Drops minibatches by `max_mean_ratio`; None, the default, leaves TRL's trainer as it is.

    Logs the mean ratio as `train/mean_ratio`, the share of dropped minibatches as
    `train/dropped_minibatches` and the share of optimizer steps left out as `train/skipped_steps`.
    A step left out still counts as a step, for the learning-rate schedule too. The minibatches
    that remain in a window keep their weight: the loss is divided by what it would be divided by
    without the drop (for `dapo` the tokens of the whole generation batch).
    """

    max_mean_ratio: float | None = None

    _capture_logps = False
    _per_token_logps: torch.Tensor | None = None  # of the minibatch in hand, with its graph, (B, C)
    _num_minibatches = 0  # of the accumulation window so far
    _num_dropped = 0

    def train(self, *args: Any, **kwargs: Any) -> Any:
        if self.max_mean_ratio is not None and self.is_deepspeed_enabled:
            raise UserError(
                f"max_mean_ratio: {self.max_mean_ratio} does not work with DeepSpeed, which takes "
                "the optimizer step within the backward pass, where it cannot be left out any "
                "more; remove the key, or train with DDP or FSDP"
            )
        return super().train(*args, **kwargs)

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> tuple:
        outputs = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        if self._capture_logps:
            self._per_token_logps = outputs[0]
        return outputs

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if self.max_mean_ratio is None or not self.model.training:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        self._capture_logps = True
        try:
            loss = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
            logps = self._per_token_logps
        finally:
            self._capture_logps, self._per_token_logps = False, None

        mean_ratio, is_loss_finite = self._global_mean_ratio(loss, logps, inputs)
        # A comparison with NaN is False, so what is not a number is dropped.
        is_kept = is_loss_finite and mean_ratio <= self.max_mean_ratio
        self._num_minibatches += 1
        self._num_dropped += not is_kept
        metrics = self._metrics["train"]
        metrics["train/dropped_minibatches"].append(float(not is_kept))
        if math.isfinite(mean_ratio):
            metrics["train/mean_ratio"].append(mean_ratio)
        return loss if is_kept else zero_loss(logps).to(loss.dtype)

    def _global_mean_ratio(
        self, loss: torch.Tensor, logps: torch.Tensor, inputs: dict[str, Any]
    ) -> tuple[float, bool]:
        """Mean ratio over the tokens of all processes, and whether every process's loss is finite.

        Not finite where any token's ratio is not; 1 where no process has a token.
        """
        mask = inputs["completion_mask"]  # (B, C)
        if "tool_mask" in inputs:
            mask = mask * inputs["tool_mask"]
        ratio_sum, num_tokens = ratio_totals(logps, inputs.get("old_per_token_logps"), mask)
        totals = torch.stack([ratio_sum, num_tokens, (~loss.isfinite()).float()])
        ratio_sum, num_tokens, num_bad = self.accelerator.reduce(totals, reduction="sum").tolist()
        return (ratio_sum / num_tokens if num_tokens else 1.0), num_bad == 0

    def _get_grad_norm(self, model: torch.nn.Module, grad_norm: Any = None) -> Any:
        # The last call before the optimizer step, and the norm is that of all processes' gradients.
        grad_norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        if self.max_mean_ratio is None:
            return grad_norm
        skip = self._num_dropped == self._num_minibatches or not math.isfinite(float(grad_norm))
        self._num_minibatches = self._num_dropped = 0
        self._metrics["train"]["train/skipped_steps"].append(float(skip))
        if not skip:
            return grad_norm
        # Optimizers pass over parameters without a gradient: no momentum, decay or step count.
        model.zero_grad(set_to_none=True)
        return 0.0


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
