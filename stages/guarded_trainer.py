"""The guards inside TRL's trainer: what they look at, and what they do.

`GuardedGRPO` measures every step, asks `stages.guards` for a verdict and carries it out: some
completions are left out of the loss, the run stops, or it goes back to the last healthy checkpoint
with a lower learning rate. Each is a line of `events.jsonl`. Figures and verdicts are the same on
every process.
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback
from trl import GRPOTrainer

from data_prep.config import UserError
from stages.guard_statistics import WeightProbe, logp_mismatch, repetition_scores
from stages.guards import Firing, Guards, append_event, last_healthy_checkpoint
from stages.rollout_batch import mask_rows, num_loss_tokens
from stages.run import is_main_process, say

EVENTS = "events.jsonl"


class GuardedGRPO(GRPOTrainer):
    """`GRPOTrainer` that watches itself.

    Args:
        guards: the verdicts; None watches nothing.
        rollback_lr_factor: what the learning rate is multiplied with at a roll-back, in (0, 1).
        max_rollbacks: roll-backs after which the next stops the run.
    """

    def __init__(
        self,
        *args: Any,
        guards: Guards | None = None,
        rollback_lr_factor: float = 0.5,
        max_rollbacks: int = 3,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.guards = guards
        self._rollback_lr_factor, self._max_rollbacks = rollback_lr_factor, max_rollbacks
        self._num_rollbacks = 0
        self._rollback_to: Path | None = None
        self._pending: list[Firing] = []  # what the step's end has to act on
        self._entropies: list[float] = []  # of this optimizer step, one a minibatch
        if guards is not None:
            self.add_callback(_StepEnd(self))

    def state_dict(self) -> dict[str, Any]:
        """What the guards have seen, for the checkpoint."""
        return {"guards": self.guards.state_dict(), "num_rollbacks": self._num_rollbacks}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint; after a roll-back the learning rate is lowered."""
        self.guards.load_state_dict(state["guards"])
        self._pending, self._entropies = [], []
        # In a new process the checkpoint's own learning rate is right already.
        self._num_rollbacks = max(self._num_rollbacks, state["num_rollbacks"])
        factor = self._rollback_lr_factor ** (self._num_rollbacks - state["num_rollbacks"])
        for group in self.optimizer.param_groups:
            group["lr"] *= factor
            group["initial_lr"] *= factor
        self.lr_scheduler.base_lrs = [lr * factor for lr in self.lr_scheduler.base_lrs]

    def train(self, *args: Any, **kwargs: Any) -> Any:
        output = super().train(*args, **kwargs)
        while self._rollback_to is not None:
            checkpoint, self._rollback_to = self._rollback_to, None
            output = super().train(resume_from_checkpoint=str(checkpoint))
        return output

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        if not self.model.training or self.guards is None:
            return super()._generate_and_score_completions(inputs)
        metrics = self._metrics["train"]
        names = {
            "cut_off_rate": "completions/clipped_ratio",
            "length": "completions/mean_length",
            "reward": "reward",
        }
        before = {theirs: len(metrics[theirs]) for theirs in names.values()}
        batch = super()._generate_and_score_completions(inputs)
        statistics = {
            ours: _mean(metrics[theirs][before[theirs] :]) for ours, theirs in names.items()
        }
        rows = self._measure_rows(batch)
        limits = self.guards.settings
        statistics["repetition"] = self._share(rows["repetition"] > limits.max_repetition)
        if "alignment" in rows:
            statistics["logp_mismatch"] = self._share(rows["alignment"])
        firings = self.guards.observe(self.state.global_step, statistics)
        self._pending += [firing for firing in firings if firing.action != "mask"]
        return self._mask(batch, rows, [firing for firing in firings if firing.action == "mask"])

    def _measure_rows(self, batch: dict[str, Any]) -> dict[str, torch.Tensor]:
        """What each guard that can mask looks at, for each completion, shape (B,)."""
        mask = batch["completion_mask"].bool()  # (B, C)
        ids = [row[keep].tolist() for row, keep in zip(batch["completion_ids"], mask, strict=True)]
        texts = self.processing_class.batch_decode(ids, skip_special_tokens=True)
        scores = repetition_scores(ids, texts, self.guards.settings.repetition_ngram)
        ends = torch.tensor([not row or row[-1] in self.eos_token_ids for row in ids])
        rows = {
            "repetition": torch.tensor(scores, device=mask.device),
            "eos": (~ends).float().to(mask.device),
            "length": mask.sum(dim=1).float(),
        }
        if "sampling_per_token_logps" in batch and "old_per_token_logps" in batch:
            rows["alignment"] = logp_mismatch(
                batch["old_per_token_logps"], batch["sampling_per_token_logps"], mask
            )
        return rows

    def _share(self, values: torch.Tensor) -> float:
        """Mean over the completions of all processes, those that are NaN left out."""
        known = values.float()[~values.isnan()]
        sums = torch.stack([known.sum(), known.new_tensor(float(known.numel()))])
        total, count = self.accelerator.reduce(sums, reduction="sum").tolist()
        return total / count if count else float("nan")

    def _mask(
        self, batch: dict[str, Any], rows: dict[str, torch.Tensor], firings: list[Firing]
    ) -> dict[str, Any]:
        """Leave the completions that a guard objects to out of the loss."""
        settings, length = self.guards.settings, self._metrics["train"]["completions/mean_length"]
        for firing in firings:
            limit = {
                "repetition": settings.max_repetition,
                "eos": 0.5,
                # The reference that the recent lengths have outgrown, times the limit.
                "length": settings.max_length_growth * length[-1] / firing.value,
                "alignment": settings.max_logp_mismatch,
            }[firing.guard]
            bad = rows[firing.guard] > limit
            batch = mask_rows(batch, bad)
            num_masked = int(self.accelerator.reduce(bad.sum(), reduction="sum"))
            self._record(firing, num_masked=num_masked)
        if firings:
            batch["num_items_in_batch"] = self.accelerator.gather(num_loss_tokens(batch)).sum()
        return batch

    def compute_loss(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        loss = super().compute_loss(*args, **kwargs)
        if self.guards is not None and self.model.training:
            self._entropies.append(self._metrics["train"]["entropy"][-1])
        return loss

    def end_step(self, moved_share: float, control: Any) -> None:
        """Judge an optimizer step and carry out what is due.

        Args:
            moved_share: share of the weights that it changed, NaN where that is not known.
            control: the Trainer's, whose `should_training_stop` ends this call of `train`.
        """
        step = self.state.global_step - 1  # the weights that wrote the completions
        statistics = {"entropy": _mean(self._entropies), "moved_share": moved_share}
        firings = [*self._pending, *self.guards.observe(step, statistics)]
        self._pending, self._entropies = [], []
        for name, value in self.guards.metrics().items():
            self._metrics["train"][name].append(value)
        for firing in firings:
            if firing.action == "warn":
                self._record(firing)
        for action in ("stop", "rollback"):
            for firing in firings:
                if firing.action == action and not control.should_training_stop:
                    self._stop(firing) if action == "stop" else self._roll_back(firing)
                    control.should_training_stop = True

    def _stop(self, firing: Firing, why: str = "") -> None:
        self._record(firing, action="stop")
        healthy = last_healthy_checkpoint(self.args.output_dir, firing.since)
        raise UserError(
            f"{self.args.output_dir}: stopped by guard {firing.message}{why}; "
            + (
                f"the last healthy checkpoint is {healthy}"
                if healthy
                else "no checkpoint is healthy"
            )
        )

    def _roll_back(self, firing: Firing) -> None:
        healthy = last_healthy_checkpoint(self.args.output_dir, firing.since)
        if healthy is None:
            self._stop(firing, "; there is nothing to roll back to, lower save_steps")
        if self._num_rollbacks == self._max_rollbacks:
            self._stop(firing, f"; {self._max_rollbacks} roll-backs did not help")
        self._num_rollbacks += 1
        self._rollback_to = healthy
        factor = self._rollback_lr_factor
        self._record(firing, checkpoint=str(healthy), learning_rate_factor=factor)
        say(f"guard: back to {healthy}, learning rate x {factor:g}")

    def _record(self, firing: Firing, **details: Any) -> None:
        """One line in `events.jsonl` and, unless completions are masked, on the terminal."""
        if is_main_process():
            append_event(Path(self.args.output_dir) / EVENTS, asdict(firing) | details)
        if firing.action != "mask":
            say(f"\nguard {firing.message}")


class _StepEnd(TrainerCallback):
    """Tells the trainer what each optimizer step did to the weights."""

    def __init__(self, trainer: GuardedGRPO) -> None:
        self._trainer, self._moved = trainer, float("nan")
        self._probe = WeightProbe(trainer.model)

    def on_train_begin(self, args, state, control, **kwargs):
        trainer = self._trainer
        is_needed = "rollback" in asdict(trainer.guards.settings).values()
        if is_needed and state.global_step == 0:  # or there is nothing to go back to at first
            trainer._save_checkpoint(trainer.model, None)

    def on_pre_optimizer_step(self, args, state, control, optimizer=None, **kwargs):
        # DeepSpeed has taken its step by now; a learning rate of 0 moves nothing by design.
        trainer = self._trainer
        self._is_judged = not trainer.is_deepspeed_enabled and any(
            group["lr"] > 0 for group in optimizer.param_groups
        )
        if self._is_judged:
            self._probe.before()

    def on_optimizer_step(self, args, state, control, model=None, **kwargs):
        self._moved = float("nan")
        if self._is_judged:
            moved = self._probe.after()
            # First steps of uniform groups, dropped windows: nothing to move.
            has_gradient = moved > 0 or any(
                p.grad is not None and bool(p.grad.any()) for p in model.parameters()
            )
            self._moved = moved if has_gradient else float("nan")

    def on_step_end(self, args, state, control, **kwargs):
        moved = torch.tensor([self._moved], device=self._trainer.accelerator.device)
        self._trainer.end_step(self._trainer._share(moved), control)
        return control


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
