"""Exact resume: a run that resumes after `kill -9` ends as if it had not been killed.

TRL's checkpoints lack the order of the problems after the first epoch, the generation batch in use,
and the metrics not logged yet. These files are added, before the hashes of all files, the mark of a
complete checkpoint:

    extra_state.json             counters, metrics and completions to be logged, and `extra_state`
    generation_buffer_<rank>.pt  completions that later steps use, if the checkpoint lies inside one
    reference.pt                 the reference model's weights, if `sync_ref_model` moves them
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import TrainerCallback
from trl.trainer.utils import RepeatSampler

from pipeline import json_files
from pipeline.errors import UserError
from stages.run.folders import unseal
from stages.run.removal import checkpoints

STATE_FILE, BUFFER_FILE = "extra_state.json", "generation_buffer_{}.pt"
REFERENCE_FILE = "reference.pt"
STATE_SHAPE = {
    "step": int,
    "num_buffers": int,
    "metrics": {str: [object]},
    "num_completions": int,
    "table?": {str: ([object], {str: [object]})},
    "extra": {str: object},
}


class EpochSampler(RepeatSampler):
    """TRL's sampler, with a permutation that depends on the seed and the epoch alone.

    TRL's sampler draws the next permutation at every iteration, so a resumed run starts with the
    first one again. `set_epoch` would not help: it does not reach a sampler behind accelerate's
    shards and skips. The function `epoch` is called as an iteration starts and gives the number of
    finished epochs.
    """

    def __init__(self, sampler: RepeatSampler, epoch: Callable[[], int]) -> None:
        self.__dict__.update(vars(sampler), _epoch=epoch)

    def __iter__(self) -> Iterator[int]:
        if self.shuffle:
            self.generator.manual_seed(self.seed)
            for _ in range(self._epoch()):
                torch.randperm(self.num_samples, generator=self.generator)
        yield from super().__iter__()


class LoadAtStart(TrainerCallback):
    """Calls `load` as training starts, when weights, optimizer and schedule have been loaded."""

    def __init__(self, load: Callable[[], None]) -> None:
        self._load = load

    def on_train_begin(self, args, state, control, **kwargs):
        self._load()


def save_generation_state(trainer: Any, folder: Path) -> None:
    """Write this process's part of both kinds of file; rank 0 alone writes `extra_state.json`."""
    args = trainer.args
    is_inside = trainer._step % (args.steps_per_generation * trainer.num_iterations) != 0
    if is_inside:
        torch.save(trainer._buffered_inputs, folder / BUFFER_FILE.format(args.process_index))
    if args.should_save and args.sync_ref_model:
        torch.save(trainer.ref_model.state_dict(), folder / REFERENCE_FILE)
    if args.should_save:
        state = {
            "step": trainer._step,
            "num_buffers": args.world_size if is_inside else 0,
            "metrics": trainer._metrics["train"],
            "num_completions": trainer.num_completions,
            "table": trainer._logs if is_inside and trainer.log_completions else {},
            "extra": states_of(trainer.extra_state),
        }
        (folder / STATE_FILE).write_text(json.dumps(state, default=list), encoding="utf-8")


def states_of(parts: dict[str, Any]) -> dict[str, Any]:
    """The states of the trainer's further parts; refuses those that JSON does not keep."""
    states = {name: part.state_dict() for name, part in parts.items()}
    for name, state in states.items():
        method = f"{name}: state_dict() of {type(parts[name]).__name__}"
        try:
            json.dumps(state, default=list)
        except (TypeError, ValueError) as error:  # a tensor, a number of numpy
            remedy = "use lists and plain numbers"
            raise UserError(f"{method} is not of JSON's types ({error}); {remedy}") from error
        if key := other_key(state):
            raise UserError(f"{method} has the key {key}, which JSON makes text; use text")
    return states


def other_key(state: Any) -> str:
    """A key that is no text, of any mapping in a state; empty where there is none."""
    if isinstance(state, list | tuple):
        return next(filter(None, map(other_key, state)), "")
    if not isinstance(state, dict):
        return ""
    found = [repr(key) for key in state if not isinstance(key, str)]
    return found[0] if found else other_key(list(state.values()))


def prompts_of_earlier_version(folder: Path) -> dict[str, Any]:
    """The state of `PromptReader` of a run that read all prompts at its start, in a file."""
    if not (file := folder / "prompt_components.npy").is_file():
        return {}
    components = np.load(file)
    rows = list(range(len(components)))
    state = {"num_rows": len(rows), "read": rows, "components": components}
    return {"prompts": state | {"directions": [], "origin": []}}  # nothing is left to read


def load_generation_state(trainer: Any, folder: Path) -> None:
    """Resume from a checkpoint whose weights, optimizer and schedule have been loaded."""
    file, args = folder / STATE_FILE, trainer.args
    if not file.is_file():
        raise UserError(f"{file} is missing; resume from a checkpoint that this stage wrote")
    remedy = "resume from an earlier checkpoint"
    state = json_files.read(file, STATE_SHAPE, remedy)
    saved, needed = state["extra"], trainer.extra_state
    if "prompts" in needed and "prompts" not in saved:
        saved |= prompts_of_earlier_version(Path(args.output_dir))
    if saved.keys() != needed.keys():
        raise UserError(
            f"{file}: holds the state of {', '.join(sorted(saved)) or 'nothing'}, this recipe "
            f"needs that of {', '.join(sorted(needed)) or 'nothing'}; resume with the recipe that "
            "wrote the checkpoint, or start a new run in another output_dir"
        )
    if state["num_buffers"] not in (0, args.world_size):
        raise UserError(
            f"{folder}: was written by {state['num_buffers']} processes in the middle of a "
            f"generation batch, this run has {args.world_size}; start as many as before"
        )
    trainer._step, trainer._buffered_inputs = state["step"], None
    if state["num_buffers"]:
        buffer, device = folder / BUFFER_FILE.format(args.process_index), trainer.accelerator.device
        trainer._buffered_inputs = torch.load(buffer, map_location=device, weights_only=True)
    elif trainer._step % (args.steps_per_generation * trainer.num_iterations):
        # Between two batches, of another division into micro-batches: the next is generated.
        trainer._step = 0
    if args.sync_ref_model:
        weights = torch.load(folder / REFERENCE_FILE, map_location="cpu", weights_only=True)
        trainer.ref_model.load_state_dict(weights)
    trainer._metrics["train"].clear()
    trainer._metrics["train"].update(state["metrics"])
    trainer.num_completions = state["num_completions"]
    for name, values in state.get("table", {}).items():
        for column, rows in values.items() if isinstance(values, dict) else [(None, values)]:
            (trainer._logs[name] if column is None else trainer._logs[name][column]).extend(rows)
    for name, part in needed.items():
        part.load_state_dict(saved[name])


def abandon_later_checkpoints(output_dir: str, step: int) -> None:
    """Take their mark off the checkpoints behind this step's; their other files stay.

    Training resumes here. If it is killed later, it must find its own checkpoints only.
    """
    for found, checkpoint in checkpoints(Path(output_dir)).items():
        if found > step:
            unseal(checkpoint)
