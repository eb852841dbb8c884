"""What each optimizer step does to the weights, measured right around it.

A callback of `stages.trainer.guarded_trainer`, which judges the step when this has measured it.
"""

import math
from typing import Any

import torch
from transformers import TrainerCallback

from stages.trainer.guard_statistics import WeightProbe
from stages.trainer.stochastic_rounding import rounds_stochastically


class StepEnd(TrainerCallback):
    """Hands every optimizer step to the trainer's `end_step`, with the share of weights it moved.

    The share is NaN, not known, where nothing could move: a learning rate of 0, no gradient (all
    groups uniform, a dropped window), a step that fp16's loss scaling left out, DeepSpeed,
    stochastic rounding.

    Args:
        trainer: a `GuardedGRPO`.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer, self._moved, self._is_judged = trainer, math.nan, False

    def on_train_begin(self, args, state, control, **kwargs):
        trainer = self._trainer
        self._probe = WeightProbe(trainer.model)  # here, as FSDP has wrapped it by now
        if "rollback" in trainer.actions.values() and not trainer.is_resumed:
            trainer._save_checkpoint(trainer.model, None)  # or there is nothing to go back to

    def on_pre_optimizer_step(self, args, state, control, optimizer=None, **kwargs):
        self._is_judged = (
            "weights" in self._trainer.actions
            and not self._trainer.is_deepspeed_enabled  # it has taken its step by now
            and not rounds_stochastically(optimizer)  # few move, and they make up for the rest
            and any(group["lr"] > 0 for group in optimizer.param_groups)
        )
        if self._is_judged:
            self._probe.before()

    def on_optimizer_step(self, args, state, control, model=None, **kwargs):
        self._moved = math.nan
        if self._is_judged and not self._trainer.accelerator.optimizer_step_was_skipped:
            moved = self._probe.after()
            self._moved = moved if moved > 0 or has_gradient(model) else math.nan

    def on_step_end(self, args, state, control, **kwargs):
        self._trainer.end_step(self._moved, control)
        return control


def has_gradient(model: torch.nn.Module) -> bool:
    """Whether any element is not 0, of a sharded gradient in this process's part alone.

    The whole gradient would wait for the other processes, and those that moved do not ask.
    """
    found = [p.grad for p in model.parameters() if p.grad is not None]
    return any(bool((g.to_local() if hasattr(g, "to_local") else g).any()) for g in found)
