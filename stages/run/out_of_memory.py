"""The line of a training step for which memory was not enough: what to lower."""

from pathlib import Path
from typing import Any

from pipeline.errors import OutOfMemoryError
from stages.run.folders import last_checkpoint

# Keys to lower, those that change least about the run first, and what keeps the batch the same.
TO_LOWER = {
    "vllm_gpu_memory_utilization": "",
    "update_tokens": "",
    "per_device_train_batch_size": ", with more gradient_accumulation_steps",
    "max_completion_length": "",
    "max_length": "",
}


def out_of_memory(trainer: Any, why: str) -> OutOfMemoryError:
    """The error of a trainer, with its step, what to lower, and the last checkpoint.

    Args:
        why: the library's own words.
    """
    args, step = trainer.args, trainer.state.global_step + 1
    checkpoint = last_checkpoint(Path(args.output_dir))
    kept = f"{checkpoint} is whole: the run resumes from it, but not with another batch or length"
    remedies = what_to_lower(args, getattr(trainer, "update_tokens", None))
    return OutOfMemoryError(
        f"{args.output_dir}: out of memory at step {step} ({why}); {remedies}; "
        f"{kept if checkpoint else 'there is no checkpoint yet'}"
    )


def what_to_lower(args: Any, update_tokens: int | str | None = None) -> str:
    """Changes of a recipe that need less memory.

    Args:
        args: TRL's config of SFT or GRPO.
        update_tokens: GRPO's key; with auto a pass is a micro-batch, so its rows are what to lower.
    """
    values = {key: getattr(args, key, None) for key in TO_LOWER}
    values["update_tokens"] = None if update_tokens == "auto" else update_tokens
    if not getattr(args, "use_vllm", False):
        values["vllm_gpu_memory_utilization"] = None
    found = [f"{key} (now {value:g}{TO_LOWER[key]})" for key, value in values.items() if value]
    first = "" if args.gradient_checkpointing else "set gradient_checkpointing: true, "
    return f"{first}lower {', '.join(found)}, or use LORA=1"
