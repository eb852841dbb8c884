"""Plan the memory of one training process, in bytes, from a model's config and a recipe's numbers.

Pure arithmetic without torch: a recipe becomes a `Step`, a step has moments at which its memory can
peak, each moment is a list of parts with their formulas, and the plan is the highest moment:

- `head`: backward pass of TRL's fused LM head, when all activations are there;
- `last layer`, `first layer`: backward passes of these, the first with the inputs of all layers,
  the second with the gradients of all others;
- `end`: backward pass of the embedding, when all gradients are there;
- `optimizer`: the optimizer's step, with what it needs besides its states;
- `forward`: under autocast, when all weights have been cast and none is freed yet.

Derived from the source of transformers 5.17 and TRL 1.16; `benchmarks.memory` compares it with
measured steps. Lengths are tokens. In formulas H is the hidden size, I the inner size of the MLP, A
the width of the queries, K that of the keys, L a row's length.
"""

import json
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from data_prep.config import Settings, UserError

GIB = 2**30
LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")

# Model shapes ------------------------------------------------------------------------------------


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


# A step, and what autograd keeps of it -----------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """What a training process does in one optimizer step.

    `rows` of `length` tokens go through the model at once in `passes` forward passes before one
    backward pass; `scored` tokens of a row have a loss. `optimizer` is bytes of its states per
    parameter. `is_autocast`: `bf16: true`, matrix products in bf16 whatever the weights are.
    """

    model: Model
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
    engine: str = "none"  # none, ddp, zero2, zero3, zero3_offload, fsdp2
    processes: int = 1
    has_reference: bool = False  # a frozen reference model

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

    @property
    def is_full(self) -> bool:
        return self.lora_rank is None

    @property
    def trained(self) -> int:
        """Parameters with a gradient."""
        if self.lora_rank is None:
            return self.model.params
        return self.model.lora_params(self.lora_rank, self.lora_modules)

    @property
    def gradient(self) -> int:
        """Bytes of a gradient's number: that of its parameter; LoRA's are fp32 (peft)."""
        return self.weight if self.is_full else 4


# One term for each tensor that a backward formula needs (modules of Qwen2 and Llama, transformers
# 5.17). Views share storage and count once; a mixed-precision product keeps a bf16 copy of its
# input.


def norm_bytes(step: Step) -> int:
    """Bytes per token that one RMSNorm keeps, without its output.

    4 H + 4: its input in fp32 (for the square and for the product) and 1/rms; for the gradient of
    its weight, the normalised input in the weights' precision.
    """
    return 4 * step.model.hidden + 4 + (step.weight * step.model.hidden if step.is_full else 0)


def layer_bytes(step: Step) -> int:
    """Bytes per token that one decoder layer keeps, without the attention mask.

    Attention keeps q, k, v, its output and a log-sum of each head: c (2 A + 2 K) + 4 heads. With a
    mask sdpa repeats keys and values to the width of the query. SwiGLU keeps gate, silu(gate) and
    up, 3 c I; their product is the input of down_proj.
    """
    model, c = step.model, step.compute
    key = model.query if step.is_masked else model.key
    attention = c * (2 * model.query + 2 * key) + 4 * model.heads
    if model.head_norms:  # of q and k (Qwen3): input in fp32, normalised input, 1 number a head
        width = model.query + model.key
        attention += 4 * width + (c * width if step.is_full else 0)
        attention += 4 * (2 * width // model.head_norms)
    return 2 * norm_bytes(step) + attention + 3 * c * model.inner + linear_bytes(step)


def linear_bytes(step: Step) -> int:
    """Bytes per token of the inputs that a layer's matrices keep for their weights' gradients."""
    h, i, modules = step.model.hidden, step.model.inner, step.lora_modules
    if step.is_full:
        # q, k, v share one input, gate and up another; autocast makes each its own copy. The input
        # of o_proj is attention's output, kept already.
        return step.compute * ((5 if step.casts else 2) * h + i)
    # Only LoRA's A keeps its input: dropped out, a copy for each module, with its mask; B
    # keeps the rank's numbers. Its weights are fp32 (peft), so without autocast so is the copy.
    number = 2 if step.is_autocast else 4
    inputs = sum(rows for name, (rows, _) in step.model.linears().items() if name in modules)
    if step.has_dropout:
        kept = (number + (1 if step.is_cuda else 4)) * inputs  # on a CPU the mask is fp32
    elif step.compute == 4:  # no copy is made: shared as above
        kept = 4 * h * bool({"q_proj", "k_proj", "v_proj"} & {*modules})
        kept += 4 * h * bool({"gate_proj", "up_proj"} & {*modules})
        kept += 4 * i * ("down_proj" in modules)
    else:
        kept = number * inputs
    return kept + number * step.lora_rank * len(modules)


def mask_bytes(step: Step) -> int:
    """Bytes of one layer's attention mask: sdpa turns the bool mask into numbers in each layer."""
    return step.compute * step.rows * step.length**2 if step.is_masked else 0


# Parts and moments -------------------------------------------------------------------------------

HEAD_TOKENS, HEAD_VOCAB = 4096, 32768  # the tile of TRL's fused head
# Without Triton its backward has these fp32 copies of a tile at once: y, z, log_p, p, grad, the
# target's bool mask, that mask as numbers minus p, and their product with the gradient.
HEAD_COPIES = 7.25


@dataclass(frozen=True)
class Part:
    """One term of the plan; `formula` says how it came about."""

    name: str
    bytes: float
    formula: str


@dataclass(frozen=True)
class Plan:
    """The parts at the peak, and the sums of all moments."""

    moment: str
    parts: tuple[Part, ...]
    moments: dict[str, float]
    backward: tuple[Part, ...]  # the parts of the highest moment with activations

    @property
    def peak(self) -> float:
        return sum(part.bytes for part in self.parts)

    @property
    def states(self) -> float:
        """Bytes that are there between steps."""
        names = (*SHARDED, "master weights", "DDP's buckets", "buckets")
        return sum(p.bytes for p in self.parts if p.name in names and p.name != "gradients")


def plan_step(step: Step) -> Plan:
    """Plan one process: the moment with the highest sum."""
    backward = {
        "head": head_moment(step),
        "last layer": layer_moment(step, is_last=True),
        "first layer": layer_moment(step, is_last=False),
    }
    moments = backward | {"end": end_moment(step), "optimizer": optimizer_moment(step)}
    if step.casts:
        moments["forward"] = forward_moment(step)
    moments = {name: share(state_parts(step) + parts, step) for name, parts in moments.items()}
    sums = {name: sum(part.bytes for part in parts) for name, parts in moments.items()}
    peak, highest = max(sums, key=sums.__getitem__), max(backward, key=sums.__getitem__)
    shown = [tuple(part for part in moments[name] if part.bytes) for name in (peak, highest)]
    return Plan(peak, shown[0], sums, shown[1])


def _numbers(name: str, size: float, number: int, what: str) -> Part:
    return Part(name, size * number, f"{size} B x {number:,} {what}")


def state_parts(step: Step) -> list[Part]:
    """What is there in every moment: weights and optimizer states."""
    params, trained = step.model.params, step.trained
    reference = params if step.has_reference else 0
    return [
        _numbers("weights", step.weight, params, "parameters"),
        _numbers("LoRA weights", 4, 0 if step.is_full else trained, "parameters"),
        _numbers("optimizer", step.optimizer, trained, "trained"),
        _numbers("reference model", step.weight, reference, "parameters"),
    ]


def earlier_gradients(step: Step) -> Part:
    number = step.trained if step.accumulates else 0
    return _numbers("gradients", step.gradient, number, "of earlier micro-batches")


def kept_parts(step: Step, layers: int) -> list[Part]:
    """What autograd keeps of so many decoder layers; with checkpointing, only their inputs."""
    if step.is_checkpointed:
        each, what = step.weight * step.model.hidden, ", a layer's input (checkpointing)"
        return [_activations(step, layers, each, what)]
    return [
        _activations(step, layers, layer_bytes(step)),
        *layer_extras(step, layers, step.rows),
    ]


def _activations(step: Step, layers: int, each: int, what: str = "") -> Part:
    text = f"{layers} layers x {step.tokens:,} tokens x {each:,} B{what}"
    return Part("activations", layers * step.tokens * each, text)


def layer_extras(step: Step, layers: int, rows: float) -> list[Part]:
    """Masks that sdpa makes for `rows` rows, and autocast's bf16 copy of every matrix, by layer."""
    text = f"{layers} layers x {rows:g} rows x {step.length:,}^2 x {step.compute} B (sdpa, padded)"
    masks = Part("attention masks", layers * (mask_bytes(step) * rows / step.rows), text)
    cast = layers * step.model.layer_linear if step.casts else 0
    return [masks, _numbers("bf16 copies of weights", 2, cast, "(autocast)")]


def input_part(step: Step) -> Part:
    """The mask itself (bool), rotary tables, ids, masks and labels."""
    mask = step.rows * step.length**2 if step.is_masked else 0
    tables = 2 * step.length * (step.model.query // step.model.heads) * step.weight
    text = "ids, masks, labels, rotary tables"
    return Part("inputs", mask + tables + 8 * 6 * step.tokens, text)


def head_moment(step: Step) -> list[Part]:
    """The fused head goes backward while every layer's activations wait.

    Its weight gradient is summed in fp32 by the kernel; with several passes the last one's copy in
    the weights' precision is there as well.
    """
    model = step.model
    final = norm_bytes(step) + step.weight * model.hidden  # the last norm, and the head's input
    summed = 4 * model.embedding if step.is_full else 0
    again = step.weight * model.embedding if step.is_full and step.passes > 1 else 0
    text = f"4 B x {model.vocab:,} x {model.hidden:,}" + (" + the last pass's" if again else "")
    return [
        earlier_gradients(step),
        *kept_parts(step, model.layers),
        input_part(step),
        Part("final norm", step.tokens * final, f"{step.tokens:,} tokens x {final:,} B"),
        Part("LM head's gradient", summed + again, text),
        head_part(step),
    ]


def head_part(step: Step) -> Part:
    """Scratch memory of the fused head's backward pass, besides its weight's gradient.

    A buffer of a tile's logits, the fp32 gradient of the inputs, under autocast a bf16 chunk of the
    weight; without Triton the copies of a tile, too.
    """
    hidden = step.model.hidden
    rows = step.rows * step.scored if step.is_cuda else step.rows * (step.length - 1)
    rows = max(1, rows // step.passes)
    height, columns = min(rows, HEAD_TOKENS), min(step.model.vocab, HEAD_VOCAB)
    tile, chunk = height * columns, columns * hidden
    size = height * HEAD_VOCAB * step.compute + 4 * rows * hidden + (2 * chunk if step.casts else 0)
    text = f"tile {height:,} x {HEAD_VOCAB:,} x {step.compute} B, gradient of {rows:,} inputs"
    if not step.is_cuda:
        size += max(HEAD_COPIES * 4 * tile, 4 * (tile + chunk) if step.compute == 2 else 0)
        text = f"tile {height:,} x {columns:,}, {HEAD_COPIES} fp32 copies without Triton"
    return Part("LM head", size, text)


def layer_moment(step: Step, is_last: bool) -> list[Part]:
    """The last layer goes backward, all inputs waiting, or the first, all other gradients there.

    A layer's backward pass has two gradients of the inner width at once and two of the hidden; with
    LoRA in bf16 also its fp32 copy of down_proj's input.
    """
    model, number = step.model, step.gradient
    others = model.layers * model.layer_params
    new = 0 if step.accumulates or is_last or not step.is_full else others
    waits = model.embedding if step.is_full and (model.is_tied or not step.accumulates) else 0
    each = 2 * step.compute * model.inner + 2 * step.weight * model.hidden
    if not step.is_full and step.compute == 2:
        each += 4 * model.inner
    tokens = step.tokens / step.passes
    text = f"{tokens:,.0f} tokens x {each:,} B, two of the inner width and two of the hidden"
    parts = [
        earlier_gradients(step),
        _numbers("gradients", number, new, "of the layers"),
        _numbers("LM head's gradient", number, waits, ""),
        input_part(step),
        Part("gradients of activations", tokens * each, text),
        *kept_parts(step, model.layers if is_last else 1),
    ]
    if step.is_checkpointed:
        each = layer_bytes(step)
        text = f"{tokens:,.0f} tokens x {each:,} B"
        parts.append(Part("recomputed layer", tokens * each, text))
        parts += layer_extras(step, 1, step.rows / step.passes)
    return parts


def end_moment(step: Step) -> list[Part]:
    """The embedding goes backward: all gradients, and the table's own twice where it is tied."""
    if not step.is_full:
        return [_numbers("gradients", step.gradient, step.trained, "trained")]
    model = step.model
    tables = int(model.is_tied) + int(step.accumulates)
    size = step.weight * model.embedding
    output = step.tokens * step.weight * model.hidden
    return [
        _numbers("gradients", step.gradient, model.params, "parameters"),
        Part("embedding's gradient", tables * size, f"{tables} x {size:,} B before it is added"),
        input_part(step),
        Part("gradient of its output", output, "tokens x hidden"),
    ]


def forward_moment(step: Step) -> list[Part]:
    """Under autocast: the cast weights of all layers, and what the layers keep."""
    layers = step.model.layers
    each = step.weight * step.model.hidden if step.is_checkpointed else layer_bytes(step)
    return [
        earlier_gradients(step),
        _activations(step, layers, each),
        input_part(step),
        layer_extras(step, layers, 0)[1],
    ]


def optimizer_moment(step: Step) -> list[Part]:
    """The optimizer steps."""
    return [
        _numbers("gradients", step.gradient, step.trained, "trained"),
        Part("optimizer's scratch", step.scratch, "while it steps; not measured on a GPU"),
    ]


# Sharing between processes -----------------------------------------------------------------------

ZERO_BUCKET = 500_000_000  # numbers; DeepSpeed's reduce_bucket_size and allgather_bucket_size
SHARDED = ("weights", "LoRA weights", "gradients", "optimizer", "reference model")


def share(parts: list[Part], step: Step) -> list[Part]:
    """Divide parts among `step.processes` processes as DDP, ZeRO or FSDP 2 does.

    By the ZeRO paper (arXiv:1910.02054, section 3) and the engines' defaults; unlike the rest of
    the plan not measured, see docs/preflight.md.
    """
    if step.engine == "none":
        return parts
    if step.engine == "ddp":  # sums gradients in buckets of its own, as large as all of them
        return [*parts, _numbers("DDP's buckets", step.gradient, step.trained, "")]
    divided = ("gradients", "optimizer") if step.engine == "zero2" else SHARDED
    offloads, processes = step.engine.endswith("offload"), step.processes
    shared = []
    for part in parts:
        if part.name in divided and part.bytes:
            text = f"{part.formula} / {processes}"
            part = replace(part, bytes=part.bytes / processes, formula=text)
        if offloads and part.name in SHARDED and part.name != "gradients":
            part = replace(part, bytes=0, formula="in the host's memory")
        shared.append(part)
    if step.engine.startswith("zero"):
        master = 0 if offloads else 4 * step.trained / processes
        text = f"4 B x {step.trained:,} / {processes} (DeepSpeed)"
        shared.append(Part("master weights", master, text))
        bucket = 2 * min(ZERO_BUCKET, step.trained) * min(2, step.weight)
        shared.append(Part("buckets", bucket, "DeepSpeed's reduce and gather buckets"))
    if step.engine != "zero2":
        largest = max(2 * step.model.layer_params, step.model.embedding)
        text = "two layers or the embedding, not divided"
        shared.append(_numbers("gathered weights", step.compute, largest, text))
    return shared


# From a recipe to a step, its engine and its checkpoints -----------------------------------------

ASSUMED_PROMPT = ASSUMED_ROW = 1024  # tokens, where no key and no data says how long they get
VLLM_WORK = 2 * GIB  # vLLM's own activations at 4,096 batched tokens, and its CUDA graphs; a guess
EIGHT_BIT = 1 + 4 / 256  # bytes of a state: 8 bits, and an fp32 scale for each block of 256
EAGER_SCRATCH = 57  # bytes: torchao on a CPU is not compiled; measured, the same for two shapes


@dataclass(frozen=True)
class Launch:
    """How a stage is started: processes, engine (as in `Step`), GiB of a device."""

    processes: int = 1
    engine: str = "none"
    gpu_memory: float = 94.0


@dataclass(frozen=True)
class Optimizer:
    """Bytes of an optimizer: states per trained parameter, where `states` numbers have `size` bytes
    (None: the gradient's), and scratch per parameter, of all or of the largest tensor."""

    states: int = 2
    size: float | None = None
    scratch_all: bool = False
    scratch_largest: int = 0


OPTIMIZERS = {
    "adamw_torch_fused": Optimizer(),
    "adamw_torch": Optimizer(scratch_all=True),  # foreach: a copy of all parameters
    "adamw_torch_8bit": Optimizer(size=EIGHT_BIT, scratch_largest=16),
    "adamw_torch_4bit": Optimizer(size=0.5 + 4 / 128, scratch_largest=16),
    "adamw_bnb_8bit": Optimizer(size=EIGHT_BIT),
    "adamw_8bit": Optimizer(size=EIGHT_BIT),
    "paged_adamw_8bit": Optimizer(size=EIGHT_BIT),
    "paged_adamw_32bit": Optimizer(size=4),
    "lion_8bit": Optimizer(states=1, size=EIGHT_BIT),
    "lion_32bit": Optimizer(states=1, size=4),
    "sgd": Optimizer(states=0),
}


def find_optimizer(values: Settings) -> Optimizer | None:
    """Find what the recipe's optimizer needs; None for one that is not known here."""
    name = values.get("optim", "adamw_torch_fused")
    return OPTIMIZERS.get("adamw_torch_8bit" if values.stochastic_rounding else name)


def weight_bytes(values: Settings) -> int:
    """Bytes of a parameter: TRL's dtype is float32; auto and the 16-bit ones have two."""
    return 4 if values.dtype in ("float32", "fp32") else 2


def is_mixed(values: Settings) -> bool:
    """Whether matrix products are in 16 bits; TRL's default is bf16."""
    return values.fp16 or values.bf16 is not False


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


def build_step(
    stage: str, model: Model, values: Settings, launch: Launch, longest: int | None = None
) -> Step:
    """Build the worst step of a recipe: the largest micro-batch, all rows as long as allowed.

    Args:
        stage: `sft` or `grpo`.
        values: the stage's settings.
        longest: longest row (sft) or prompt (grpo) of the data, where known.
    """
    is_zero, has_lora = launch.engine.startswith("zero"), values.use_peft
    # DeepSpeed trains bf16 weights beside fp32 masters, whatever the dtype.
    weight = 2 if is_zero and is_mixed(values) else weight_bytes(values)
    modules = tuple(n for n in LINEARS if is_lora_target(values.lora_target_modules, n))
    step = Step(
        model=model,
        **rows_of_step(stage, values, longest),
        weight=weight,
        is_autocast=is_mixed(values),
        is_checkpointed=values.gradient_checkpointing,
        accumulates=values.gradient_accumulation_steps > 1,
        lora_rank=values.lora_r if has_lora else None,
        lora_modules=modules,
        has_dropout=values.lora_dropout > 0,
        is_cuda=not values.use_cpu,
        engine=launch.engine,
        processes=launch.processes,
        has_reference=stage == "grpo" and values.beta != 0 and not has_lora,
    )
    optimizer = find_optimizer(values) or Optimizer()
    number = 4 if has_lora or is_zero else weight
    largest = max(model.embedding, max(a * b for a, b in model.linears().values()))
    if has_lora:
        largest = step.lora_rank * max(sum(pair) for pair in model.linears().values())
    scratch = optimizer.scratch_largest * largest
    if optimizer.scratch_largest and not step.is_cuda:
        scratch = EAGER_SCRATCH * largest
    if optimizer.scratch_all:  # on a CPU a tensor at a time, with two copies of it
        scratch = number * step.trained if step.is_cuda else 2 * number * largest
    return replace(step, optimizer=optimizer.states * (optimizer.size or number), scratch=scratch)


def rows_of_step(stage: str, values: Settings, longest: int | None) -> dict[str, Any]:
    """The largest micro-batch: rows, their length, and how they go through the model."""
    rows, passes, is_masked = values.per_device_train_batch_size, 1, True
    if stage == "grpo":
        scored = completion_room(values)
        length = prompt_room(values, longest) + scored
        together = max(1, values.update_tokens // length) if values.update_tokens else rows
        passes, is_masked = math.ceil(rows / together), together > 1
    elif values.packing:  # TRL lays the packed rows of a micro-batch end to end
        rows, length = 1, rows * (values.max_length or ASSUMED_ROW)
        scored = length
    else:
        length = scored = min((n for n in (values.max_length, longest) if n), default=ASSUMED_ROW)
        is_masked = rows > 1
    # FlashAttention tells rows apart without a mask of L^2.
    is_masked = is_masked and "flash" not in (values.attn_implementation or "")
    return {
        "rows": rows, "length": length, "scored": scored, "passes": passes, "is_masked": is_masked
    }  # fmt: skip


def prompt_room(values: Settings, longest: int | None) -> int:
    """Tokens of the longest prompt that is trained on."""
    known = [n for n in (values.max_prompt_length, longest) if n]
    return min(known) if known else ASSUMED_PROMPT


def completion_room(values: Settings) -> int:
    """Tokens of the longest completion."""
    return values.max_completion_length or 512


def generation_bytes(
    model: Model, values: Settings, longest: int | None, processes: int = 1
) -> tuple[float, str]:
    """Bytes of generation without vLLM, and the formula: the KV cache and a step's logits."""
    times = values.steps_per_generation or values.gradient_accumulation_steps
    number = values.per_device_train_batch_size * times
    if values.generation_batch_size:
        number = values.generation_batch_size // processes
    length = prompt_room(values, longest) + completion_room(values)
    token = 2 * weight_bytes(values) * model.layers * model.key
    logits = number * model.vocab * (weight_bytes(values) + 3 * 4)  # fp32 copies of sampling
    text = f"{number:,} completions x {length:,} tokens x {token:,} B, and a step's logits"
    return number * length * token + logits, text


@dataclass(frozen=True)
class Engine:
    """A colocated vLLM engine: bytes of its share, its weights, and what a token's cache takes."""

    share: float
    weights: float
    token: int

    @property
    def tokens(self) -> int:
        """Tokens of the KV cache; 0 or less where the weights do not fit."""
        return int((self.share - self.weights - VLLM_WORK) // self.token)


def has_engine(values: Settings) -> bool:
    """Whether vLLM runs on the training GPUs."""
    return bool(values.get("use_vllm")) and values.vllm_mode == "colocate"


def plan_engine(model: Model, values: Settings, launch: Launch) -> Engine | None:
    """Plan the colocated engine of a recipe, if any. vLLM serves fp32 checkpoints in bf16 too."""
    if not has_engine(values):
        return None
    parallel = values.vllm_tensor_parallel_size
    return Engine(
        share=values.vllm_gpu_memory_utilization * launch.gpu_memory * GIB,
        weights=2 * model.params / parallel,
        token=max(1, 2 * 2 * model.layers * model.key // parallel),
    )


def checkpoint_bytes(step: Step) -> tuple[float, float]:
    """Bytes of a checkpoint that a run resumes from, and of a saved model, over all processes."""
    saved = step.weight * step.model.params
    if not step.is_full:
        return (4 + step.optimizer) * step.trained, saved + 4 * step.trained
    master = 4 * step.model.params if step.engine.startswith("zero") else 0
    return saved + step.optimizer * step.model.params + master, saved
