"""Plan the memory of one training process, in bytes, from a model's config and a recipe's numbers.

It is pure arithmetic without torch. A step has moments at which its memory can peak (`plan_step`).
Each moment is a list of parts with their formulas, and the plan is the highest moment. The formulas
follow the source of transformers 5.17 and TRL 1.16. `benchmarks.memory` compares them with measured
steps. Lengths are tokens, L is that of a row.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pipeline.errors import UserError
from stages.precision import trained_dtype

LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
FAMILIES = ("qwen2", "llama", "mistral", "qwen3")
SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")


class Model:
    """Sizes of a decoder-only model with SwiGLU, RMSNorm and grouped-query attention."""

    def __init__(self, shape: Mapping[str, Any]) -> None:
        kind, known = shape.get("model_type"), ", ".join(FAMILIES)
        if kind not in FAMILIES:
            raise UserError(f"model_type: {kind!r} has no memory plan; known are {known}")
        if lacking := {*SIZES, "vocab_size"} - shape.keys():
            raise UserError(f"config.json: {min(lacking)}: missing; copy or download it again")
        self.hidden, self.inner, self.layers, self.heads = (shape[size] for size in SIZES)
        width = shape.get("head_dim") or self.hidden // self.heads
        self.query = self.heads * width
        self.key = (shape.get("num_key_value_heads") or self.heads) * width
        self.head_norms = 2 * width if kind == "qwen3" else 0  # weights, of q and k in a layer
        self.dtype = trained_dtype("auto", shape)  # of the weights in its files, "" if not said
        self.positions = shape.get("max_position_embeddings")  # tokens of its context
        self.vocab, self.is_tied = shape["vocab_size"], bool(shape.get("tie_word_embeddings"))
        # Parameters: of the embedding (an untied LM head has as many again), a layer's matrices,
        # a layer, and all.
        self.embedding = self.vocab * self.hidden
        self.layer_linear = sum(rows * columns for rows, columns in self.linears().values())
        bias = self.query + 2 * self.key if kind == "qwen2" else 0
        self.layer_params = self.layer_linear + bias + 2 * self.hidden + self.head_norms
        tables = self.embedding if self.is_tied else 2 * self.embedding
        self.params = self.layers * self.layer_params + tables + self.hidden

    def linears(self) -> dict[str, tuple[int, int]]:
        """(inputs, outputs) of a layer's linear modules."""
        h, i, a, k = self.hidden, self.inner, self.query, self.key
        sizes = ((h, a), (h, k), (h, k), (a, h), (h, i), (h, i), (i, h))
        return dict(zip(LINEARS, sizes, strict=True))


@dataclass(frozen=True)
class Step:
    """What a training process does in one optimizer step.

    `rows` of `length` tokens go through the model in `passes` forward passes before one backward
    pass; `scored` tokens of a row have a loss.
    """

    model: Model
    rows: int
    length: int
    scored: int
    weight: int = 2  # bytes of a parameter
    is_autocast: bool = False  # matrix products in 16 bits, whatever the weights are
    autocast: str = "bf16"  # the type of these products
    is_checkpointed: bool = True
    is_masked: bool = False  # rows padded or packed, without FlashAttention: a mask of L^2
    accumulates: bool = True  # gradients of earlier micro-batches are there
    optimizer: float = 8  # bytes of its states per parameter
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
        """Whether autocast makes 16-bit copies of fp32 weights and inputs."""
        return self.is_autocast and self.weight == 4

    @property
    def is_full(self) -> bool:
        return self.lora_rank is None

    @property
    def trained(self) -> int:
        """Parameters with a gradient; LoRA has rank x (inputs + outputs) of each module."""
        if self.lora_rank is None:
            return self.model.params
        sizes = self.model.linears()
        return self.model.layers * sum(self.lora_rank * sum(sizes[n]) for n in self.lora_modules)

    @property
    def gradient(self) -> int:
        """Bytes of a gradient's number: that of its parameter; LoRA's are fp32 (peft)."""
        return self.weight if self.is_full else 4


# What autograd keeps -----------------------------------------------------------------------------
# One term for each tensor that a backward formula needs. Views share storage and count once; a
# mixed-precision product keeps a bf16 copy of its input.


def norm_bytes(step: Step) -> int:
    """Per token of one RMSNorm: its input in fp32, 1/rms, for its weight the normalised input."""
    return 4 * step.model.hidden + 4 + (step.weight * step.model.hidden if step.is_full else 0)


def layer_bytes(step: Step) -> int:
    """Bytes per token that one decoder layer keeps, without the attention mask.

    Attention keeps q, k, v, its output and a log-sum of each head, with a mask keys and values of
    the query's width (sdpa); SwiGLU keeps gate, silu(gate) and up.
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
    """Bytes per token of the inputs that a layer's matrices keep for their weights' gradients.

    Full: q, k, v share one input, gate and up another; autocast makes each its own copy. The input
    of o_proj is attention's output, kept already. LoRA: A keeps a copy of its input for each module
    and the dropout's mask, B the rank's numbers; they are fp32 (peft) unless autocast.
    """
    model = step.model
    if step.is_full:
        return step.compute * ((5 if step.casts else 2) * model.hidden + model.inner)
    number = 2 if step.is_autocast else 4
    mask = (1 if step.is_cuda else 4) if step.has_dropout else 0  # on a CPU the mask is fp32
    inputs = sum(model.linears()[name][0] for name in step.lora_modules)
    return (number + mask) * inputs + number * step.lora_rank * len(step.lora_modules)


def mask_bytes(step: Step) -> int:
    """Bytes of one layer's attention mask: sdpa turns the bool mask into numbers in each layer."""
    return step.compute * step.rows * step.length**2 if step.is_masked else 0


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
    """The highest moment, its parts, and the sums of all moments."""

    moment: str
    parts: tuple[Part, ...]
    moments: dict[str, float]

    @property
    def peak(self) -> float:
        return self.moments[self.moment]

    @property
    def states(self) -> float:
        """Bytes that are there between steps."""
        names = {*SHARDED, "master weights", "DDP's buckets", "buckets"} - {"gradients"}
        return sum(part.bytes for part in self.parts if part.name in names)


def plan_step(step: Step) -> Plan:
    """Plan one process: the moment with the highest sum."""
    states = state_parts(step)
    if step.engine == "fsdp2":  # gathers weights in the precision of the products
        step = replace(step, weight=step.compute)
    moments = {
        "head": head_moment(step),
        "last layer": layer_moment(step, is_last=True),
        "first layer": layer_moment(step, is_last=False),
        "end": end_moment(step),
        "optimizer": [
            gradients(step),
            Part("optimizer's scratch", step.scratch, "while it steps; not measured on a GPU"),
        ],
    }
    if step.passes > 1:
        moments["later head"] = head_moment(step, is_later=True)
    if step.casts:  # the cast weights of all layers, and what the layers keep
        layers = step.model.layers
        kept, cast = kept_parts(step, layers)[0], layer_extras(step, layers, 0)[1]
        moments["forward"] = [gradients(step, is_backward=True), kept, cast, input_part(step)]
    moments = {name: share(states + parts, step) for name, parts in moments.items()}
    sums = {name: sum(part.bytes for part in parts) for name, parts in moments.items()}
    peak = max(sums, key=sums.__getitem__)
    return Plan(peak, tuple(part for part in moments[peak] if part.bytes), sums)


def _numbers(name: str, size: float, number: int, what: str = "") -> Part:
    return Part(name, size * number, f"{size} B x {number:,} {what}")


def state_parts(step: Step) -> list[Part]:
    """What is there in every moment: weights and optimizer states."""
    params, trained = step.model.params, step.trained
    return [
        _numbers("weights", step.weight, params, "parameters"),
        _numbers("LoRA weights", 4, 0 if step.is_full else trained, "parameters"),
        _numbers("optimizer", step.optimizer, trained, "trained"),
        _numbers("reference model", step.weight, params * step.has_reference, "parameters"),
    ]


def gradients(step: Step, is_backward: bool = False) -> Part:
    """All gradients; during the backward pass those of earlier micro-batches.

    FSDP 2 reduces in float32, and only in the last micro-batch (accelerate's no_sync): until then
    every process has all of them.
    """
    number = step.trained if step.accumulates or not is_backward else 0
    if step.engine == "fsdp2":
        name = "gradients of earlier micro-batches" if is_backward else "gradients"
        return _numbers(name, 4, number, "trained")
    return _numbers("gradients", step.gradient, number, "trained")


def waiting(step: Step, after: int = 1) -> Part:
    """Gradients of more than `after` passes: autograd adds up all passes before it stores any."""
    number = step.trained if step.passes > after else 0
    return _numbers("gradients of other passes", step.gradient, number, "trained")


def kept_parts(step: Step, layers: int) -> list[Part]:
    """What autograd keeps of so many decoder layers; with checkpointing, only their inputs."""
    each = step.weight * step.model.hidden if step.is_checkpointed else layer_bytes(step)
    text = f"{layers} layers x {step.tokens:,} tokens x {each:,} B"
    extras = [] if step.is_checkpointed else layer_extras(step, layers, step.rows)
    return [Part("activations", layers * step.tokens * each, text), *extras]


def layer_extras(step: Step, layers: int, rows: float) -> list[Part]:
    """Masks that sdpa makes for `rows` rows, and autocast's copy of every matrix, by layer."""
    text = f"{layers} layers x {rows:g} rows x {step.length:,}^2 x {step.compute} B (sdpa, padded)"
    cast = layers * step.model.layer_linear if step.casts else 0
    return [
        Part("attention masks", layers * mask_bytes(step) * rows / step.rows, text),
        _numbers(f"{step.autocast} copies of weights", 2, cast, "(autocast)"),
    ]


def input_part(step: Step) -> Part:
    """The mask itself (bool), rotary tables, ids, masks and labels."""
    mask = step.rows * step.length**2 if step.is_masked else 0
    tables = 2 * step.length * (step.model.query // step.model.heads) * step.weight
    return Part("inputs", mask + tables + 8 * 6 * step.tokens, "ids, masks, labels, rotary tables")


def head_moment(step: Step, is_later: bool = False) -> list[Part]:
    """The fused head goes backward while every layer's activations wait, or those of later passes.

    Its weight gradient is summed in fp32 and then copied to the weights' precision. Its scratch
    memory: a tile's logits, the fp32 gradient of the inputs, under autocast a bf16 chunk of the
    weight; without Triton the copies of a tile, too.
    """
    model, hidden = step.model, step.model.hidden
    final = norm_bytes(step) + step.weight * hidden  # the last norm, and the head's input
    summed = 4 + step.weight % 4 if step.is_full else 0
    rows = step.rows * step.scored if step.is_cuda else step.rows * (step.length - 1)
    rows = max(1, rows // step.passes)
    height, columns = min(rows, HEAD_TOKENS), min(model.vocab, HEAD_VOCAB)
    tile, chunk = height * columns, columns * hidden
    size = height * HEAD_VOCAB * step.compute + 4 * rows * hidden + (2 * chunk if step.casts else 0)
    if not step.is_cuda:
        size += max(HEAD_COPIES * 4 * tile, 4 * (tile + chunk) if step.compute == 2 else 0)
    text = f"tile {height:,} x {columns:,}, gradient of {rows:,} inputs"
    kept, left = kept_parts(step, model.layers), 1 - is_later / step.passes
    return [
        gradients(step, is_backward=True),
        waiting(step, 1 if is_later else step.passes),
        *(replace(part, bytes=left * part.bytes) for part in kept),
        input_part(step),
        Part("final norm", step.tokens * final, f"{step.tokens:,} tokens x {final:,} B"),
        _numbers("LM head's gradient", summed, model.embedding),
        Part("LM head", size, text),
    ]


def layer_moment(step: Step, is_last: bool) -> list[Part]:
    """The last layer goes backward, all inputs waiting, or the first, all other gradients there."""
    model, number = step.model, step.gradient
    is_new = step.is_full and not step.accumulates
    waits = model.embedding if step.is_full and (model.is_tied or is_new) else 0
    each = 2 * step.compute * model.inner + 2 * step.weight * model.hidden
    if not step.is_full and step.compute == 2:
        each += 4 * model.inner  # LoRA's fp32 copy of down_proj's input
    tokens = step.tokens / step.passes
    text = f"{tokens:,.0f} tokens x {each:,} B, two of the inner width and two of the hidden"
    kept, wait = kept_parts(step, model.layers if is_last else 1), waiting(step, 2 - is_last)
    if is_last:  # the first pass has its own inputs yet, a later one these gradients
        own = sum(part.bytes for part in kept) / step.passes
        wait = replace(wait, bytes=max(0, wait.bytes - own))
    parts = [
        gradients(step, is_backward=True),
        wait,
        _numbers("LM head's gradient", number, waits),
        input_part(step),
        Part("gradients of activations", tokens * each, text),
        *kept,
    ]
    if is_new and not is_last:
        new = model.layers * model.layer_params
        parts.append(_numbers("gradients", number, new, "of the layers"))
    if step.is_checkpointed:
        each = layer_bytes(step)
        parts.append(Part("recomputed layer", tokens * each, f"{tokens:,.0f} tokens x {each:,} B"))
        parts += layer_extras(step, 1, step.rows / step.passes)
    return parts


def end_moment(step: Step) -> list[Part]:
    """The embedding goes backward: all gradients, and the table's own twice where it is tied."""
    if not step.is_full:
        return [gradients(step)]
    size = step.weight * step.model.embedding
    tables = int(step.model.is_tied) + int(step.accumulates)
    output = step.tokens * step.weight * step.model.hidden
    return [
        gradients(step, is_backward=step.accumulates),
        Part("embedding's gradient", tables * size, f"{tables} x {size:,} B before it is added"),
        input_part(step),
        Part("gradient of its output", output, "tokens x hidden"),
    ]


ZERO_BUCKET = 500_000_000  # numbers; DeepSpeed's reduce_bucket_size and allgather_bucket_size
SHARDED = ("weights", "LoRA weights", "gradients", "optimizer", "reference model")


def share(parts: list[Part], step: Step) -> list[Part]:
    """Divide parts among the processes as DDP, ZeRO (arXiv:1910.02054) or FSDP 2; not measured."""
    if step.engine == "none":
        return parts
    if step.engine == "ddp":  # sums gradients in buckets of its own, as large as all of them
        return [*parts, _numbers("DDP's buckets", step.gradient, step.trained)]
    divided = ("gradients", "optimizer") if step.engine == "zero2" else SHARDED
    offloads, processes = step.engine.endswith("offload"), step.processes
    shared = []
    for part in parts:
        if offloads and part.name in SHARDED and part.name != "gradients":
            continue  # in the host's memory
        if part.name in divided:
            text = f"{part.formula} / {processes}"
            part = replace(part, bytes=part.bytes / processes, formula=text)
        shared.append(part)
    if step.engine.startswith("zero"):
        if not offloads:
            shared.append(_numbers("master weights", 4 / processes, step.trained, "(DeepSpeed)"))
        number = 2 * min(ZERO_BUCKET, step.trained)
        shared.append(_numbers("buckets", min(2, step.weight), number, "(DeepSpeed)"))
    if step.engine != "zero2":
        largest = max(2 * step.model.layer_params, step.model.embedding)
        text = "two layers or the embedding, not divided"
        shared.append(_numbers("gathered weights", step.compute, largest, text))
    return shared
