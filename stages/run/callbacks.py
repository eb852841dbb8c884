"""The Trainer's callbacks of every training stage: progress, one curve, finite numbers."""

import math
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainerCallback
from transformers.integrations import TensorBoardCallback, integration_utils
from transformers.trainer_callback import PrinterCallback, ProgressCallback

from pipeline.console import Bar
from pipeline.errors import UserError
from pipeline.folders import CURVES
from stages.run import folders


def add_callbacks(trainer: Trainer, name: str) -> "StageProgress":
    """Put ours in place of the Trainer's own bar and prints; returns the bar of stage `name`."""
    keep_metric_names()
    trainer.remove_callback(ProgressCallback)
    trainer.remove_callback(PrinterCallback)
    if trainer.pop_callback(TensorBoardCallback):
        trainer.add_callback(OneCurve())
    progress = StageProgress(name)
    trainer.add_callback(progress)
    trainer.add_callback(FiniteNumbers(trainer))
    trainer.add_callback(StopAtEnd())
    if stop_at := os.environ.get("STOP_AT"):
        trainer.add_callback(StopInTime(trainer, float(stop_at)))
    if hasattr(trainer, "_total_train_tokens"):
        trainer.add_callback(TokenCount(trainer))
    return progress


class OneCurve(TensorBoardCallback):
    """Logs a run to TensorBoard in one folder, beside the run's own.

    transformers makes a folder for each start, and the steps between the last checkpoint and a kill
    would be in two of them. Here the events behind the checkpoint are hidden.
    """

    def on_train_begin(self, args, state, control, **kwargs):
        if "TENSORBOARD_LOGGING_DIR" not in os.environ and state.is_world_process_zero:
            from torch.utils.tensorboard import SummaryWriter

            run = Path(args.output_dir)
            self.logging_dir = str(run.parent / CURVES / run.name)
            self.tb_writer = SummaryWriter(self.logging_dir, purge_step=state.global_step + 1)
        super().on_train_begin(args, state, control, **kwargs)


class AlreadyTrainedError(Exception):
    """The checkpoint to resume from is already at the last step."""


class StopAtEnd(TrainerCallback):
    """Ends a run that resumes at its last step; the Trainer would take one more."""

    def on_train_begin(self, args, state, control, **kwargs):
        if state.global_step >= state.max_steps:
            raise AlreadyTrainedError


class StopInTime(TrainerCallback):
    """Saves and ends all processes after the first step that ends past `stop_at`, by one clock.

    Args:
        stop_at: seconds of `time.time()`, of MAX_HOURS.
    """

    def __init__(self, trainer: Trainer, stop_at: float) -> None:
        self.trainer, self.stop_at = trainer, stop_at

    def on_step_end(self, args, state, control, **kwargs):
        is_late = torch.tensor(float(time.time() >= self.stop_at), device=args.device)
        is_late = self.trainer.accelerator.reduce(is_late, reduction="sum").item() > 0
        if is_late and state.global_step < state.max_steps:
            control.should_save = control.should_training_stop = True

    def on_train_end(self, args, state, control, **kwargs):
        if state.global_step < state.max_steps and time.time() >= self.stop_at:
            raise UserError(
                f"MAX_HOURS: over at step {state.global_step} of {state.max_steps}, which is saved "
                f"in {args.output_dir}; the same command goes on from there"
            )


class TokenCount(TrainerCallback):
    """Keeps TRL's count of SFT's tokens in the checkpoints; after a resume it would start at 0."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer

    def on_train_begin(self, args, state, control, **kwargs):
        self.trainer._total_train_tokens = state.stateful_callbacks.get("num_tokens", 0)

    def on_step_end(self, args, state, control, **kwargs):
        state.stateful_callbacks["num_tokens"] = self.trainer._total_train_tokens


class StageProgress(TrainerCallback):
    """One bar per stage with a few live metrics, in place of a printed dict per logging step."""

    SHOWN = {  # noqa: RUF012 - never changed
        "loss": "loss",
        "eval_loss": "held-out loss",
        "mean_token_accuracy": "accuracy",
        "rollout/rewards": "reward",
        "rollout/correctness": "correct",
        "rollout/response_length": "tokens",
        "rollout/uniform_groups": "zero-variance",
    }

    def __init__(self, name: str) -> None:
        self.name = name
        self.bar: Bar | None = None

    def on_train_begin(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            self.bar = Bar(
                total=state.max_steps,
                initial=state.global_step,
                desc=self.name,
                bar_format="{desc} {n_fmt}/{total_fmt} {remaining} left{postfix}",
            )

    def on_step_end(self, args, state, control, **kwargs):
        if self.bar is not None:
            self.bar.update(state.global_step - self.bar.n)

    def on_log(self, args, state, control, logs=None, **kwargs):
        known = {key: value for key, value in (logs or {}).items() if value is not None}  # NaN
        shown = [f"{s} {float(known[k]):.2g}" for k, s in self.SHOWN.items() if k in known]
        if self.bar is not None and shown:
            self.bar.set_postfix_str(", ".join(shown), refresh=False)

    def on_train_end(self, args, state, control, **kwargs):
        if self.bar is not None:
            self.bar.close()
            self.bar = None


def stopped(trainer: Trainer, what: str) -> UserError:
    """The error of a run that met NaN or infinity, with the remedy and the last checkpoint."""
    folder, step = trainer.args.output_dir, trainer.state.global_step
    checkpoint = folders.last_checkpoint(Path(folder))
    return UserError(
        f"{folder}: stopped at step {step}: {what} became NaN or infinite; lower learning_rate or "
        f"max_grad_norm; the last checkpoint is {checkpoint or 'none'}"
    )


@torch.no_grad()
def largest_weight(weights: Iterable[torch.Tensor]) -> torch.Tensor:
    """The greatest magnitude, NaN if one is; of a sharded weight (DeepSpeed, FSDP2) this part."""
    parts = [getattr(p, "ds_tensor", p) for p in weights]
    parts = [p.to_local() if hasattr(p, "to_local") else p for p in parts]
    return torch.nn.utils.get_total_norm(
        [p for p in parts if p.numel() and p.is_floating_point()], math.inf
    )


class FiniteNumbers(TrainerCallback):
    """Ends all processes at the step whose loss or weights are NaN or infinite, before it is saved.

    A NaN gradient makes the weights NaN, unless fp16's loss scaling skips the step.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        trainer.args.logging_nan_inf_filter = False  # it shows the mean of earlier losses instead

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        largest = largest_weight(model.parameters())
        is_bad = (~largest.isfinite()).float().to(args.device)
        if self.trainer.accelerator.reduce(is_bad, reduction="sum").item():
            raise UserError(
                f"model_name_or_path: {self.trainer.model.config.name_or_path}: its weights hold "
                "NaN or infinity before the first step; copy the model again, or take another"
            )

    @torch.no_grad()
    def on_step_end(self, args, state, control, model=None, **kwargs):
        largest = largest_weight(p for p in model.parameters() if p.requires_grad)
        loss = self.trainer._tr_loss
        is_bad = torch.stack([~loss.isfinite(), ~largest.to(loss.device).isfinite()]).float()
        bad_loss, bad_weights = self.trainer.accelerator.reduce(is_bad, reduction="sum").tolist()
        if bad_loss or bad_weights:
            raise stopped(self.trainer, "the loss" if bad_loss else "the weights")


def keep_metric_names() -> None:
    """Log `rollout/…`, `train/…` and `guard/…` under just these names in TensorBoard and W&B.

    Both callbacks push every key through `rewrite_logs`, which would put `train/` before it.
    """
    rewrite = integration_utils.rewrite_logs
    if rewrite.__module__ == __name__:  # done before
        return

    def rewrite_logs(logs: dict[str, Any]) -> dict[str, Any]:
        named = {k: v for k, v in logs.items() if k.startswith(("rollout/", "train/", "guard/"))}
        return rewrite({k: v for k, v in logs.items() if k not in named}) | named

    integration_utils.rewrite_logs = rewrite_logs
