"""What a recipe needs of a device and of disks: its worst step, vLLM engine and checkpoints."""

import math
from dataclasses import dataclass, replace
from typing import Any

from data_prep.config import Settings
from stages.arguments import steps_per_generation
from stages.preflight.memory import Step
from stages.preflight.shapes import LINEARS, Model, is_lora_target

GIB = 2**30
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
    number = values.per_device_train_batch_size * steps_per_generation(values, processes)
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
