"""The dtype of the weights that AdamW trains, and the one that vLLM samples in."""

import os
from collections.abc import Mapping
from typing import Any

from pipeline.errors import UserError
from pipeline.settings import Settings
from stages.checks.lora import read_config
from stages.launch import is_on, mixed_precision

TOO_SMALL = (
    "fp16 weights cannot hold AdamW's moments, and the run would destroy the model; use dtype: "
    "float32 with fp16: true on a GPU, or use_peft: true"
)


def trained_dtype(asked: str | None, config: Mapping[str, Any]) -> str:
    """The dtype that a model is loaded in: the recipe's, else that of its config.json, or ""."""
    if asked not in ("auto", None):
        return asked
    for part in (config, config.get("text_config") or {}):
        if found := part.get("dtype") or part.get("torch_dtype"):
            return str(found).removeprefix("torch.")
    return ""


def sampler_dtype(settings: Any, dtype: str | None) -> tuple[str, str]:
    """The dtype that vLLM samples in: that of 16 bits which the trainer computes in.

    Args:
        settings: with GRPO's `fp16` and `bf16`.
        dtype: the recipe's, of the weights.

    Returns:
        It and the key that says so; two empty texts leave the choice to vLLM. By itself vLLM takes
        the 16-bit dtype of the model's config.json, else bfloat16.
    """
    mixed = mixed_precision(settings)
    if mixed != "no":
        return {"fp16": "float16", "bf16": "bfloat16"}[mixed], f"{mixed}: true"
    return (dtype, f"dtype: {dtype}") if dtype in ("float16", "bfloat16") else ("", "")


def is_kept(settings: Settings) -> bool:
    """Whether the optimizer has float32 weights: LoRA's, or DeepSpeed's copies."""
    return settings.use_peft or is_on(os.environ.get("ACCELERATE_USE_DEEPSPEED"))


def check_dtype(settings: Settings) -> None:
    """Refuse `dtype: float16` for weights that are trained themselves."""
    if settings.dtype == "float16" and not is_kept(settings):
        raise UserError(f"dtype: float16: {TOO_SMALL}")


def check_model_dtype(settings: Settings) -> None:
    """Refuse the same where the config.json of a model on this machine decides."""
    if settings.dtype not in ("auto", None) or is_kept(settings):
        return
    model = settings.model_name_or_path
    config = read_config(str(model), settings.model_revision)
    if trained_dtype(settings.dtype, config) == "float16":
        raise UserError(f"dtype: {settings.dtype} is float16 in {model}: {TOO_SMALL}")
