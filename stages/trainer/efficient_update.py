"""The GRPO update without its padding: rows of similar length go through the model together.

Used by the trainer of `stages.grpo`, with `update_tokens`. Loss and gradient are TRL's but for the
rounding: the same rows, in other passes. Metrics that TRL averages over micro-batches (entropy, KL,
clip shares) weigh the rows differently where they are sorted. Three things save time:

- the rows of an optimizer step are sorted by length, so that a micro-batch holds similar ones;
- a micro-batch, of the update as of the old and the reference log-probs, is run in several forward
  passes of at most `update_tokens` tokens. They are kept until the one backward pass, so memory
  follows a micro-batch's own tokens. With FlashAttention a pass is packed and has no padding;
- rows whose advantage is 0 teach nothing where there is neither KL nor entropy bonus. They go
  through without a gradient, for the metrics: 63 % of the groups in a published run.

Positions start at each row's first token, as in generation; TRL counts the padding before it, too,
which is the same only for models with relative positions (RoPE).
"""

import math
from typing import Any

import torch
from trl import GRPOTrainer

from data_prep.config import UserError
from stages.trainer.row_packing import PackedForward, sort_rows


class EfficientUpdate(GRPOTrainer):
    """`GRPOTrainer` with forward passes of at most `update_tokens`; None leaves it as it is."""

    update_tokens: int | None = None

    _advantages: torch.Tensor | None = None  # of the minibatch in hand, (B,) or (B, C)

    def train(self, *args: Any, **kwargs: Any) -> Any:
        if self.update_tokens is not None and self.aux_loss_enabled:
            raise UserError(
                f"update_tokens: {self.update_tokens} would balance the experts of each forward "
                "pass by themselves, not of the whole micro-batch; remove the key, or set "
                "router_aux_loss_coef: 0"
            )
        return super().train(*args, **kwargs)

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]:
        before = self._buffered_inputs
        inputs = super()._prepare_inputs(generation_batch)
        batches = self._buffered_inputs
        if self.update_tokens is None or batches is before or batches is None:
            return inputs
        if not self._has_mean_of_micro_batch():
            window = math.gcd(len(batches), self.args.gradient_accumulation_steps)
            self._buffered_inputs = sort_rows(batches, window)
        return self._buffered_inputs[self._step % len(batches)]

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | None = None,
    ) -> torch.Tensor:
        self._advantages = inputs["advantages"]
        try:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        finally:
            self._advantages = None

    def _get_per_token_logps_and_entropies(
        self,
        model: torch.nn.Module,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> tuple:
        if self.update_tokens is not None:
            model = PackedForward(
                model,
                self.update_tokens,
                is_packed="flash" in str(self.model.config._attn_implementation),
                agree=self._highest,
                has_gradient=self._has_gradient(),
            )
            batch_size = None  # `update_tokens` bounds the passes
        return super()._get_per_token_logps_and_entropies(
            model, input_ids, attention_mask, logits_to_keep, batch_size, **kwargs
        )

    def _has_gradient(self) -> torch.Tensor | None:
        """Rows of the minibatch in hand whose gradient can differ from 0, shape (B,); None: all."""
        if self._advantages is None or not torch.is_grad_enabled():
            return None
        if self.beta != 0.0 or self._entropy_bonus_enabled:
            return None
        return self._advantages.reshape(len(self._advantages), -1).ne(0).any(dim=1)

    def _has_mean_of_micro_batch(self) -> bool:
        """Whether a row counts by the rows beside it: sorted, short ones would weigh more."""
        is_by_entropy = self._entropy_bonus_enabled or self.top_entropy_quantile < 1.0
        return self.loss_type == "bnpo" or is_by_entropy

    def _highest(self, counts: torch.Tensor) -> torch.Tensor:
        """The highest of each count over all processes, shape (n,)."""
        return self.accelerator.gather(counts.unsqueeze(0)).amax(dim=0)
