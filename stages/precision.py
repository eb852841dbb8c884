"""The dtype of the weights that AdamW trains, and the one that vLLM samples in."""

from collections.abc import Mapping
from typing import Any

from stages.run.launch import mixed_precision

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
