"""Shapes of the models that recipes and benchmarks name: what their config.json says.

With them a recipe is checked, its memory planned and a random-init model of its size built on a
machine that has neither the weights nor a network. A checkpoint folder has its own config.json,
which goes first; see `load_shape`.
"""

import json
from pathlib import Path
from typing import Any

from data_prep.config import UserError

_QWEN2 = {
    "model_type": "qwen2",
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "max_position_embeddings": 32768,
}
_TINY = _QWEN2 | {
    "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 4, "vocab_size": 646, "tie_word_embeddings": True, "rope_theta": 100,
    "max_position_embeddings": 4096,
}  # fmt: skip
_HALF_B = _QWEN2 | {
    "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
    "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936,
    "tie_word_embeddings": True,
}  # fmt: skip
_ONE_AND_A_HALF_B = _QWEN2 | {
    "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28,
    "num_attention_heads": 12, "num_key_value_heads": 2, "vocab_size": 151936,
    "tie_word_embeddings": True,
}  # fmt: skip
_SEVEN_B = _QWEN2 | {
    "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
    "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064,
    "tie_word_embeddings": False,
}  # fmt: skip
_LLAMA_8B = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "vocab_size": 128256, "tie_word_embeddings": False, "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5, "rope_theta": 5e5,
}  # fmt: skip
_DISTILL = {"max_position_embeddings": 131072, "rope_theta": 1e4, "tie_word_embeddings": False}

SHAPES: dict[str, dict[str, Any]] = {
    "tiny": _TINY,
    "0.5B": _HALF_B,
    "1.5B": _ONE_AND_A_HALF_B,
    "7B": _SEVEN_B,
    "Qwen/Qwen2.5-0.5B-Instruct": _HALF_B,
    "Qwen/Qwen2.5-1.5B-Instruct": _ONE_AND_A_HALF_B,
    "Qwen/Qwen2.5-7B": _SEVEN_B | {"max_position_embeddings": 131072},
    "Qwen/Qwen2.5-7B-Instruct": _SEVEN_B,
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": _ONE_AND_A_HALF_B | _DISTILL,
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": _SEVEN_B | _DISTILL,
    "meta-llama/Llama-3.1-8B-Instruct": _LLAMA_8B,
}


def load_shape(model: str) -> dict[str, Any]:
    """The fields of a model's config.json.

    Args:
        model: a checkpoint folder, or a name of `SHAPES`.

    Raises:
        UserError: it is neither, or the folder's config.json cannot be read.
    """
    path = Path(model) / "config.json"
    if not path.is_file():
        if model in SHAPES:
            return dict(SHAPES[model])
        raise UserError(
            f"model_name_or_path: {model} is no checkpoint folder, and its shape is not known "
            f"here; download it and name the folder, or use one of {', '.join(SHAPES)}"
        )
    try:
        shape = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: {error}; the file must hold the model's JSON config") from error
    if not isinstance(shape, dict) or not isinstance(shape.get("model_type"), str):
        raise UserError(f"{path}: no model_type; the file must hold the model's JSON config")
    return shape


def build_config(shape: dict[str, Any]) -> Any:
    """The transformers config of a shape. Raises `UserError` for a model type it does not know."""
    from transformers import AutoConfig

    fields = {key: value for key, value in shape.items() if key != "model_type"}
    try:
        return AutoConfig.for_model(shape["model_type"], **fields)
    except ValueError as error:
        raise UserError(
            f"model_type: {shape['model_type']!r} is not known to transformers ({error})"
        ) from error
