"""TRL's GRPO trainer, made to go on after `kill -9` as if nothing had happened.

On a CPU with one or two processes the resumed run has the weights, the prompts and the registered
state of an uninterrupted one, bit for bit; elsewhere up to the arithmetic's own noise. TRL loses:
the order of the problems in every epoch but the first, the generation batch that a checkpoint lies
inside, and the metrics not logged yet. `stages.trainer.grpo_trainer` builds on this class.

A checkpoint gets two more kinds of file, both on disk before `trainer_state.json`, which marks a
whole checkpoint for `resume_checks.last_checkpoint`:

    extra_state.json             counters, metrics not logged yet, and what is in `extra_state`
    generation_buffer_<rank>.pt  completions that later steps use, if the checkpoint lies inside one
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from transformers.trainer import TRAINER_STATE_NAME
from trl import GRPOTrainer
from trl.trainer.utils import RepeatSampler

from data_prep.config import UserError
from stages.run import say

STATE_FILE = "extra_state.json"
ABANDONED = "abandoned_trainer_state.json"  # the mark of a checkpoint that a roll-back left behind


class EpochSampler(RepeatSampler):
    """TRL's sampler, with a permutation that depends on the seed and the epoch alone.

    TRL's draws the next permutation at every iteration, so a resumed run starts with the first one
    again. `set_epoch` would not do: it reaches no sampler behind accelerate's shards and skips.

    Args:
        sampler: TRL's, from which everything but the epoch is taken.
        epoch: called as an iteration starts; epochs done so far, whole, from 0.
    """

    def __init__(self, sampler: RepeatSampler, epoch: Callable[[], int]) -> None:
        super().__init__(
            sampler.data_source,
            mini_repeat_count=sampler.mini_repeat_count,
            batch_size=sampler.batch_size,
            repeat_count=sampler.repeat_count,
            shuffle=sampler.shuffle,
            seed=sampler.seed,
        )
        self._epoch = epoch

    def __iter__(self) -> Iterator[int]:
        if self.shuffle:
            self.generator.manual_seed(self.seed)
            for _ in range(self._epoch()):
                torch.randperm(self.num_samples, generator=self.generator)
        yield from super().__iter__()


class ExactResume(GRPOTrainer):
    """`GRPOTrainer` whose checkpoints hold all that the next step depends on.

    `extra_state` maps a name to an object whose `state_dict()` gives JSON values, equal on all
    processes, and whose `load_state_dict(state)` takes them back. Whatever steers the training and
    is no weight belongs there. Fill it before `train`; rank 0 writes it, every rank reads it.

    A second `train(resume_from_checkpoint=...)` in the same process rolls back: all of the above is
    again what it was, and later checkpoints in `output_dir` no longer count as whole.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.extra_state: dict[str, Any] = {}
        if self.args.sync_ref_model:
            raise UserError(
                "sync_ref_model: True moves the reference model, which no checkpoint holds, so no "
                "run could be resumed; remove the key"
            )

    def _get_train_sampler(self, dataset: Any = None) -> EpochSampler:
        # The state's epoch is whole at every start of one, and exactly so: the Trainer adds 1.0.
        return EpochSampler(super()._get_train_sampler(dataset), lambda: int(self.state.epoch))

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        # The Trainer looks for the end only after a step: killed behind its last checkpoint, a run
        # would take one step too many.
        if self.state.global_step < self.state.max_steps:
            super()._run_epoch(*args, **kwargs)

    def _save_rng_state(self, output_dir: str) -> None:
        # Here, because the Trainer calls it on every rank and writes only its own state after it.
        super()._save_rng_state(output_dir)
        self._save_generation_state(Path(output_dir))
        # Rank 0 must not mark the checkpoint as whole before the others have written their files.
        self.accelerator.wait_for_everyone()

    def _save_generation_state(self, folder: Path) -> None:
        is_inside = self._step % self._batch_uses() != 0
        if is_inside:
            torch.save(self._buffered_inputs, self._buffer_file(folder))
        if self.args.should_save:
            state = {
                "step": self._step,
                "num_buffers": self.args.world_size if is_inside else 0,
                "metrics": self._metrics["train"],
                # TRL writes these too, but behind the mark, where a kill can lose them.
                "entropy": [self.entropy_coef, self._last_world_entropy],
                "extra": {name: part.state_dict() for name, part in self.extra_state.items()},
            }
            (folder / STATE_FILE).write_text(json.dumps(state), encoding="utf-8")

    def _batch_uses(self) -> int:
        """Micro-steps that a generation batch is used for."""
        return self.args.steps_per_generation * self.num_iterations

    def _buffer_file(self, folder: Path) -> Path:
        return folder / f"generation_buffer_{self.args.process_index}.pt"

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        # The last hook before training that every engine runs, and the only one on a resume alone.
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            self._load_generation_state(Path(checkpoint))
            self._abandon_later_checkpoints(self.state.global_step)

    def _load_generation_state(self, folder: Path) -> None:
        file, num_processes = folder / STATE_FILE, self.args.world_size
        state = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
        saved = state["extra"] if state else {}
        if saved.keys() != self.extra_state.keys():
            raise UserError(
                f"{file}: {'holds' if state else 'is missing, so there is'} the state of "
                f"{', '.join(sorted(saved)) or 'nothing'}, this recipe needs that of "
                f"{', '.join(sorted(self.extra_state)) or 'nothing'}; resume with the recipe that "
                "wrote the checkpoint, or train anew in another output_dir"
            )
        self._metrics["train"].clear()
        self._buffered_inputs = None
        if state is None:
            say(f"{file} is missing: completions not used up at {folder.name} are generated again")
            self._step = 0
            return
        if state["num_buffers"] not in (0, num_processes):
            raise UserError(
                f"{folder}: lies inside a generation batch of {state['num_buffers']} processes, "
                f"this run has {num_processes}; start as many as before"
            )
        self._step = state["step"]
        if not state["num_buffers"] and self._step % self._batch_uses():
            # Between two batches, of another division into micro-batches: the next is generated.
            self._step = 0
        self._metrics["train"].update(state["metrics"])
        if self.use_adaptive_entropy:
            self.entropy_coef, self._last_world_entropy = state["entropy"]
        if state["num_buffers"]:
            self._buffered_inputs = torch.load(
                self._buffer_file(folder), map_location=self.accelerator.device, weights_only=True
            )
        for name, part in self.extra_state.items():
            part.load_state_dict(saved[name])

    def _abandon_later_checkpoints(self, step: int) -> None:
        """Take their mark off the checkpoints behind this step's; their other files stay.

        Training goes on from here. Killed later, it must come back to what it wrote itself, and not
        to an older checkpoint with a higher number, nor to one that it had half overwritten.
        """
        if self.args.should_save:
            for mark in Path(self.args.output_dir).glob(f"checkpoint-*[0-9]/{TRAINER_STATE_NAME}"):
                if int(mark.parent.name.rpartition("-")[2]) > step:
                    mark.replace(mark.with_name(ABANDONED))
