"""Stochastic rounding: weights in bfloat16 alone that lose no small update on average.

bf16 keeps 8 significant bits, so AdamW at a learning rate of 5e-7 rounds nearly all of its updates
away. With `stochastic_rounding: true` a new weight is rounded up or down by chance, the nearer
neighbour the likelier: each weight is noisier, its mean is exact. torchao's 8-bit AdamW does it,
in 6 bytes a parameter (weight 2, gradient 2, moments 1 + 1) against 16 with float32 weights.

Here is only what torchao leaves to its user: every process has to draw the same numbers, or the
replicas of data-parallel training drift apart; a resumed run has to draw those of an uninterrupted
one; sampling must not notice; and there must be bf16 weights to round. docs/recipes.md has what it
keeps, measured.
"""

from contextlib import ExitStack
from typing import Any

import torch
from transformers import TrainerCallback

from data_prep.config import UserError


def use_stochastic_rounding(trainer: Any) -> None:
    """Give a trainer that has not started yet torchao's optimizer, rounding as this file says."""
    trainer.args.optim = "adamw_torch_8bit"  # transformers' name of torchao's AdamW8bit
    trainer.args.optim_args = "bf16_stochastic_round=True"
    trainer.add_callback(RoundingNumbers(trainer.args.device))


def rounds_stochastically(optimizer: Any) -> bool:
    """Whether an optimizer, or the one inside accelerate's wrapper, rounds by chance."""
    return getattr(getattr(optimizer, "optimizer", optimizer), "bf16_stochastic_round", False)


class RoundingNumbers(TrainerCallback):
    """Gives each optimizer step random numbers of its own, the same on all processes.

    Args:
        device: the trainer's.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._around = device, ExitStack()

    def on_train_begin(self, args, state, control, optimizer=None, **kwargs):
        weights = [p for group in optimizer.param_groups for p in group["params"]]
        if others := {p.dtype for p in weights} - {torch.bfloat16}:
            raise UserError(
                f"stochastic_rounding: true rounds bfloat16 weights, the optimizer has "
                f"{', '.join(map(str, others))}; remove the key"
            )

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        devices = [self._device] if self._device.type == "cuda" else []
        self._around.enter_context(torch.random.fork_rng(devices))
        if self._device.type == "cpu":  # torchao compiles its update; on a CPU that takes long
            self._around.enter_context(torch.compiler.set_stance("force_eager"))
        torch.manual_seed(args.seed * 1_000_003 + state.global_step)

    def on_optimizer_step(self, args, state, control, **kwargs):
        self._around.close()
