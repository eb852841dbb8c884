"""When a checkpoint may be gone on from by another number of processes, or another engine.

Plain data parallel: where a step takes as many rows as before (and a generation batch, in GRPO),
two processes do what one does, so the run goes on, on the same rows. Otherwise the Trainer would
skip the wrong rows without a word. DeepSpeed cannot load the optimizer's state of another number of
processes or another stage; told to resume a DeepSpeed checkpoint without DeepSpeed, the Trainer
starts with an empty optimizer, silently.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from data_prep.config import UserError
from stages.launching.launch import DATA_PARALLEL, FSDP, ZERO

RUN_FILE = "run.json"  # what the checkpoints in a folder were made from

# What may differ between two numbers of processes.
BATCH_KEYS = (
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "steps_per_generation",
    "generation_batch_size",
)


def last_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint; one cut short (state not written or not readable) is skipped.

    The Trainer writes `trainer_state.json` after weights, optimizer and random state.
    """
    found = sorted(folder.glob("checkpoint-*[0-9]"), key=lambda p: int(p.name.rpartition("-")[2]))
    for checkpoint in reversed(found):
        try:
            json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
        except (OSError, json.JSONDecodeError):
            continue
        return checkpoint
    return None


def read_run(folder: Path) -> tuple[dict[str, Any], int | None]:
    """What a folder's checkpoints were made from (`config`, `inputs`), and by how many processes.

    Empty mappings where nothing can be read, None where the number was not written down.
    """
    run: dict[str, Any] = {"config": {}, "inputs": {}}
    try:
        run |= json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return run, None
    return run, run.pop("num_processes", None)


def made_by(checkpoint: Path) -> tuple[int | None, str | None]:
    """Number of processes and engine that wrote a checkpoint; None where its files do not say."""
    if (checkpoint / "rng_state.pth").is_file():
        number: int | None = 1
    else:
        number = len(list(checkpoint.glob("rng_state_*.pth"))) or None
    engine = None
    if list(checkpoint.glob("global_step*")):
        is_sharded = list(checkpoint.glob("global_step*/zero_pp_rank_*_model_states.pt"))
        engine = ZERO.format(3 if is_sharded else 2)
    elif (checkpoint / "optimizer.pt").is_file():
        engine = DATA_PARALLEL
    elif (checkpoint / "optimizer_0").is_dir() or (checkpoint / "optimizer.bin").is_file():
        engine = FSDP
    return number, engine


def rows_of(config: Mapping[str, Any], num_processes: int) -> dict[str, int]:
    """Rows that one optimizer step, and in GRPO one generation batch, take from all processes."""
    per_device = (config.get("per_device_train_batch_size") or 8) * num_processes
    rows = {"step": per_device * (config.get("gradient_accumulation_steps") or 1)}
    if config.get("steps_per_generation"):
        rows["generation batch"] = per_device * config["steps_per_generation"]
    return rows


def differ_in_batch_only(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether two flat recipes say the same but for how a batch is divided."""
    keys = (old.keys() | new.keys()) - set(BATCH_KEYS)
    return all(old.get(key) == new.get(key) for key in keys)


def check_resume(
    checkpoint: Path, config: Mapping[str, Any], num_processes: int, engine: str
) -> None:
    """Refuse a checkpoint that this launch cannot go on from.

    Args:
        checkpoint: beside it lies the `run.json` of the launch that wrote it.
        config: this launch's flat recipe.
        engine: of this launch, as `stages.launching.launch.asked_engine` gives it.

    Raises:
        UserError: names both numbers, or both engines, and the remedy.
    """
    number, wrote = made_by(checkpoint)
    remedy = "start as before, or train anew in another output_dir"
    # Their files do not tell 1 from 2, and the state is the same.
    is_alike = {wrote, engine} == {ZERO.format(stage) for stage in (1, 2)}
    if wrote is not None and wrote != engine and not is_alike:
        raise UserError(f"{checkpoint}: was made with {wrote}, this launch has {engine}; {remedy}")
    if engine != DATA_PARALLEL and number not in (None, num_processes):
        raise UserError(
            f"{checkpoint}: was made with {number} processes and {engine}, which loads it with as "
            f"many only; this launch has {num_processes}; {remedy}"
        )
    run, old_number = read_run(checkpoint.parent)
    old_number = old_number or number
    if old_number in (None, num_processes):
        return
    rows = rows_of(config, num_processes)
    for unit, count in rows_of(run["config"] or config, old_number).items():
        if rows.get(unit) != count:
            raise UserError(
                f"{checkpoint}: was made with {old_number} processes and {count} rows a {unit}, "
                f"this launch has {num_processes} and {rows.get(unit)}; change "
                "per_device_train_batch_size or gradient_accumulation_steps so that they are "
                f"{count} again, or {remedy}"
            )
