"""Sizes of a model and of a training step, as `stages.preflight.memory_plan` needs them."""

from dataclasses import dataclass
from typing import Any

from data_prep.config import UserError

FAMILIES = ("qwen2", "llama", "mistral", "qwen3")
# How weights, gradients and optimizer states are spread over the processes.
ENGINES = ("none", "ddp", "zero2", "zero3", "zero3_offload", "fsdp2")
LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


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
        h, i = self.hidden, self.inner
        pairs = (
            (h, self.query),
            (h, self.key),
            (h, self.key),
            (self.query, h),
            (h, i),
            (h, i),
            (i, h),
        )
        return dict(zip(LINEARS, pairs, strict=True))

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
    """The sizes in a model's config.json.

    Raises:
        UserError: the model type is none that the plan knows, or a size is missing.
    """
    if shape.get("model_type") not in FAMILIES:
        raise UserError(
            f"model_type: {shape.get('model_type')!r} has no memory plan; known are "
            f"{', '.join(FAMILIES)}"
        )
    try:
        heads = int(shape["num_attention_heads"])
        width = int(shape.get("head_dim") or shape["hidden_size"] // heads)
        is_qwen3 = shape["model_type"] == "qwen3"
        return Model(
            hidden=int(shape["hidden_size"]),
            inner=int(shape["intermediate_size"]),
            layers=int(shape["num_hidden_layers"]),
            query=heads * width,
            key=int(shape.get("num_key_value_heads") or heads) * width,
            heads=heads,
            vocab=int(shape["vocab_size"]),
            is_tied=bool(shape.get("tie_word_embeddings", False)),
            has_bias=shape["model_type"] == "qwen2",
            head_norms=2 * width if is_qwen3 else 0,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"config.json: {error} is missing or no number") from error


@dataclass(frozen=True)
class Step:
    """What a training process does in one optimizer step.

    `rows` of `length` tokens go through the model at once in `passes` forward passes before one
    backward pass; `scored` tokens of a row have a loss. `optimizer` is bytes of its states per
    parameter. `is_autocast`: `bf16: true`, matrix products in bf16 whatever the weights are.
    """

    rows: int
    length: int
    scored: int
    weight: int = 2  # bytes of a parameter
    is_autocast: bool = False
    is_checkpointed: bool = True
    is_masked: bool = False  # rows padded or packed, without FlashAttention: a mask of L^2
    accumulates: bool = True  # gradients of earlier micro-batches are there
    optimizer: float = 8
    passes: int = 1
    lora_rank: int | None = None
    lora_modules: tuple[str, ...] = LINEARS
    has_dropout: bool = True  # of LoRA
    is_cuda: bool = True
    scratch: float = 0  # bytes the optimizer needs while it steps
    engine: str = "none"  # one of ENGINES
    processes: int = 1
    reference: int = 0  # parameters of a frozen reference model

    @property
    def tokens(self) -> int:
        return self.rows * self.length

    @property
    def compute(self) -> int:
        """Bytes of a number in a matrix product."""
        return 2 if self.is_autocast else self.weight

    @property
    def casts(self) -> bool:
        """Whether autocast makes bf16 copies of fp32 weights and inputs."""
        return self.is_autocast and self.weight == 4
