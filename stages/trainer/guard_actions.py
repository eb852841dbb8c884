"""The guards inside the trainer: their measurements and actions (docs/grpo.md).

A guard warns, stops the run, or goes back to the last healthy checkpoint with a lower learning
rate. Each event is a line of `events.jsonl` in the output folder. A run that was killed repeats
some steps and their lines. It never repeats a roll-back: it resumes after it.
"""

import json
import math
import os
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any, NoReturn

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, reduce
from transformers import TrainerCallback

from pipeline.console import is_main_process, say
from pipeline.errors import UserError
from pipeline.manifest import finite
from stages.run.folders import last_checkpoint
from stages.trainer import guards
from stages.trainer.guards import GUARDS, UNGRADABLE, Firing, Guards, GuardSettings
from stages.trainer.resume import abandon_later_checkpoints
from stages.trainer.rollouts import are_dead
from stages.trainer.rows_apart import on_device
from stages.trainer.update import rounds_stochastically

EVENTS = "events.jsonl"
# Statistic of a generation batch -> TRL's metric.
STATISTICS = {
    "cut_off_rate": "completions/clipped_ratio",
    "length": "completions/mean_length",
    "reward": "reward",
    "correctness": "rollout/correctness",
    "uniform_groups": "rollout/uniform_groups",
    "zero_std": "frac_reward_zero_std",
    **{name: f"rollout/verdict/{name}" for name in UNGRADABLE},
}


class WeightWatch(TrainerCallback):
    """Measures what share of the weights the last optimizer step has moved."""

    settings: GuardSettings
    _moved, _measures_weights, _is_deepspeed = math.nan, False, False

    def on_pre_optimizer_step(self, args, state, control, model=None, optimizer=None, **kwargs):
        self._measures_weights = (
            self.settings.weights != "off"
            and not self._is_deepspeed  # it has taken its step by now
            and not rounds_stochastically(optimizer)  # few move, and they make up for the rest
            and any(group["lr"] > 0 for group in optimizer.param_groups)
        )
        if self._measures_weights:
            self._before = [part.clone() for part in guards.sample_weights(model)]

    def on_optimizer_step(self, args, state, control, model=None, optimizer=None, **kwargs):
        # NaN, not known, where nothing could move: only zero-variance groups, a dropped window, a
        # step that fp16's loss scaling left out.
        self._moved = math.nan
        if self._measures_weights and not getattr(optimizer, "step_was_skipped", False):
            moved = guards.moved_share(self._before, guards.sample_weights(model))
            self._moved = moved if moved > 0 or has_gradient(model) else math.nan

    def _moved_by_all(self, device: torch.device) -> float:
        """The mean share of all processes that know theirs."""
        if PartialState().num_processes == 1:
            return self._moved
        return means_of_all(on_device([self._moved], device))[0]


class GuardCallback(WeightWatch):
    """The guards for TRL's own trainer: `GRPOTrainer(..., callbacks=[GuardCallback()])`.

    They judge the trainer's log, whenever it logs (`logging_steps=1`: every step): eos, entropy,
    length, no_signal, and the weights. Their events are in `events.jsonl` and `firings`; "stop"
    ends the training as its last step does. Only `MathGRPOTrainer` has the guards that need
    completions (repetition, alignment) and the rollback. A resume starts the references again.
    """

    def __init__(self, settings: GuardSettings | None = None) -> None:
        settings = settings or GuardSettings()
        for name in GUARDS:
            action, is_logged = getattr(settings, name), name not in ("repetition", "alignment")
            if action == "rollback" or (action == "stop" and not is_logged):
                raise ValueError(f"guard_{name}: {action} needs MathGRPOTrainer; use warn or off")
        self.settings, self.guards = settings, Guards(settings)
        self.firings: list[Firing] = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        known = (STATISTICS | {"entropy": "entropy"}).items()
        found = {n: math.nan if (x := logs[k]) is None else x for n, k in known if k in logs}
        if "reward" not in found:  # of an evaluation, or of the whole run at its end
            return
        if args.mask_truncated_completions and found["cut_off_rate"] == 1:
            found.pop("entropy", None)  # TRL's mean over no tokens is 0
        found["signal"] = 0.0 if math.isnan(found["reward"]) else 1 - found["zero_std"]
        found["num_groups"] = args.generation_batch_size // args.num_generations
        found["max_length"] = args.max_completion_length
        found["moved_share"] = self._moved_by_all(args.device)
        for firing in self.guards.observe(state.global_step - 1, found):
            self.firings.append(firing)
            record(args.output_dir, firing)
            say(f"guard {firing.message}")
            if firing.action == "stop":
                control.should_training_stop = True


class GuardActions(WeightWatch):
    """Measures generation batches and optimizer steps of a trainer and acts on the verdicts.

    The trainer trains again from `rollback_to` where that is set at the end of `train`.
    """

    def __init__(self, trainer: Any, settings: GuardSettings) -> None:
        self.trainer, self.settings, self.guards = trainer, settings, Guards(settings)
        self._is_deepspeed = trainer.is_deepspeed_enabled
        actions = {name: getattr(settings, name) for name in GUARDS}
        self.actions = {name: action for name, action in actions.items() if action != "off"}
        self.rollback_to: str | None = None
        self._num_rollbacks = 0
        self._start()

    def _start(self) -> None:
        # Of this optimizer step: its first generation, each micro-batch, the weights.
        self._statistics: dict[str, Any] = {}
        self._entropies: list[float] = []
        self._moved, self._measures_weights = math.nan, False

    def state_dict(self) -> dict[str, Any]:
        """What the guards have seen, for the checkpoint."""
        return {"guards": self.guards.state_dict(), "num_rollbacks": self._num_rollbacks}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a checkpoint; roll-backs after it lower the learning rate."""
        self.guards.load_state_dict(state["guards"])
        self._start()
        saved = state["num_rollbacks"]
        file = Path(self.trainer.args.output_dir, EVENTS)
        events = file.read_text(encoding="utf-8") if file.is_file() else ""
        recorded = of_main_process(events.count('"action": "rollback"'))
        self._num_rollbacks = max(self._num_rollbacks, saved, recorded)
        if self._num_rollbacks > saved:
            factor = self.settings.rollback_lr_factor ** (self._num_rollbacks - saved)
            for group in self.trainer.optimizer.param_groups:
                group["lr"] *= factor
                group["initial_lr"] *= factor
            scheduler = self.trainer.lr_scheduler
            for name in ("base_lrs", "_last_lr"):  # the second is what is logged next
                setattr(scheduler, name, [lr * factor for lr in getattr(scheduler, name, ())])

    def measure_batch(self, batch: dict[str, Any], num_logged: dict[str, int]) -> None:
        """Measure an optimizer step's first batch, before which metrics had `num_logged` values."""
        metrics = self.trainer._metrics["train"]
        measured = {"masked": ~batch["completion_mask"].any(1)}
        if not (is_known := bool(self._statistics)):
            for ours, key in STATISTICS.items():
                if values := metrics.get(key, [])[num_logged.get(key, 0) :]:
                    self._statistics[ours] = fmean(values)
            measured |= self._measurements(batch)
        means = dict(zip(measured, means_of_all(*measured.values()), strict=True))
        metrics["train/masked_completions"].append(means.pop("masked"))
        if is_known:
            return
        self._statistics |= means
        if "no_signal" in self.actions:
            self._add_signal()

    def _measurements(self, batch: dict[str, Any]) -> dict[str, torch.Tensor]:
        """Statistic -> its values, of which the mean over all processes counts."""
        found, trainer = {}, self.trainer
        if "no_signal" in self.actions and not self._is_graded():
            found["uniform_groups"] = are_dead(trainer._rewards, trainer.num_generations)
        if "repetition" in self.actions:
            found["repetition"] = self._repetition(batch) > self.settings.max_repetition
        sampled, ours = batch.get("sampling_per_token_logps"), batch.get("old_per_token_logps")
        if "alignment" in self.actions and sampled is not None and ours is not None:
            mask = batch["completion_mask"]
            found["logp_mismatch"] = guards.logp_mismatch(ours, sampled, mask)
        return found

    def _is_graded(self) -> bool:
        """Whether correctness counts; it may be logged, but with weight 0."""
        return any(self.trainer.reward_weights[self.trainer._graded])

    def _add_signal(self) -> None:
        trainer, found = self.trainer, self._statistics
        found["max_length"] = trainer.max_completion_length
        found["num_groups"] = trainer.args.generation_batch_size // trainer.num_generations
        if not self._is_graded():
            found.pop("correctness", None)
        found["signal"] = 1 - found["uniform_groups"]

    def _repetition(self, batch: dict[str, Any]) -> torch.Tensor:
        """How repetitive each completion is, also those that TRL has masked; shape (B,)."""
        ids, mask = batch["completion_ids"], batch["completion_mask"]  # (B, C)
        is_text = ids != self.trainer.processing_class.pad_token_id
        last = (is_text * torch.arange(1, ids.size(1) + 1, device=ids.device)).amax(dim=1)
        lengths = torch.where(mask.any(dim=1), mask.sum(dim=1), last)  # (B,)
        table = torch.cat([lengths.unsqueeze(1), ids], dim=1).tolist()
        rows = [row[:num] for num, *row in table]
        texts = self.trainer.processing_class.batch_decode(rows, skip_special_tokens=True)
        found = guards.repetition_scores(rows, texts, self.settings.repetition_ngram)
        return on_device(found, ids.device)

    def note_entropy(self, inputs: dict[str, Any]) -> None:
        """Take the entropy that TRL has logged for a micro-batch."""
        if "entropy" in self.actions:
            entropy = self.trainer._metrics["train"]["entropy"][-1]
            # TRL's mean over no tokens is 0 too, and then all completions were masked.
            num_tokens = inputs["completion_mask"].sum()
            if entropy or self.trainer.accelerator.reduce(num_tokens, reduction="sum"):
                self._entropies.append(entropy)

    def on_train_begin(self, args, state, control, **kwargs):
        if "rollback" in self.actions.values() and self.trainer.start_checkpoint is None:
            # Or there is nothing to go back to.
            self.trainer._save_checkpoint(self.trainer.model, None)

    def on_step_end(self, args, state, control, **kwargs):
        """Judge the optimizer step and carry out the guards' actions."""
        step = self.trainer.state.global_step - 1  # the weights that wrote the completions
        self._statistics["moved_share"] = self._moved_by_all(self.trainer.accelerator.device)
        if self._entropies:
            self._statistics["entropy"] = fmean(self._entropies)
        firings = self.guards.observe(step, self._statistics)
        self._statistics, self._entropies = {}, []
        for name, value in self.guards.values.items():
            self.trainer._metrics["train"][f"guard/{name}"].append(value)
        for firing in firings:
            if firing.action == "warn":
                self._record(firing)
                say(f"guard {firing.message}")
        # Of several the one that looks back furthest; to stop comes first.
        for action, carry_out in (("stop", self._stop), ("rollback", self._roll_back)):
            if due := [firing for firing in firings if firing.action == action]:
                carry_out(min(due, key=lambda firing: firing.since), control)
        return control

    def _stop(self, firing: Firing, control: Any, why: str = "") -> NoReturn:
        healthy = self._healthy_checkpoint(firing)
        message = firing.message + why
        self._record(firing, action="stop", message=message, checkpoint=healthy)
        last = f"the last healthy checkpoint is {healthy}" if healthy else "no healthy checkpoint"
        raise UserError(f"{self.trainer.args.output_dir}: stopped by guard {message}; {last}")

    def _roll_back(self, firing: Firing, control: Any) -> None:
        healthy = self._healthy_checkpoint(firing)
        if healthy is None:
            self._stop(firing, control, "; so it cannot roll back")
        if self._num_rollbacks >= self.settings.max_rollbacks:
            self._stop(firing, control, f"; guard_max_rollbacks is {self.settings.max_rollbacks}")
        # In this order: a kill in between leads to the same roll-back again, or behind it.
        if self.trainer.args.should_save:
            step = int(healthy.rpartition("-")[2])
            abandon_later_checkpoints(self.trainer.args.output_dir, step)
        self._num_rollbacks += 1
        factor, number = self.settings.rollback_lr_factor, self._num_rollbacks
        self._record(firing, checkpoint=healthy, learning_rate_factor=factor, num_rollbacks=number)
        say(f"guard {firing.message}; back to {healthy}, learning_rate x {factor:g}")
        self.rollback_to = healthy
        control.should_training_stop = True
        control.should_save = control.should_evaluate = False

    def _healthy_checkpoint(self, firing: Firing) -> str | None:
        found = last_checkpoint(Path(self.trainer.args.output_dir), before=firing.since)
        return of_main_process(str(found) if found else None)

    def _record(self, firing: Firing, **details: Any) -> None:
        record(self.trainer.args.output_dir, firing, **details)


def record(folder: str, firing: Firing, **details: Any) -> None:
    """One line in the folder's `events.jsonl`, on disk when this returns."""
    if is_main_process():
        with Path(folder, EVENTS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(finite(asdict(firing) | details)) + "\n")
            file.flush()
            os.fsync(file.fileno())


def means_of_all(*values: torch.Tensor) -> list[float]:
    """Mean of each over the values of all processes, those that are NaN left out."""
    sums = [x for part in values for x in (part.float().nansum(), (~part.isnan()).sum())]
    totals = reduce(torch.stack([x.float() for x in sums]), reduction="sum").tolist()
    return [
        total / count if count else math.nan
        for total, count in zip(totals[::2], totals[1::2], strict=True)
    ]


def of_main_process(value: Any) -> Any:
    """The main process's value: disks may differ, the way through the code must not."""
    return broadcast_object_list([value])[0]


def has_gradient(model: torch.nn.Module) -> bool:
    """Whether any element is not 0; of a sharded gradient here alone, as others may not ask."""
    found = [p.grad for p in model.parameters() if p.grad is not None]
    parts = [(g.to_local() if hasattr(g, "to_local") else g).any() for g in found]
    return bool(parts) and bool(torch.stack(parts).any())
