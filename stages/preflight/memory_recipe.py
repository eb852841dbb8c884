"""From a recipe's keys to the memory of its training steps, vLLM engine and checkpoints.

What `memory_plan` cannot know: which rows come together, what the optimizer's name stands
for, what a colocated engine takes. Lengths are the worst case, all rows as long as allowed.
"""

import math
import re
from dataclasses import dataclass
from typing import Any

from stages.preflight.memory_model import LINEARS, Model, Step

GIB = 2**30
ASSUMED_PROMPT = 1024  # tokens, where no key and no data says how long a prompt gets
VLLM_WORK = 2 * GIB  # vLLM's own activations at 4,096 batched tokens, and its CUDA graphs; a guess
CONTEXT = 1.5 * GIB  # CUDA context, NCCL, cuBLAS workspaces, fragments; a guess


@dataclass(frozen=True)
class Optimizer:
    """Bytes of an optimizer: states per trained parameter, where `states` numbers have `size` bytes
    (None: the gradient's), and scratch per parameter, of all or of the largest tensor."""

    states: int = 2
    size: float | None = None
    scratch_all: bool = False
    scratch_largest: int = 0


# 8-bit states come with an fp32 scale for each block of 256.
EIGHT_BIT = 1 + 4 / 256
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
# torchao on a CPU is not compiled: measured, the same for two shapes.
EAGER_SCRATCH = 57


@dataclass(frozen=True)
class Launch:
    """How a stage is started: processes, engine (of `memory_model.ENGINES`), GiB of a device."""

    processes: int = 1
    engine: str = "none"
    gpu_memory: float = 94.0


def is_on(value: Any, default: bool = False) -> bool:
    """Whether a YAML's switch is on."""
    return default if value is None else str(value).lower() in ("true", "yes", "1")


def weight_bytes(values: dict[str, Any]) -> int:
    """Bytes of a parameter: TRL's dtype is float32; auto and the 16-bit ones have two."""
    return 4 if str(values.get("dtype") or "float32") in ("float32", "fp32") else 2


def is_flash(values: dict[str, Any]) -> bool:
    """Whether attention tells rows apart without a mask of L^2."""
    return "flash" in str(values.get("attn_implementation") or "")


def find_optimizer(values: dict[str, Any]) -> Optimizer | None:
    """What the recipe's optimizer needs; None for one that is not known here."""
    if is_on(values.get("stochastic_rounding")):
        return OPTIMIZERS["adamw_torch_8bit"]
    return OPTIMIZERS.get(str(values.get("optim") or "adamw_torch_fused"))


def lora_modules(values: dict[str, Any]) -> tuple[str, ...]:
    """The modules that get LoRA matrices; peft's default for Qwen2 and Llama is q and v."""
    asked = values.get("lora_target_modules")
    if asked is None:
        return ("q_proj", "v_proj")
    return tuple(name for name in LINEARS if is_lora_target(asked, name))


def is_lora_target(asked: Any, name: str) -> bool:
    """Whether peft puts LoRA on a module, by its name; a text is a pattern of its whole path."""
    if asked is None or "all-linear" in ([asked] if isinstance(asked, str) else asked):
        return True
    if isinstance(asked, list) and len(asked) > 1:
        return any(one.rpartition(".")[2] == name for one in asked)
    # TRL makes a text of a list of one, and peft fits a text to the whole path.
    pattern = asked[0] if isinstance(asked, list) and asked else asked
    part = "mlp." if name in LINEARS[4:] else "self_attn."
    path = f"model.layers.0.{part if name in LINEARS else ''}{name}"
    return bool(pattern) and re.fullmatch(str(pattern), path) is not None


def common(model: Model, values: dict[str, Any], launch: Launch) -> dict[str, Any]:
    """The fields of `Step` that both stages read alike."""
    has_lora = is_on(values.get("use_peft"))
    weight = weight_bytes(values)
    is_autocast = is_on(values.get("bf16"), default=True)
    if launch.engine.startswith("zero") and is_autocast:
        weight = 2  # DeepSpeed trains bf16 weights beside fp32 masters, whatever the dtype
    is_cuda = not is_on(values.get("use_cpu"))
    optimizer = find_optimizer(values) or Optimizer()
    number = 4 if has_lora or launch.engine.startswith("zero") else weight
    rank = int(values.get("lora_r") or 16) if has_lora else None
    modules = lora_modules(values)
    trained = model.lora_params(rank, modules) if rank else model.params
    largest = max(model.embedding, max(a * b for a, b in model.linears().values()))
    if rank:
        largest = rank * max(sum(pair) for pair in model.linears().values())
    scratch = optimizer.scratch_largest * largest
    if optimizer.scratch_largest and not is_cuda:
        scratch = EAGER_SCRATCH * largest
    if optimizer.scratch_all:  # on a CPU a tensor at a time, with two copies of it
        scratch = number * trained if is_cuda else 2 * number * largest
    return {
        "weight": weight,
        "is_autocast": is_autocast,
        "is_checkpointed": is_on(values.get("gradient_checkpointing"), default=True),
        "accumulates": int(values.get("gradient_accumulation_steps") or 1) > 1,
        "optimizer": optimizer.states * (optimizer.size or number),
        "scratch": scratch,
        "lora_rank": rank,
        "lora_modules": modules,
        "has_dropout": float(values.get("lora_dropout", 0.05)) > 0,
        "is_cuda": is_cuda,
        "engine": launch.engine,
        "processes": launch.processes,
    }


def sft_step(model: Model, values: dict[str, Any], launch: Launch, longest: int | None) -> Step:
    """The largest micro-batch of SFT; `longest` is the longest row of the data, where known."""
    rows = int(values.get("per_device_train_batch_size") or 8)
    limit = int(values.get("max_length") or 1024)
    length = min(limit, longest) if longest and not is_on(values.get("packing")) else limit
    is_masked = rows > 1
    if is_on(values.get("packing")):  # TRL lays the packed rows of a micro-batch end to end
        rows, length, is_masked = 1, rows * limit, True
    return Step(
        rows=rows,
        length=length,
        scored=length,
        is_masked=is_masked and not is_flash(values),
        **common(model, values, launch),
    )


def grpo_step(model: Model, values: dict[str, Any], launch: Launch, longest: int | None) -> Step:
    """The largest micro-batch of the GRPO update; `longest` is the longest prompt, where known."""
    rows = int(values.get("per_device_train_batch_size") or 8)
    completion = int(values.get("max_completion_length") or 512)
    length = prompt_room(values, longest) + completion
    together, passes = rows, 1
    if values.get("update_tokens"):
        together = max(1, int(values["update_tokens"]) // length)
        passes = math.ceil(rows / together)
    has_reference = float(values.get("beta") or 0) != 0 and not is_on(values.get("use_peft"))
    return Step(
        rows=rows,
        length=length,
        scored=completion,
        is_masked=together > 1 and not is_flash(values),
        passes=passes,
        reference=model.params if has_reference else 0,
        **common(model, values, launch),
    )


def prompt_room(values: dict[str, Any], longest: int | None) -> int:
    """Tokens of the longest prompt that is trained on."""
    limit = values.get("max_prompt_length")
    known = [int(n) for n in (limit, longest) if n]
    return min(known) if known else ASSUMED_PROMPT


def generation_bytes(
    model: Model, values: dict[str, Any], longest: int | None, processes: int = 1
) -> tuple[float, str]:
    """Bytes of generation without vLLM, and the formula: the KV cache and a step's logits."""
    rows = int(values.get("per_device_train_batch_size") or 8)
    times = values.get("steps_per_generation") or values.get("gradient_accumulation_steps") or 1
    number = rows * int(times)
    if values.get("generation_batch_size"):
        number = int(values["generation_batch_size"]) // processes
    length = prompt_room(values, longest) + int(values.get("max_completion_length") or 512)
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


def plan_engine(model: Model, values: dict[str, Any], launch: Launch) -> Engine | None:
    """The colocated engine of a recipe, or None. vLLM serves fp32 checkpoints in bf16 too."""
    mode = str(values.get("vllm_mode") or "colocate")
    if not is_on(values.get("use_vllm")) or mode != "colocate":
        return None
    parallel = int(values.get("vllm_tensor_parallel_size") or 1)
    used = float(values.get("vllm_gpu_memory_utilization") or 0.3)
    return Engine(
        share=used * launch.gpu_memory * GIB,
        weights=2 * model.params / parallel,
        token=max(1, 2 * 2 * model.layers * model.key // parallel),
    )


def checkpoint_bytes(model: Model, step: Step) -> tuple[float, float]:
    """Bytes of a checkpoint that a run resumes from, and of a saved model, over all processes."""
    saved = step.weight * model.params
    if step.lora_rank is not None:
        number = model.lora_params(step.lora_rank, step.lora_modules)
        return (4 + step.optimizer) * number, saved + 4 * number
    master = 4 * model.params if step.engine.startswith("zero") else 0
    return saved + step.optimizer * model.params + master, saved
