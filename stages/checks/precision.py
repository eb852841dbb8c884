"""The dtype of the weights that AdamW trains."""

import os
from collections.abc import Mapping
from typing import Any

from pipeline.errors import UserError
from pipeline.settings import Settings
from stages.checks.lora import read_config
from stages.launch import is_on

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
