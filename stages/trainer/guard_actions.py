"""The guards inside the trainer: what they look at, and what they do.

`GuardActions` measures every step, asks `Guards` for verdicts and carries them out: some
completions are left out of the loss, the run stops, or it goes back to the last healthy checkpoint
with a lower learning rate. Each is a line of `events.jsonl` in the output folder. A run that was
killed takes some steps again, and then their lines are there again; a roll-back is never repeated,
as from its line on the run resumes behind it.

What a guard cannot see: `alignment` needs log-probs of the sampler, so vLLM or a `rollout_func`,
and TRL's own of the same moment (by default with vLLM, else where several optimizer steps share a
generation); `weights` is off under DeepSpeed, which steps inside its backward pass.
"""

import json
import math
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from tqdm.auto import tqdm
from transformers import TrainerCallback

from data_prep.config import UserError
from stages.run import is_main_process
from stages.trainer.guards import (
    GUARDS,
    Firing,
    Guards,
    WeightProbe,
    append_event,
    last_healthy_checkpoint,
    logp_mismatch,
    mean,
    repetition_scores,
)
from stages.trainer.resume import abandon_later_checkpoints
from stages.trainer.rollouts import loss_mask, mask_rows
from stages.trainer.rounding import rounds_stochastically

EVENTS = "events.jsonl"
# Statistic of a generation batch -> TRL's metric.
STATISTICS = {
    "cut_off_rate": "completions/clipped_ratio",
    "length": "completions/mean_length",
    "reward": "reward",
}


class GuardActions(TrainerCallback):
    """Measures generation batches and optimizer steps of a trainer and does what `guards` say.

    Logs the last value of each guard as `guard/<name>` and the share of completions that are out of
    the loss, by a guard or by `mask_truncated_completions`, as `train/masked_completions`.

    Args:
        trainer: a `MathGRPOTrainer`; calls `judge_batch` and `note_entropy`, and trains again from
            `rollback_to` where that is set at the end of `train`.
        rollback_lr_factor: multiplies the learning rate at a roll-back, in (0, 1].
        max_rollbacks: roll-backs after which the next stops the run.
    """

    def __init__(
        self, trainer: Any, guards: Guards, rollback_lr_factor: float, max_rollbacks: int
    ) -> None:
        self.trainer, self.guards, self.settings = trainer, guards, guards.settings
        actions = {name: getattr(self.settings, name) for name in GUARDS}
        self.actions = {name: action for name, action in actions.items() if action != "off"}
        self.rollback_to: str | None = None
        self._lr_factor, self._max_rollbacks = rollback_lr_factor, max_rollbacks
        self._num_rollbacks = 0
        self._is_resumed = False  # from any checkpoint, in this process
        self._start()

    def _start(self) -> None:
        self._pending: list[Firing] = []  # what the step's end has to act on
        self._entropies: list[float] = []  # of this optimizer step, one a minibatch
        self._masked_streaks: set[tuple[str, int]] = set()  # that the user was told of
        self._judged_step, self._firings = -1, []  # the last step with a generation, its firings
        self._moved, self._measures_weights = math.nan, False

    def state_dict(self) -> dict[str, Any]:
        """What the guards have seen, for the checkpoint."""
        return {"guards": self.guards.state_dict(), "num_rollbacks": self._num_rollbacks}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint; roll-backs that it does not know of lower the learning rate."""
        self.guards.load_state_dict(state["guards"])
        self._start()
        self._is_resumed = True
        saved = state["num_rollbacks"]
        recorded = of_main_process(num_recorded_rollbacks(self._events))
        self._num_rollbacks = max(self._num_rollbacks, saved, recorded)
        if self._num_rollbacks > saved:
            factor = self._lr_factor ** (self._num_rollbacks - saved)
            for group in self.trainer.optimizer.param_groups:
                group["lr"] *= factor
                group["initial_lr"] *= factor
            scheduler = self.trainer.lr_scheduler
            for name in ("base_lrs", "_last_lr"):  # the second is what is logged next
                setattr(scheduler, name, [lr * factor for lr in getattr(scheduler, name, ())])

    def check(self) -> None:
        """Refuse roll-backs that could not be carried out."""
        for name, action in self.actions.items():
            if action == "rollback" and self.trainer.is_deepspeed_enabled:
                raise UserError(
                    f"guard_{name}: rollback does not work with DeepSpeed, whose engine cannot "
                    "start again in the same process; use stop, or train with DDP"
                )
            if action == "rollback" and self.trainer.args.save_only_model:
                raise UserError(
                    f"guard_{name}: rollback needs complete checkpoints; set save_only_model to "
                    "false"
                )

    def judge_batch(self, batch: dict[str, Any], num_logged: dict[str, int]) -> dict[str, Any]:
        """A generation batch, without the completions that a guard leaves out of the loss.

        Args:
            batch: output of TRL.
            num_logged: values that each metric had before the batch.
        """
        metrics = self.trainer._metrics["train"]
        statistics = {
            ours: mean(metrics[key][num_logged.get(key, 0) :]) for ours, key in STATISTICS.items()
        }
        scores = self._scores(batch)
        if "repetition" in scores:
            is_repetitive = scores["repetition"] > self.settings.max_repetition
            statistics["repetition"] = self._share(is_repetitive)
        if "alignment" in scores:
            statistics["logp_mismatch"] = self._share(scores["alignment"])
        step = self.trainer.state.global_step
        if self._judged_step != step:  # once, though a step may use several
            self._judged_step = step
            self._firings = self.guards.observe(step, statistics)
            self._pending += [firing for firing in self._firings if firing.action != "mask"]
        batch = self._mask(batch, scores, [f for f in self._firings if f.action == "mask"])
        is_masked = batch["completion_mask"].sum(dim=1) == 0
        metrics["train/masked_completions"].append(self._share(is_masked))
        return batch

    def _completions(self, batch: dict[str, Any]) -> list[list[int]]:
        """Token ids of each completion, without padding; also of those that TRL has masked."""
        ids, mask = batch["completion_ids"], batch["completion_mask"]  # (B, C)
        is_text = ids != self.trainer.processing_class.pad_token_id
        last = (is_text * torch.arange(1, ids.size(1) + 1, device=ids.device)).amax(dim=1)
        lengths = torch.where(mask.any(dim=1), mask.sum(dim=1), last)  # (B,)
        return [row[:num] for row, num in zip(ids.tolist(), lengths.tolist(), strict=True)]

    def _scores(self, batch: dict[str, Any]) -> dict[str, torch.Tensor]:
        """What the guards that judge single completions see, for each completion, shape (B,)."""
        scores, mask = {}, batch["completion_mask"]
        if "repetition" in self.actions:
            ids = self._completions(batch)
            texts = self.trainer.processing_class.batch_decode(ids, skip_special_tokens=True)
            found = repetition_scores(ids, texts, self.settings.repetition_ngram)
            scores["repetition"] = torch.tensor(found, device=mask.device)
        sampled, ours = batch.get("sampling_per_token_logps"), batch.get("old_per_token_logps")
        if "alignment" in self.actions and sampled is not None and ours is not None:
            scores["alignment"] = logp_mismatch(ours, sampled, mask)
        return scores

    def _share(self, values: torch.Tensor) -> float:
        """Mean over the values of all processes, those that are NaN left out."""
        known = values.float()[~values.isnan()]
        sums = torch.stack([known.sum(), known.new_tensor(float(known.numel()))])
        total, count = self.trainer.accelerator.reduce(sums, reduction="sum").tolist()
        return total / count if count else math.nan

    def _mask(
        self, batch: dict[str, Any], scores: dict[str, torch.Tensor], firings: list[Firing]
    ) -> dict[str, Any]:
        """Leave the completions that a guard objects to out of the loss."""
        accelerator = self.trainer.accelerator
        for firing in firings:
            is_bad = self._is_bad(firing, batch, scores) & batch["completion_mask"].any(dim=1)
            num_masked = int(accelerator.reduce(is_bad.sum(), reduction="sum"))
            if num_masked:
                batch = mask_rows(batch, is_bad)
                batch["num_items_in_batch"] = accelerator.gather(loss_mask(batch).sum()).sum()
                self._record(firing, num_masked=num_masked)
                if (streak := (firing.guard, firing.since)) not in self._masked_streaks:
                    self._tell(firing, "; completions are left out of the loss while it lasts")
                    self._masked_streaks.add(streak)
        return batch

    def _is_bad(
        self, firing: Firing, batch: dict[str, Any], scores: dict[str, torch.Tensor]
    ) -> torch.Tensor:
        """Which completions a guard objects to, bool, shape (B,)."""
        settings, device = self.settings, batch["completion_mask"].device
        if firing.guard == "repetition":
            return scores["repetition"] > settings.max_repetition
        if firing.guard == "alignment":
            return scores["alignment"] > settings.max_logp_mismatch
        ids = self._completions(batch)
        if firing.guard == "eos":
            ends = self.trainer.ends  # as TRL's cut-off rate
            return torch.tensor([bool(row) and row[-1] not in ends for row in ids], device=device)
        # The guard's value is the mean of the recent lengths over that of the reference.
        recent = self.guards.state_dict()["length_trace"][-settings.patience :]
        reference = mean([length for _, length in recent]) / firing.value
        limit = settings.max_length_growth * reference
        return torch.tensor([len(row) > limit for row in ids], device=device)

    def note_entropy(self, inputs: dict[str, Any]) -> None:
        """Take the entropy that TRL has logged for a minibatch."""
        if "entropy" in self.actions:
            entropy = self.trainer._metrics["train"]["entropy"][-1]
            # TRL's mean over no tokens is 0 too, and then all completions were masked.
            num_tokens = loss_mask(inputs).sum()
            if entropy or self.trainer.accelerator.reduce(num_tokens, reduction="sum"):
                self._entropies.append(entropy)

    def on_train_begin(self, args, state, control, **kwargs):
        self._probe = WeightProbe(self.trainer.model)  # here, as FSDP has wrapped it by now
        if "rollback" in self.actions.values() and not self._is_resumed:
            # Or there is nothing to go back to.
            self.trainer._save_checkpoint(self.trainer.model, None)

    def on_pre_optimizer_step(self, args, state, control, optimizer=None, **kwargs):
        self._measures_weights = (
            "weights" in self.actions
            and not self.trainer.is_deepspeed_enabled  # it has taken its step by now
            and not rounds_stochastically(optimizer)  # few move, and they make up for the rest
            and any(group["lr"] > 0 for group in optimizer.param_groups)
        )
        if self._measures_weights:
            self._probe.before()

    def on_optimizer_step(self, args, state, control, model=None, **kwargs):
        # NaN, not known, where nothing could move: all groups uniform, a dropped window, a step
        # that fp16's loss scaling left out.
        self._moved = math.nan
        if self._measures_weights and not self.trainer.accelerator.optimizer_step_was_skipped:
            moved = self._probe.after()
            self._moved = moved if moved > 0 or has_gradient(model) else math.nan

    def on_step_end(self, args, state, control, **kwargs):
        """Judge the optimizer step and carry out what is due."""
        step = self.trainer.state.global_step - 1  # the weights that wrote the completions
        moved = torch.tensor([self._moved], device=self.trainer.accelerator.device)
        statistics = {"moved_share": self._share(moved)}
        if self._entropies:
            statistics["entropy"] = mean(self._entropies)
        firings = [*self._pending, *self.guards.observe(step, statistics)]
        self._pending, self._entropies = [], []
        for name, value in self.guards.metrics().items():
            self.trainer._metrics["train"][name].append(value)
        for firing in firings:
            if firing.action == "warn":
                self._record(firing)
                self._tell(firing)
        # Of several the one that looks back furthest; to stop comes first.
        for action, carry_out in (("stop", self._stop), ("rollback", self._roll_back)):
            if due := [firing for firing in firings if firing.action == action]:
                carry_out(min(due, key=lambda firing: firing.since), control)
        return control

    def _stop(self, firing: Firing, control: Any, why: str = "") -> None:
        healthy = self._healthy_checkpoint(firing)
        message = firing.message + why
        self._record(firing, action="stop", message=message, checkpoint=healthy)
        last = f"the last healthy checkpoint is {healthy}" if healthy else "no healthy checkpoint"
        raise UserError(f"{self.trainer.args.output_dir}: stopped by guard {message}; {last}")

    def _roll_back(self, firing: Firing, control: Any) -> None:
        healthy = self._healthy_checkpoint(firing)
        if healthy is None:
            self._stop(firing, control, "; so it cannot roll back")
        if self._num_rollbacks >= self._max_rollbacks:
            self._stop(firing, control, f"; guard_max_rollbacks is {self._max_rollbacks}")
        # In this order: a kill in between leads to the same roll-back again, or behind it.
        if self.trainer.args.should_save:
            step = int(healthy.rpartition("-")[2])
            abandon_later_checkpoints(self.trainer.args.output_dir, step)
        self._num_rollbacks += 1
        details = {"learning_rate_factor": self._lr_factor, "num_rollbacks": self._num_rollbacks}
        self._record(firing, checkpoint=healthy, **details)
        self._tell(firing, f"; back to {healthy}, learning_rate x {self._lr_factor:g}")
        self.rollback_to = healthy
        control.should_training_stop = True
        control.should_save = control.should_evaluate = False

    def _healthy_checkpoint(self, firing: Firing) -> str | None:
        found = last_healthy_checkpoint(self.trainer.args.output_dir, firing.since)
        return of_main_process(str(found) if found else None)

    @property
    def _events(self) -> Path:
        return Path(self.trainer.args.output_dir) / EVENTS

    def _record(self, firing: Firing, **details: Any) -> None:
        """One line in `events.jsonl`."""
        if is_main_process():
            append_event(self._events, asdict(firing) | details)

    def _tell(self, firing: Firing, more: str = "") -> None:
        if is_main_process():
            tell(f"guard {firing.message}{more}")


def tell(line: str) -> None:
    """One line on the terminal, above the progress bar."""
    tqdm.write(line)
    sys.stdout.flush()


def of_main_process(value: Any) -> Any:
    """The main process's value: disks may differ, the way through the code must not."""
    return broadcast_object_list([value])[0]


def has_gradient(model: torch.nn.Module) -> bool:
    """Whether any element is not 0, of a sharded gradient in this process's part alone.

    The whole gradient would wait for the other processes, and those that moved do not ask.
    """
    found = [p.grad for p in model.parameters() if p.grad is not None]
    return any(bool((g.to_local() if hasattr(g, "to_local") else g).any()) for g in found)


def num_recorded_rollbacks(events: Path) -> int:
    """Roll-backs of the run so far, after its `events.jsonl`."""
    counts = [0]
    for line in events.read_text(encoding="utf-8").splitlines() if events.is_file() else ():
        with suppress(ValueError):  # a line that a kill cut short
            event = json.loads(line)
            counts.append(event.get("num_rollbacks", 0) if isinstance(event, dict) else 0)
    return max(counts)
