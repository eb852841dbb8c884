"""Sizes of models, from their config.json, without weights or network."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_prep.config import UserError

LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def _shape(
    hidden: int, inner: int, layers: int, heads: int, key_value_heads: int, vocab: int, **more: Any
) -> dict[str, Any]:
    return {
        "model_type": "qwen2", "hidden_size": hidden, "intermediate_size": inner,
        "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": key_value_heads, "vocab_size": vocab, "rms_norm_eps": 1e-6,
        "rope_theta": 1e6, "max_position_embeddings": 32768, "tie_word_embeddings": True,
    } | more  # fmt: skip


_HALF_B = _shape(896, 4864, 24, 14, 2, 151936)
_ONE_AND_A_HALF_B = _shape(1536, 8960, 28, 12, 2, 151936)
_SEVEN_B = _shape(3584, 18944, 28, 28, 4, 152064, tie_word_embeddings=False)
_LONG = {"max_position_embeddings": 131072}
_DISTILL = _LONG | {"rope_theta": 1e4, "tie_word_embeddings": False}
_LLAMA = {
    "model_type": "llama", "tie_word_embeddings": False, "rms_norm_eps": 1e-5, "rope_theta": 5e5
}  # fmt: skip
# What the config.json of each says, so that a recipe is checked without weights or network.
SHAPES: dict[str, dict[str, Any]] = {
    "tiny": _shape(64, 192, 3, 4, 4, 646, rope_theta=100, max_position_embeddings=4096),
    "0.5B": _HALF_B,
    "1.5B": _ONE_AND_A_HALF_B,
    "7B": _SEVEN_B,
    "Qwen/Qwen2.5-0.5B-Instruct": _HALF_B,
    "Qwen/Qwen2.5-1.5B-Instruct": _ONE_AND_A_HALF_B,
    "Qwen/Qwen2.5-7B": _SEVEN_B | _LONG,
    "Qwen/Qwen2.5-7B-Instruct": _SEVEN_B,
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": _ONE_AND_A_HALF_B | _DISTILL,
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": _SEVEN_B | _DISTILL,
    "meta-llama/Llama-3.1-8B-Instruct": _shape(4096, 14336, 32, 32, 8, 128256, **_LONG) | _LLAMA,
}


def load_shape(model: str) -> dict[str, Any]:
    """Load the fields of a model's config.json.

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


@dataclass(frozen=True)
class Model:
    """Sizes of a decoder-only model with SwiGLU, RMSNorm and grouped-query attention."""

    hidden: int
    inner: int
    layers: int
    query: int  # heads x head dimension
    key: int  # key-value heads x head dimension
    heads: int
    vocab: int
    is_tied: bool
    has_bias: bool  # of q, k and v
    head_norms: int  # weights of the norms of q and k in a layer (Qwen3)

    def linears(self) -> dict[str, tuple[int, int]]:
        """(inputs, outputs) of a layer's linear modules."""
        h, i, a, k = self.hidden, self.inner, self.query, self.key
        sizes = ((h, a), (h, k), (h, k), (a, h), (h, i), (h, i), (i, h))
        return dict(zip(LINEARS, sizes, strict=True))

    @property
    def layer_linear(self) -> int:
        """Parameters of one layer's matrices."""
        return sum(rows * columns for rows, columns in self.linears().values())

    @property
    def layer_params(self) -> int:
        bias = self.query + 2 * self.key if self.has_bias else 0
        return self.layer_linear + bias + 2 * self.hidden + self.head_norms

    @property
    def embedding(self) -> int:
        """Parameters of the embedding; an untied LM head has as many again."""
        return self.vocab * self.hidden

    @property
    def params(self) -> int:
        tables = 1 if self.is_tied else 2
        return self.layers * self.layer_params + tables * self.embedding + self.hidden

    def lora_params(self, rank: int, modules: tuple[str, ...]) -> int:
        """Parameters of LoRA matrices: rank x (inputs + outputs) of each module."""
        sizes = self.linears()
        return self.layers * sum(rank * sum(sizes[name]) for name in modules)


def read_model(shape: dict[str, Any]) -> Model:
    """Read the sizes in a model's config.json.

    Raises:
        UserError: the plan does not know the model type, or a size is missing.
    """
    kind, known = shape.get("model_type"), ("qwen2", "llama", "mistral", "qwen3")
    if kind not in known:
        raise UserError(f"model_type: {kind!r} has no memory plan; known are {', '.join(known)}")
    try:
        heads, hidden = int(shape["num_attention_heads"]), int(shape["hidden_size"])
        width = int(shape.get("head_dim") or hidden // heads)
        return Model(
            hidden=hidden,
            inner=int(shape["intermediate_size"]),
            layers=int(shape["num_hidden_layers"]),
            query=heads * width,
            key=int(shape.get("num_key_value_heads") or heads) * width,
            heads=heads,
            vocab=int(shape["vocab_size"]),
            is_tied=bool(shape.get("tie_word_embeddings", False)),
            has_bias=kind == "qwen2",
            head_norms=2 * width if kind == "qwen3" else 0,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"config.json: {error} is missing or no number") from error


def is_lora_target(asked: Any, name: str) -> bool:
    """Whether peft puts LoRA on a module: None is q and v, a text a pattern of the whole path."""
    if asked is None:
        return name in ("q_proj", "v_proj")
    if asked in ("all-linear", ["all-linear"]):
        return name in LINEARS
    if isinstance(asked, list) and len(asked) != 1:
        return any(one.rpartition(".")[2] == name for one in asked)
    # TRL makes a text of a list of one, and peft fits a text to the whole path.
    pattern = asked[0] if isinstance(asked, list) else asked
    part = "mlp." if name in LINEARS[4:] else "self_attn."
    path = f"model.layers.0.{part if name in LINEARS else ''}{name}"
    return re.fullmatch(str(pattern), path) is not None
