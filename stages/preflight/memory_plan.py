"""Memory of one training process at its peak, from the model's config and the recipe's numbers.

Pure arithmetic, no torch: `stages.preflight` prints it, `benchmarks.bench_memory` holds it against
measured steps. A step has moments at which its memory can peak; each is a list of parts, each part
with its formula, and the plan is the moment with the highest sum:

- `head`: the backward pass of TRL's fused LM head, when all activations are there;
- `last layer`, `first layer`: the backward passes of these, the first with all inputs waiting,
  the second with the gradients of all others;
- `end`: the backward pass of the embedding, when all gradients are there;
- `optimizer`: the optimizer's step, with what it needs beside its states;
- `forward`: under autocast, when all weights have been cast and none is freed yet.

Sizes are bytes, lengths tokens. Derived from the source of transformers 5.17 and TRL 1.16.
"""

from dataclasses import dataclass

from stages.preflight.memory_activations import final_bytes, layer_bytes, mask_bytes, residual_bytes
from stages.preflight.memory_model import Model, Step
from stages.preflight.memory_sharing import Part, share

HEAD_TOKENS, HEAD_VOCAB = 4096, 32768  # the tile of TRL's fused head
# Without Triton its backward has these fp32 copies of a tile at once: y, z, log_p, p, grad, the
# target's bool mask, that mask as numbers minus p, and their product with the gradient.
HEAD_COPIES = 7.25


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


def plan_step(model: Model, step: Step) -> Plan:
    """The plan of one process."""
    moments = {
        "head": [*state_parts(model, step), *head_moment(model, step)],
        "last layer": [*state_parts(model, step), *layer_moment(model, step, is_last=True)],
        "first layer": [*state_parts(model, step), *layer_moment(model, step, is_last=False)],
        "end": [*state_parts(model, step), *end_moment(model, step)],
        "optimizer": [*state_parts(model, step), *optimizer_moment(model, step)],
    }
    if step.casts:
        moments["forward"] = [*state_parts(model, step), *forward_moment(model, step)]
    if step.engine != "none":
        moments = {name: share(parts, model, step) for name, parts in moments.items()}
    sums = {name: sum(part.bytes for part in parts) for name, parts in moments.items()}
    peak = max(sums, key=sums.__getitem__)
    backward = max(("head", "last layer", "first layer"), key=sums.__getitem__)
    shown = [tuple(part for part in moments[name] if part.bytes) for name in (peak, backward)]
    return Plan(peak, shown[0], sums, shown[1])


def trainable(model: Model, step: Step) -> int:
    """Number of parameters with a gradient."""
    if step.lora_rank is None:
        return model.params
    return model.lora_params(step.lora_rank, step.lora_modules)


def gradient_number(step: Step) -> int:
    """Bytes of a gradient's number: that of its parameter; LoRA's are fp32 (peft)."""
    return step.weight if step.lora_rank is None else 4


def state_parts(model: Model, step: Step) -> list[Part]:
    """What is there in every moment: weights and optimizer states."""
    number = trainable(model, step)
    parts = [
        Part(
            "weights", step.weight * model.params, f"{step.weight} B x {model.params:,} parameters"
        )
    ]
    if step.lora_rank is not None:
        parts.append(Part("LoRA weights", 4 * number, f"4 B x {number:,} parameters"))
    parts.append(
        Part("optimizer", step.optimizer * number, f"{step.optimizer} B x {number:,} trained")
    )
    size = step.weight * step.reference
    parts.append(Part("reference model", size, f"{step.weight} B x {step.reference:,} parameters"))
    return parts


def _gradients(model: Model, step: Step, number: int, what: str) -> Part:
    size = gradient_number(step)
    return Part("gradients", size * number, f"{size} B x {number:,} {what}")


def _standing(model: Model, step: Step) -> Part:
    """Gradients of earlier micro-batches."""
    number = trainable(model, step) if step.accumulates else 0
    return _gradients(model, step, number, "of earlier micro-batches")


def activation_part(model: Model, step: Step, layers: int) -> Part:
    """What autograd keeps of so many decoder layers until their backward pass."""
    tokens = step.tokens
    each = residual_bytes(model, step) if step.is_checkpointed else layer_bytes(model, step)
    what = ", a layer's input (checkpointing)" if step.is_checkpointed else ""
    text = f"{layers} layers x {tokens:,} tokens x {each:,} B{what}"
    return Part("activations", layers * tokens * each, text)


def mask_part(step: Step, layers: int) -> Part:
    """The numbers that sdpa makes of the mask in each layer."""
    rows = step.rows / step.passes if step.is_checkpointed else step.rows
    size = mask_bytes(step) * rows / step.rows
    text = f"{layers} layers x {rows:g} rows x {step.length:,}^2 x {step.compute} B (sdpa, padded)"
    return Part("attention masks", layers * size, text)


def cast_part(model: Model, step: Step, layers: int) -> Part:
    """Under autocast the graph keeps a bf16 copy of every matrix that it multiplied with."""
    number = layers * model.layer_linear if step.casts else 0
    return Part("bf16 copies of weights", 2 * number, f"2 B x {number:,} (autocast)")


def shared_part(model: Model, step: Step) -> Part:
    """The mask itself (bool), rotary tables, ids, masks and labels."""
    bool_mask = step.rows * step.length**2 if step.is_masked else 0
    width = model.query // model.heads
    tables = 2 * step.length * width * step.weight
    return Part(
        "inputs", bool_mask + tables + 8 * 6 * step.tokens, "ids, masks, labels, rotary tables"
    )


def final_part(model: Model, step: Step) -> Part:
    """The last norm's and the LM head's inputs."""
    each = final_bytes(model, step)
    return Part("final norm", step.tokens * each, f"{step.tokens:,} tokens x {each:,} B")


def head_gradient(model: Model, step: Step) -> float:
    """Bytes of the LM head's weight gradient, which the kernel sums in fp32."""
    return 4 * model.embedding if step.lora_rank is None else 0


def head_part(model: Model, step: Step) -> Part:
    """Scratch memory of the fused head's backward pass, beside its weight's gradient."""
    rows = step.rows * step.scored if step.is_cuda else step.rows * (step.length - 1)
    rows = max(1, rows // step.passes)
    tile_rows, columns = min(rows, HEAD_TOKENS), min(model.vocab, HEAD_VOCAB)
    buffer = tile_rows * HEAD_VOCAB * step.compute
    hidden = 4 * rows * model.hidden
    tile = tile_rows * columns
    chunk = columns * model.hidden
    cast = 2 * chunk if step.casts else 0
    if step.is_cuda:
        text = (
            f"tile {tile_rows:,} x {HEAD_VOCAB:,} x {step.compute} B, gradient of {rows:,} inputs"
        )
        return Part("LM head", buffer + hidden + cast, text)
    scratch = max(HEAD_COPIES * 4 * tile, 4 * (tile + chunk) if step.compute == 2 else 0)
    text = f"tile {tile_rows:,} x {columns:,}, {HEAD_COPIES} fp32 copies without Triton"
    return Part("LM head", buffer + hidden + cast + scratch, text)


def head_moment(model: Model, step: Step) -> list[Part]:
    """The fused head goes backward while every layer's activations wait."""
    # The kernel's fp32 sum, and its copy in the weights' precision.
    size = head_gradient(model, step)
    earlier = step.weight * model.embedding if step.passes > 1 and size else 0
    return [
        _standing(model, step),
        activation_part(model, step, model.layers),
        mask_part(step, 0 if step.is_checkpointed else model.layers),
        shared_part(model, step),
        cast_part(model, step, 0 if step.is_checkpointed else model.layers),
        final_part(model, step),
        Part(
            "LM head's gradient",
            size + earlier,
            f"4 B x {model.vocab:,} x {model.hidden:,}" + (" + the last pass's" if earlier else ""),
        ),
        head_part(model, step),
    ]


def layer_scratch(model: Model, step: Step) -> Part:
    """The gradients of activations that a layer's backward pass has at once."""
    each = 2 * step.compute * model.inner + 2 * step.weight * model.hidden
    if step.lora_rank is not None and step.compute == 2:
        each += 4 * model.inner  # of LoRA's fp32 copy of down_proj's input
    tokens = step.tokens / step.passes
    text = f"{tokens:,.0f} tokens x {each:,} B, two of the inner width and two of the hidden"
    return Part("gradients of activations", tokens * each, text)


def layer_moment(model: Model, step: Step, is_last: bool) -> list[Part]:
    """The last layer goes backward, all inputs waiting, or the first, all other gradients there."""
    number, table = gradient_number(step), model.embedding
    is_full = step.lora_rank is None
    others = model.layers * model.layer_params
    new = 0 if step.accumulates or is_last or not is_full else others
    waits = table if is_full and (model.is_tied or not step.accumulates) else 0
    parts = [
        _standing(model, step),
        _gradients(model, step, new, "of the layers"),
        Part("LM head's gradient", number * waits, f"{number} B x {waits:,}"),
        shared_part(model, step),
        layer_scratch(model, step),
    ]
    layers = model.layers if is_last else 1
    if step.is_checkpointed:
        tokens, each = step.tokens / step.passes, layer_bytes(model, step)
        text = f"{tokens:,.0f} tokens x {each:,} B"
        parts += [
            activation_part(model, step, layers),
            Part("recomputed layer", tokens * each, text),
            mask_part(step, 1),
            cast_part(model, step, 1),
        ]
    else:
        parts += [
            activation_part(model, step, layers),
            mask_part(step, layers),
            cast_part(model, step, layers),
        ]
    return parts


def end_moment(model: Model, step: Step) -> list[Part]:
    """The embedding goes backward: all gradients, and the table's own twice where it is tied."""
    if step.lora_rank is not None:
        return [_gradients(model, step, trainable(model, step), "trained")]
    tables = (2 if model.is_tied else 1) if step.accumulates else (1 if model.is_tied else 0)
    size = step.weight * model.embedding
    return [
        _gradients(model, step, model.params, "parameters"),
        Part("embedding's gradient", tables * size, f"{tables} x {size:,} B before it is added"),
        shared_part(model, step),
        Part("gradient of its output", step.tokens * step.weight * model.hidden, "tokens x hidden"),
    ]


def forward_moment(model: Model, step: Step) -> list[Part]:
    """Under autocast with checkpointing: the cast weights of all layers, and the layers' inputs."""
    return [
        _standing(model, step),
        activation_part(model, step, model.layers),
        shared_part(model, step),
        cast_part(model, step, model.layers),
    ]


def optimizer_moment(model: Model, step: Step) -> list[Part]:
    """The optimizer steps."""
    return [
        _gradients(model, step, trainable(model, step), "trained"),
        Part("optimizer's scratch", step.scratch, "while it steps; not measured on a GPU"),
    ]
