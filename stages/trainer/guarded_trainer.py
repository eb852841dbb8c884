"""The guards inside TRL's trainer: what they look at, and what they do.

`GuardedGRPO` measures every step, asks `guards` for a verdict and carries it out: some
completions are left out of the loss, the run stops, or it goes back to the last healthy checkpoint
with a lower learning rate. Each is a line of `events.jsonl` beside the checkpoints. A run that was
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

from data_prep.config import UserError
from stages.run import is_main_process
from stages.trainer.exact_resume import ExactResume
from stages.trainer.guard_callback import StepEnd
from stages.trainer.guard_statistics import logp_mismatch, mean, repetition_scores
from stages.trainer.guards import GUARDS, Firing, Guards, append_event, last_healthy_checkpoint
from stages.trainer.rollout_batch import mask_rows, num_loss_tokens

EVENTS = "events.jsonl"


class GuardedGRPO(ExactResume):
    """`GRPOTrainer` that watches itself; its state belongs into `extra_state`.

    Logs the last value of each guard as `guard/<name>` and the share of completions that are out of
    the loss, by a guard or by `mask_truncated_completions`, as `train/masked_completions`.

    Args:
        guards: the verdicts; None watches nothing.
        rollback_lr_factor: what the learning rate is multiplied with at a roll-back, in (0, 1].
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
        self.actions: dict[str, str] = {}  # of the guards that are not off
        if guards is not None:
            actions = {name: getattr(guards.settings, name) for name in GUARDS}
            self.actions = {name: action for name, action in actions.items() if action != "off"}
        self._rollback_lr_factor, self._max_rollbacks = rollback_lr_factor, max_rollbacks
        self._num_rollbacks = 0
        self._rollback_to: str | None = None
        self.is_resumed = False  # from any checkpoint, in this process
        self._pending: list[Firing] = []  # what the step's end has to act on
        self._entropies: list[float] = []  # of this optimizer step, one a minibatch
        self._masked_streaks: set[tuple[str, int]] = set()  # that the user was told of
        self._judged_step, self._firings = -1, []  # the last step with a generation, its firings
        if self.actions:
            self.add_callback(StepEnd(self))

    def state_dict(self) -> dict[str, Any]:
        """What the guards have seen, for the checkpoint."""
        return {"guards": self.guards.state_dict(), "num_rollbacks": self._num_rollbacks}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint; roll-backs that it does not know of lower the learning rate."""
        self.guards.load_state_dict(state["guards"])
        self._pending, self._entropies, self.is_resumed = [], [], True
        self._judged_step = -1
        self._masked_streaks.clear()
        saved = state["num_rollbacks"]
        recorded = self._of_main_process(num_recorded_rollbacks(self._events))
        self._num_rollbacks = max(self._num_rollbacks, saved, recorded)
        if self._num_rollbacks > saved:
            factor = self._rollback_lr_factor ** (self._num_rollbacks - saved)
            for group in self.optimizer.param_groups:
                group["lr"] *= factor
                group["initial_lr"] *= factor
            for name in ("base_lrs", "_last_lr"):  # the second is what is logged next
                lowered = [lr * factor for lr in getattr(self.lr_scheduler, name, ())]
                setattr(self.lr_scheduler, name, lowered)

    def train(self, *args: Any, **kwargs: Any) -> Any:
        self._check_rollback()
        output = super().train(*args, **kwargs)
        while self._rollback_to is not None:
            checkpoint, self._rollback_to = self._rollback_to, None
            self._last_loaded_step = -1  # vLLM's weights may be those of a step that comes again
            output = super().train(resume_from_checkpoint=checkpoint)
        return output

    def _check_rollback(self) -> None:
        for name, action in self.actions.items():
            if action == "rollback" and self.is_deepspeed_enabled:
                raise UserError(
                    f"guard_{name}: rollback does not work with DeepSpeed, whose engine cannot "
                    "start again in the same process; use stop, or train with DDP"
                )
            if action == "rollback" and self.args.save_only_model:
                raise UserError(
                    f"guard_{name}: rollback needs whole checkpoints; set save_only_model to false"
                )

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        if not self.model.training or not self.actions:
            return super()._generate_and_score_completions(inputs)
        metrics = self._metrics["train"]
        names = {
            "cut_off_rate": "completions/clipped_ratio",
            "length": "completions/mean_length",
            "reward": "reward",
        }
        before = {theirs: len(metrics[theirs]) for theirs in names.values()}
        batch = super()._generate_and_score_completions(inputs)
        statistics = {ours: mean(metrics[key][before[key] :]) for ours, key in names.items()}
        scores = self._scores(batch)
        if "repetition" in scores:
            is_repetitive = scores["repetition"] > self.guards.settings.max_repetition
            statistics["repetition"] = self._share(is_repetitive)
        if "alignment" in scores:
            statistics["logp_mismatch"] = self._share(scores["alignment"])
        if self._judged_step != self.state.global_step:  # once, though a step may use several
            self._judged_step = self.state.global_step
            self._firings = self.guards.observe(self.state.global_step, statistics)
            self._pending += [firing for firing in self._firings if firing.action != "mask"]
        batch = self._mask(batch, scores, [f for f in self._firings if f.action == "mask"])
        is_masked = batch["completion_mask"].sum(dim=1) == 0
        metrics["train/masked_completions"].append(self._share(is_masked))
        return batch

    def _completions(self, batch: dict[str, Any]) -> list[list[int]]:
        """Token ids of each completion, without padding; also of those that TRL has masked."""
        ids, mask = batch["completion_ids"], batch["completion_mask"]  # (B, C)
        is_text = ids != self._tokenizer.pad_token_id
        last = (is_text * torch.arange(1, ids.size(1) + 1, device=ids.device)).amax(dim=1)
        lengths = torch.where(mask.any(dim=1), mask.sum(dim=1), last)  # (B,)
        return [row[:num] for row, num in zip(ids.tolist(), lengths.tolist(), strict=True)]

    def _scores(self, batch: dict[str, Any]) -> dict[str, torch.Tensor]:
        """What the guards that judge single completions see, for each completion, shape (B,)."""
        scores, mask = {}, batch["completion_mask"]
        if "repetition" in self.actions:
            ids = self._completions(batch)
            texts = self.processing_class.batch_decode(ids, skip_special_tokens=True)
            found = repetition_scores(ids, texts, self.guards.settings.repetition_ngram)
            scores["repetition"] = torch.tensor(found, device=mask.device)
        sampled, ours = batch.get("sampling_per_token_logps"), batch.get("old_per_token_logps")
        if "alignment" in self.actions and sampled is not None and ours is not None:
            scores["alignment"] = logp_mismatch(ours, sampled, mask)
        return scores

    def _share(self, values: torch.Tensor) -> float:
        """Mean over the values of all processes, those that are NaN left out."""
        known = values.float()[~values.isnan()]
        sums = torch.stack([known.sum(), known.new_tensor(float(known.numel()))])
        total, count = self.accelerator.reduce(sums, reduction="sum").tolist()
        return total / count if count else math.nan

    def _of_main_process(self, value: Any) -> Any:
        """The main process's value: disks may differ, the way through the code must not."""
        return broadcast_object_list([value])[0]

    def _mask(
        self, batch: dict[str, Any], scores: dict[str, torch.Tensor], firings: list[Firing]
    ) -> dict[str, Any]:
        """Leave the completions that a guard objects to out of the loss."""
        for firing in firings:
            is_bad = self._is_bad(firing, batch, scores) & batch["completion_mask"].any(dim=1)
            num_masked = int(self.accelerator.reduce(is_bad.sum(), reduction="sum"))
            if num_masked:
                batch = mask_rows(batch, is_bad)
                batch["num_items_in_batch"] = self.accelerator.gather(num_loss_tokens(batch)).sum()
                self._record(firing, num_masked=num_masked)
                if (streak := (firing.guard, firing.since)) not in self._masked_streaks:
                    self._tell(firing, "; completions are left out of the loss while it lasts")
                    self._masked_streaks.add(streak)
        return batch

    def _is_bad(
        self, firing: Firing, batch: dict[str, Any], scores: dict[str, torch.Tensor]
    ) -> torch.Tensor:
        """Which completions a guard objects to, bool, shape (B,)."""
        settings, device = self.guards.settings, batch["completion_mask"].device
        if firing.guard == "repetition":
            return scores["repetition"] > settings.max_repetition
        if firing.guard == "alignment":
            return scores["alignment"] > settings.max_logp_mismatch
        ids = self._completions(batch)
        if firing.guard == "eos":
            ends = {*self.eos_token_ids, self._tokenizer.pad_token_id}  # as TRL's cut-off rate
            return torch.tensor([bool(row) and row[-1] not in ends for row in ids], device=device)
        # The guard's value is the mean of the recent lengths over that of the reference.
        recent = self.guards.state_dict()["length_trace"][-settings.patience :]
        reference = mean([length for _, length in recent]) / firing.value
        limit = settings.max_length_growth * reference
        return torch.tensor([len(row) > limit for row in ids], device=device)

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        loss = super().compute_loss(model, inputs, *args, **kwargs)
        if "entropy" in self.actions and self.model.training:
            entropy = self._metrics["train"]["entropy"][-1]
            # TRL's mean over no tokens is 0 too, and then all completions were masked.
            if entropy or self.accelerator.reduce(num_loss_tokens(inputs), reduction="sum"):
                self._entropies.append(entropy)
        return loss

    def end_step(self, moved_share: float, control: Any) -> None:
        """Judge an optimizer step and carry out what is due.

        Args:
            moved_share: share of this process's weights that it changed, NaN where not known.
            control: the Trainer's, which a roll-back tells to end this call of `train`.
        """
        step = self.state.global_step - 1  # the weights that wrote the completions
        moved = torch.tensor([moved_share], device=self.accelerator.device)
        statistics = {"moved_share": self._share(moved)}
        if self._entropies:
            statistics["entropy"] = mean(self._entropies)
        firings = [*self._pending, *self.guards.observe(step, statistics)]
        self._pending, self._entropies = [], []
        for name, value in self.guards.metrics().items():
            self._metrics["train"][name].append(value)
        for firing in firings:
            if firing.action == "warn":
                self._record(firing)
                self._tell(firing)
        # Of several the one that looks back furthest; to stop comes first.
        for action, carry_out in (("stop", self._stop), ("rollback", self._roll_back)):
            if due := [firing for firing in firings if firing.action == action]:
                carry_out(min(due, key=lambda firing: firing.since), control)

    def _stop(self, firing: Firing, control: Any, why: str = "") -> None:
        healthy = self._healthy_checkpoint(firing)
        message = firing.message + why
        self._record(firing, action="stop", message=message, checkpoint=healthy)
        last = f"the last healthy checkpoint is {healthy}" if healthy else "no healthy checkpoint"
        raise UserError(f"{self.args.output_dir}: stopped by guard {message}; {last}")

    def _roll_back(self, firing: Firing, control: Any) -> None:
        healthy = self._healthy_checkpoint(firing)
        if healthy is None:
            self._stop(firing, control, "; so it cannot roll back")
        if self._num_rollbacks >= self._max_rollbacks:
            self._stop(firing, control, f"; guard_max_rollbacks is {self._max_rollbacks}")
        # In this order: a kill in between leads to the same roll-back again, or behind it.
        self._abandon_later_checkpoints(int(healthy.rpartition("-")[2]))
        self._num_rollbacks += 1
        factor = self._rollback_lr_factor
        details = {"learning_rate_factor": factor, "num_rollbacks": self._num_rollbacks}
        self._record(firing, checkpoint=healthy, **details)
        self._tell(firing, f"; back to {healthy}, learning_rate x {factor:g}")
        self._rollback_to = healthy
        control.should_training_stop = True
        control.should_save = control.should_evaluate = False

    def _healthy_checkpoint(self, firing: Firing) -> str | None:
        found = last_healthy_checkpoint(self.args.output_dir, firing.since)
        return self._of_main_process(str(found) if found else None)

    @property
    def _events(self) -> Path:
        return Path(self.args.output_dir) / EVENTS

    def _record(self, firing: Firing, **details: Any) -> None:
        """One line in `events.jsonl`."""
        if is_main_process():
            append_event(self._events, asdict(firing) | details)

    def _tell(self, firing: Firing, more: str = "") -> None:
        """One line on the terminal, beside the progress bar."""
        if is_main_process():
            tqdm.write(f"guard {firing.message}{more}")
            sys.stdout.flush()


def num_recorded_rollbacks(events: Path) -> int:
    """Roll-backs of the run so far, after its `events.jsonl`."""
    counts = [0]
    for line in events.read_text(encoding="utf-8").splitlines() if events.is_file() else ():
        with suppress(ValueError):  # a line that a kill cut short
            event = json.loads(line)
            counts.append(event.get("num_rollbacks", 0) if isinstance(event, dict) else 0)
    return max(counts)
