"""The line of a training step for which memory was not enough: what to lower, by the keys set."""

import traceback
from pathlib import Path
from typing import Any

from pipeline.errors import OutOfMemoryError
from stages.run.folders import last_checkpoint
from stages.run.launch import FSDP, asked_engine

MOST = 3  # remedies of one line


def out_of_memory(trainer: Any, error: BaseException, why: str) -> OutOfMemoryError:
    """The error of a trainer, with its step, what to lower, and the last checkpoint.

    Args:
        why: the library's own words.
    """
    args, step = trainer.args, trainer.state.global_step + 1
    names = {frame.name for frame in traceback.extract_tb(error.__traceback__)}
    remedies = what_to_lower(
        args,
        why,
        is_generating="generate" in names,
        update_tokens=getattr(trainer, "update_tokens", None),
        has_reference=getattr(trainer, "ref_model", None) is not None,
        is_fsdp=asked_engine() == FSDP,
        is_lora=hasattr(trainer.model, "peft_config"),
    )
    checkpoint = last_checkpoint(Path(args.output_dir))
    kept = f"{checkpoint} is whole: the run resumes from it, but not with another batch or length"
    return OutOfMemoryError(
        f"{args.output_dir}: out of memory at step {step} ({why}); lower: "
        f"{', or '.join(remedies[:MOST])}; {kept if checkpoint else 'there is no checkpoint yet'}"
    )


def what_to_lower(
    args: Any,
    why: str,
    is_generating: bool = False,
    update_tokens: int | None = None,
    has_reference: bool = False,
    is_fsdp: bool = False,
    is_lora: bool = False,
) -> list[str]:
    """Changes of a recipe that need less memory, those that change least about the run first.

    Args:
        args: TRL's config of SFT or GRPO.
        is_generating: memory was full while completions were generated, not in an update.
        update_tokens: tokens of GRPO's packed forward pass, where it is on.
        has_reference: whether a reference model lies in memory.
    """
    found = []
    if "dataloader worker" in why.lower():
        found.append("dataloader_num_workers: 0")
    if getattr(args, "use_vllm", False) and args.vllm_mode == "colocate":
        share = args.vllm_gpu_memory_utilization
        sleep = "" if args.vllm_enable_sleep_mode else ", with vllm_enable_sleep_mode: true"
        found.append(f"vllm_gpu_memory_utilization (now {share:g}){sleep}")
    rows, steps = args.per_device_train_batch_size, args.gradient_accumulation_steps
    if is_generating:
        num_rows = rows * (getattr(args, "steps_per_generation", None) or 1)
        found.append(f"steps_per_generation: {num_rows} completions are generated at once")
    else:
        if not args.gradient_checkpointing:
            found.append("gradient_checkpointing: true")
        if update_tokens is not None:
            found.append(f"update_tokens (now {update_tokens})")
        if rows > 1:
            found.append(smaller_batch(args, rows, steps, is_fsdp))
        if has_reference:
            found.append("beta: 0, which needs no reference model")
    for key in ("max_completion_length", "max_length"):
        if value := getattr(args, key, None):
            found.append(f"{key} (now {value})")
    return found if is_lora else [*found, "LORA=1"]


def smaller_batch(args: Any, rows: int, steps: int, is_fsdp: bool) -> str:
    """Half the rows of a forward pass; where it can be, with the same batch in all."""
    found = f"per_device_train_batch_size: {rows // 2}"
    if rows % 2 or is_fsdp:  # FSDP2 keeps whole gradients while it accumulates
        return found
    found += f" with gradient_accumulation_steps: {steps * 2}"
    per_generation = getattr(args, "steps_per_generation", None) or steps
    return (
        found if per_generation == steps else f"{found}, steps_per_generation: {per_generation * 2}"
    )
