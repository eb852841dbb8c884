"""Evaluation during GRPO: avg@k on validation problems, and the best model kept (docs/grpo.md).

Every problem counts once. TRL averages over batches, with the copies that fill up the last one when
several processes share the problems. The project's grader decides which answers are correct,
whatever the rewards are. The training continues as if nothing had been evaluated.

The best model is in `<output_dir>/best`. A new one is written to another folder, `best.json` last,
and then renamed. A run that is killed between two renames leaves none under the name, and the
resumed run puts the finished one there.
"""

import math
import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import broadcast_object_list

from pipeline import json_files, manifest
from pipeline.console import is_main_process
from stages.run.removal import drop_replaced

NAME, FILE = "best", "best.json"
ADAPTER = "adapter"  # the folder beside merged weights
RECORD = {"metric": str, "value": float, "stderr": (float, None), "step": int}


@contextmanager
def random_state_kept(device: torch.device) -> Iterator[None]:
    """Restore Python's, numpy's and torch's random state afterwards; not a vLLM server's."""
    state, numpy_state = random.getstate(), np.random.get_state()
    devices = [] if device.type == "cpu" else [device]
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(state)
        np.random.set_state(numpy_state)


@contextmanager
def sampling_with(trainer: Any, values: dict[str, float]) -> Iterator[None]:
    """Let a trainer's engine draw with other values of temperature, top_p or top_k; then as before.

    Log-probs stay those of training's temperature.
    """
    if trainer.use_vllm:
        holders = [vars(trainer.vllm_generation)]
    else:  # continuous batching reads the keywords
        holders = [vars(trainer.generation_config), trainer.generation_kwargs]
    before = [{name: holder[name] for name in values} for holder in holders]
    for holder in holders:
        holder.update(values)
    try:
        yield
    finally:
        for holder, old in zip(holders, before, strict=True):
            holder.update(old)


def average_at_k(num_right: list[int], k: int) -> tuple[float, float]:
    """avg@k and its standard error over problems, both within 0..1.

    avg@k = mean over problems of s, s = correct completions / k
    standard error = standard deviation of s over problems / sqrt(number of problems)
    """
    shares = [num / k for num in num_right]
    mean = sum(shares) / len(shares)
    variance = sum((share - mean) ** 2 for share in shares) / (len(shares) - 1)
    return mean, math.sqrt(variance / len(shares))


class HeldOutCounts:
    """Correct and cut-off completions (without one of the ids `ends`), tokens of each problem."""

    def __init__(self, num_generations: int, ends: set[int]) -> None:
        self._k, self._ends = num_generations, ends
        self._counts: dict[int, tuple[int, int, int]] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def add(
        self,
        inputs: list[dict[str, Any]],
        verdicts: list[str],
        completions: list[list[int]],
        accelerator: Any,
    ) -> None:
        """Note what the groups of all processes have shown, of copies of a problem one."""
        counts = [
            [verdict == "right", ids[-1] not in self._ends, len(ids)]
            for verdict, ids in zip(verdicts, completions, strict=True)
        ]
        mine = torch.tensor(counts, device=accelerator.device).view(-1, self._k, 3).sum(dim=1)
        numbers = [[row["held_out"]] for row in inputs[:: self._k]]
        rows = torch.cat([torch.tensor(numbers, device=accelerator.device), mine], dim=1)
        for number, *sums in accelerator.gather(rows).tolist():
            self._counts.setdefault(number, tuple(sums))

    def metrics(self) -> dict[str, float]:
        """avg@k and its standard error, share of cut-off completions, mean length in tokens."""
        num_right, num_cut, num_tokens = zip(*self._counts.values(), strict=True)
        mean, stderr = average_at_k(list(num_right), self._k)
        num_completions = len(num_right) * self._k
        return {
            f"eval_avg@{self._k}": mean,
            f"eval_avg@{self._k}_stderr": stderr,
            "eval_cut_off_rate": sum(num_cut) / num_completions,
            "eval_response_length": sum(num_tokens) / num_completions,
        }


def read_best(output_dir: str | Path) -> dict[str, Any] | None:
    """`{metric, value, stderr, step}` of the best model so far, None without one.

    Puts in order what a kill may have left: call it from one process only.
    """
    folder, written, replaced = folders(output_dir)
    if not os.path.lexists(folder):
        for one in (written, replaced):
            if (one / FILE).is_file() and not folder.exists():
                one.rename(folder)
    shutil.rmtree(written, ignore_errors=True)  # not whole, or saved again after a resume
    if os.path.lexists(replaced):
        drop_replaced(replaced, folder, folder / ADAPTER)
    file = folder / FILE
    if not file.is_file():
        return None
    remedy = f"move {folder} away: the next evaluation starts from scratch"
    return json_files.read(file, RECORD, remedy)


def is_better(value: float, step: int, best: dict[str, Any] | None) -> bool:
    """Whether a value takes the place of the best one; of equal ones the earlier stays."""
    return best is None or (value, -step) > (best["value"], -best["step"])


def keep_if_best(trainer: Any, name: str, metrics: dict[str, float]) -> bool:
    """Whether a trainer's model is the best so far by this metric; then it is saved as that."""
    output_dir, step = trainer.args.output_dir, trainer.state.global_step
    (best,) = broadcast_object_list([read_best(output_dir) if is_main_process() else None])
    value = metrics[f"eval_{name}"]
    if not is_better(value, step, best):
        return False
    written = folders(output_dir)[1]
    trainer.save_model(str(written), _internal_call=True)  # else to the hub too
    trainer.accelerator.wait_for_everyone()  # others may write parts of a sharded model
    if trainer.args.should_save:
        record = {"metric": name, "value": value, "stderr": metrics[f"eval_{name}_stderr"]}
        manifest.write_json(written / FILE, record | {"step": step})
        put_best_in_place(output_dir)
    trainer.accelerator.wait_for_everyone()
    return True


def put_best_in_place(output_dir: str | Path, *inner: str) -> None:
    """Let the best model that was written, `best.json` last, take the place of the one before.

    Args:
        inner: folders in it that have taken files of the one before.
    """
    folder, written, replaced = folders(output_dir)
    if os.path.lexists(folder):
        folder.rename(replaced)
    written.rename(folder)
    if os.path.lexists(replaced):
        drop_replaced(replaced, folder, *(folder / name for name in inner))


def folders(output_dir: str | Path) -> tuple[Path, Path, Path]:
    """The best model's folder, where the next is written, where the last one goes for a moment."""
    folder = Path(output_dir) / NAME
    return folder, folder.with_name(f"{NAME}.partial"), folder.with_name(f"{NAME}.replaced")
