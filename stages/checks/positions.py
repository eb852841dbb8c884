"""The model's positions: rows may not be longer than those it has learned; room for completions."""

from pathlib import Path
from typing import Any

from pipeline.checkpoints import base_and_adapter, is_hub_id
from pipeline.errors import UserError
from pipeline.settings import Settings
from pipeline.weights import num_positions


def check_positions(settings: Settings) -> None:
    """Refuse rows of SFT or GRPO that are longer than the positions that a local model knows."""
    model = settings.model_name_or_path
    base, _ = base_and_adapter(model, "model_name_or_path")
    if is_hub_id(base) or not Path(base).is_dir():
        return
    most = num_positions(Path(base))
    if most is None:
        return
    why = f"{model} has learned {most:,} positions"
    if hasattr(settings, "max_length"):  # SFT
        if settings.max_length is None or settings.max_length > most:
            raise UserError(f"max_length: {settings.max_length}, but {why}; set at most {most}")
        return
    completion = settings.max_completion_length
    room = most - (completion or 1)
    if room < 1:
        raise UserError(f"max_completion_length: {completion}, but {why}; lower it")
    if settings.max_prompt_length is None or settings.max_prompt_length > room:
        raise UserError(
            f"max_prompt_length: {settings.max_prompt_length} beside max_completion_length: "
            f"{completion}, but {why}; set at most {room}, or lower the other"
        )


def completion_room(settings: Any, positions: int | None, prompt: int) -> int | None:
    """Tokens of the longest completion, 1 or more; None where no limit is known.

    Without a `max_completion_length` a completion may fill the context behind the prompt.

    Args:
        settings: the recipe's keys, of TRL's `GRPOConfig`.
        positions: tokens of the model's context, None where its config.json does not say.
        prompt: tokens of the longest prompt.
    """
    if settings.max_completion_length is not None:
        return settings.max_completion_length
    context = settings.vllm_max_model_length or positions
    return max(1, context - prompt) if context else None
