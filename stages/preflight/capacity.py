"""Plan each training stage's worst step; check that devices and disks hold it."""

import json
import math
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pipeline.clean import bytes_of
from pipeline.errors import UserError, nearest, size
from pipeline.folders import place_of, runs_of
from pipeline.memory import total_memory
from pipeline.settings import Settings
from stages.arguments import completion_room
from stages.host import has_gpu
from stages.precision import trained_dtype
from stages.preflight.inputs import ERROR, OK, UNCHECKED, WARNING, Finding, Recipe, from_error
from stages.preflight.memory import Plan, model_size, plan_step
from stages.preflight.roofline import read_model
from stages.preflight.step import Step
from stages.run.folders import checkpoint_bytes, state_bytes
from stages.run.launch import mixed_precision

GIB = 2**30
NEAR = 0.92  # of the device; above, an allocator's fragments can make the difference
LIBRARIES = 0.6 * GIB  # Python, torch and what a stage imports, measured
CONTEXT = 1.5 * GIB  # CUDA context, NCCL, cuBLAS workspaces, fragments; a guess
ASSUMED_PROMPT = ASSUMED_ROW = 1024  # tokens, where no key and no data says how long they get
VLLM_WORK = 2 * GIB  # vLLM's own activations at 4,096 batched tokens, and its CUDA graphs; a guess
# The keys that bound a row's tokens.
LIMITS = {"sft": {"max_length"}, "grpo": {"max_prompt_length", "max_completion_length"}}
# Bytes of scratch for each number of the largest tensor that torchao's 8-bit AdamW steps: on a GPU
# (measured, docs/results/gpu.md), and on a CPU, where it is not compiled (measured, two shapes).
SCRATCH, EAGER_SCRATCH = 9, 57


def has_limits(stage: str, values: Settings) -> bool:
    """Whether a recipe bounds the tokens of a stage's rows; null does not."""
    return all(values.get(key) for key in LIMITS[stage])


def stage_shape(recipe: Recipe, stage: str) -> dict[str, Any]:
    """The config.json of the model that a stage trains; what SFT saves has the dtype of SFT."""
    shape, dtype = recipe.shape(stage), ""
    if stage == "grpo" and recipe.starts_from_sft(stage):
        dtype = trained_dtype(recipe.settings["sft"].dtype, {})
    return shape | {"dtype": dtype} if dtype else shape


def prompt_room(values: Any, longest: int | None) -> int:
    """Tokens of the longest prompt that is trained on."""
    return min((n for n in (values.max_prompt_length, longest) if n), default=ASSUMED_PROMPT)


def longest_completion(values: Any, shape: Mapping[str, Any], longest: int | None = None) -> int:
    """Tokens of the longest completion; `longest`: those of the data's longest prompt."""
    positions = shape.get("max_position_embeddings")
    room = completion_room(values, positions, prompt_room(values, longest))
    return ASSUMED_ROW if room is None else room


def lora_config(values: Settings) -> str | None:
    """The arguments of peft's `LoraConfig` that decide its size, as TRL hands them on."""
    if not values.use_peft:
        return None
    targets = values.lora_target_modules
    if isinstance(targets, list) and len(targets) == 1:  # TRL makes a text of a list of one
        targets = targets[0]
    keys = {"r": values.lora_r, "target_modules": targets, "lora_dropout": values.lora_dropout}
    keys |= {"use_dora": values.use_dora, "modules_to_save": values.lora_modules_to_save}
    if values.lora_target_parameters:
        keys["target_parameters"] = values.lora_target_parameters
    return json.dumps(keys)


def build_step(
    stage: str,
    shape: Mapping[str, Any],
    values: Settings,
    longest: int | None = None,  # row (sft) or prompt (grpo) of the data, tokens
    engine: str = "none",
    processes: int = 1,
) -> Step:
    """Build the worst step of a recipe: the largest micro-batch, all rows as long as allowed.

    Args:
        shape: the model's config.json.
    """
    autocast = mixed_precision(values)
    is_zero, has_lora = engine.startswith("zero"), values.use_peft
    # TRL's dtype is float32, and auto is that of the model's files.
    dtype = trained_dtype(values.dtype, {}) or trained_dtype("auto", shape) or "bfloat16"
    if is_zero and autocast != "no":  # DeepSpeed's float32 copies are its optimizer's
        dtype = "bfloat16"
    number = 4 if has_lora or is_zero or dtype == "float32" else 2
    step = Step(
        json.dumps(shape, sort_keys=True, default=str),
        **rows_of_step(stage, shape, values, longest, engine),
        dtype=dtype,
        autocast=autocast,
        attention=values.attn_implementation,
        is_checkpointed=values.gradient_checkpointing,
        accumulates=values.gradient_accumulation_steps > 1,
        optimizer=state_bytes(values.get("optim"), number),
        lora=lora_config(values),
        is_cuda=not values.use_cpu,
        engine=engine,
        processes=processes,
        has_reference=stage == "grpo" and values.beta != 0 and not has_lora,
    )
    if not values.stochastic_rounding:
        return step
    scratch = SCRATCH if step.is_cuda else EAGER_SCRATCH
    return replace(step, optimizer=state_bytes("adamw_torch_8bit", number), scratch=scratch)


def rows_of_step(
    stage: str, shape: Mapping[str, Any], values: Settings, longest: int | None, engine: str
) -> dict[str, Any]:
    """The largest micro-batch: rows, their length, and how they go through the model."""
    rows, passes, is_masked = values.per_device_train_batch_size, 1, True
    if stage == "grpo":
        scored = longest_completion(values, shape, longest)
        length = prompt_room(values, longest) + scored
        together = rows
        if isinstance(values.update_tokens, int):
            together = max(1, values.update_tokens // length)
        passes = math.ceil(rows / together)
        is_masked = together > 1 and pads(values, engine)
    elif values.packing:  # TRL lays the packed rows of a micro-batch end to end
        rows, length = 1, rows * (values.max_length or ASSUMED_ROW)
        scored = length
    else:
        length = scored = min((n for n in (values.max_length, longest) if n), default=ASSUMED_ROW)
        is_masked = rows > 1
    # FlashAttention and `update_tokens` tell rows apart without a mask of L^2.
    is_masked = is_masked and "flash" not in (values.attn_implementation or "")
    return {
        "rows": rows,
        "length": length,
        "scored": scored,
        "passes": passes,
        "is_masked": is_masked,
    }


def pads(values: Settings, engine: str) -> bool:
    """Whether GRPO pads the rows of a forward pass; `engine` as in `Step`."""
    is_paged = bool(values.get("use_transformers_continuous_batching"))
    return not values.update_tokens or engine.startswith("zero3") or is_paged


def saved_bytes(step: Step) -> tuple[float, float]:
    """Bytes of a checkpoint and of a saved model, over all processes."""
    size = model_size(step)
    num_copied = size.trained if step.engine.startswith("zero") else 0
    states = step.optimizer * size.trained
    weights = size.weights - (size.gradients if step.lora else 0)
    return checkpoint_bytes(weights, size.gradients, states, num_copied, bool(step.lora))


def check_memory(recipe: Recipe, longest: dict[str, int]) -> Iterator[Finding]:
    """Check memory and disk of each training stage; `longest` as in `build_step`, by stage."""
    steps = {}
    for stage in recipe.stages():
        topic, values = f"{stage} memory", recipe.settings[stage]
        most, gpus = longest.get(stage), recipe.args.gpus
        if values.use_cpu and has_limits(stage, values):
            most = None  # as the start of a command plans, which has no data yet
        try:
            shape = stage_shape(recipe, stage)
            step = build_step(stage, shape, values, most, recipe.engine, gpus)
            found = [*check_device(recipe, stage, step, most)]
        except UserError as error:
            yield from_error(topic, error, UNCHECKED)
            continue
        steps[stage] = step
        if "adamw" not in values.get("optim", "adamw"):
            text = f"optim: {values.optim} is not known to the plan, taken as AdamW"
            yield Finding(UNCHECKED, topic, text)
        yield from found
    yield from check_disk(recipe, steps)


@dataclass(frozen=True)
class Need:
    """Bytes that a stage takes of a GPU: at most, in the update, and while vLLM generates.

    Args:
        engine: of a vLLM in the same process.
        share: of it in the update, 0 if it sleeps then.
    """

    update: float
    generation: float
    engine: float
    share: float

    @property
    def total(self) -> float:
        return max(self.update, self.generation)


def gpu_need(values: Settings, step: Step, limit: float) -> Need:
    """What a stage takes of a GPU with `limit` bytes: the number of preflight and of the plan."""
    plan = plan_step(step)
    has_engine = bool(values.get("use_vllm")) and values.vllm_mode == "colocate"
    engine = values.vllm_gpu_memory_utilization * limit if has_engine else 0
    share = 0 if values.get("vllm_enable_sleep_mode") else engine
    generation = plan.states + engine + CONTEXT if has_engine else 0
    return Need(plan.peak + share + CONTEXT, generation, engine, share)


def describe(plan: Plan) -> str:
    """The parts of a plan in one line, the largest first."""
    return ", ".join(f"{name} {size(number)}" for name, number in plan.parts().items())


def check_device(recipe: Recipe, stage: str, step: Step, longest: int | None) -> Iterator[Finding]:
    """Check one device in the update and in generation, with or without a colocated engine."""
    values, topic, plan = recipe.settings[stage], f"{stage} memory", plan_step(step)
    gpu, limit = f"{recipe.args.gpu_memory:g} GiB", recipe.args.gpu_memory * GIB
    assumed = ""
    if stage == "grpo" and not longest and not values.max_prompt_length:
        assumed = f"; no prompt limit and no data: {ASSUMED_PROMPT:,} tokens are assumed"
    if values.use_cpu:
        yield check_host(topic, values, plan, assumed)
        return
    need = gpu_need(values, step, limit)
    when = "at the peak of the update"
    if need.generation > need.update:
        when = "while vLLM generates"
    text = f"{size(need.total)} of {gpu} on each GPU {when}, {size(CONTEXT)} for CUDA itself"
    text += assumed
    text += f"\n  update: {size(need.update)} at its peak ({plan.moment}): {describe(plan)}"
    if need.share:
        text += f", vLLM {size(need.share)}"
    if need.engine:
        text += f"\n  generation: {size(need.generation)}, vLLM {size(need.engine)} = "
        text += f"vllm_gpu_memory_utilization x {gpu}"
    level = ERROR if need.total > limit else WARNING if need.total > NEAR * limit else OK
    remedies = []
    if need.generation > NEAR * limit:
        remedies.append("a lower vllm_gpu_memory_utilization, or vllm_mode: server")
    if need.update > NEAR * limit:
        remedies.append(lower(plan, values, bool(need.share), step.engine))
    yield Finding(level, topic, text, "; ".join(remedies))
    if need.engine:
        yield check_cache(topic, values, step, need.engine, longest)


def check_host(topic: str, values: Settings, plan: Plan, assumed: str = "") -> Finding:
    """Check that a machine without a GPU has the memory of a plan."""
    total, limit = plan.peak + LIBRARIES, total_memory()
    text = (
        f"{size(total)} of this machine's {size(limit)} at the peak ({plan.moment}), on a CPU, "
        f"{size(LIBRARIES)} for the libraries{assumed}: {describe(plan)}"
    )
    if total <= limit:
        return Finding(OK, topic, text)
    return Finding(ERROR, topic, text, lower(plan, values, False))


def check_cache(
    topic: str, values: Settings, step: Step, share: float, longest: int | None
) -> Finding:
    """Check how many completions the KV cache of an engine of `share` bytes holds at once."""
    shape = json.loads(step.shape)
    model, parallel = read_model(shape), values.vllm_tensor_parallel_size
    weights = 2 * model.params / parallel  # 16 bits, also where the trainer's are 32
    token = max(1, model.cached // parallel)
    tokens = max(0, int((share - weights - VLLM_WORK) // token))
    length = prompt_room(values, longest) + longest_completion(values, shape, longest)
    text = (
        f"vLLM: {size(share)} - {size(weights)} of weights = cache for {tokens:,} tokens of "
        f"{token:,} B: {tokens // length} completions of {length:,} tokens at once"
    )
    longest_row = max(length, values.vllm_max_model_length or 0)
    if tokens >= longest_row:
        return Finding(OK, topic, text)
    times = (weights + VLLM_WORK + longest_row * token) / share
    least = math.ceil(100 * times * values.vllm_gpu_memory_utilization) / 100
    remedy = f"vllm_gpu_memory_utilization: {least} or more, or lower vllm_max_model_length"
    return Finding(ERROR, topic, text, remedy)


def lower(plan: Plan, values: Settings, has_share: bool, engine: str = "none") -> str:
    """What lowers the largest parts of a plan, the cheapest first; `engine` as in `Step`."""
    rows = values.per_device_train_batch_size
    half = f"per_device_train_batch_size: {max(1, rows // 2)} and twice the accumulation"
    is_sharded = engine in ("fsdp2", "zero3", "zero3_offload")
    # FSDP2 updates float32 weights.
    is_float32 = values.use_peft or values.dtype == "float32"
    weights = "" if is_float32 else " grpo.dtype=float32 sft.dtype=float32"
    ways = {
        "vllm_enable_sleep_mode: true": has_share,
        "gradient_checkpointing: true": not values.gradient_checkpointing,
        half: rows > 1 and plan.peak - plan.states > 0.2 * plan.peak,
        "dtype: bfloat16 with stochastic_rounding: true": not (
            values.stochastic_rounding or values.use_peft
        ),
        "use_peft: true": not values.use_peft,
        "a lower max_length": "max_length" in values and values.use_cpu,
        "more GPUS": not values.use_cpu and is_sharded,
        f"ACCELERATE=fsdp2{weights} on several GPUS": not values.use_cpu and not is_sharded,
        "a larger GPU (gpu_memory)": not values.use_cpu,
    }
    return ", or ".join(way for way, helps in ways.items() if helps)


def num_kept(values: Settings) -> int:
    """Checkpoints of a stage that are on the disk at once; about, where no limit is set."""
    if values.save_strategy == "no":
        return 0
    if values.save_total_limit:  # with 0 all are kept, too
        return values.save_total_limit + 1  # the new one is written before the oldest goes
    total, every = values.max_steps, values.save_steps
    return int(total // every) if 1 <= every <= total else 10


def num_models(stage: str, values: Settings) -> int:
    """Models that a stage saves: the last, and with evaluation the best."""
    return 2 if values.eval_strategy != "no" and stage == "grpo" else 1


def disk_bytes(stage: str, values: Settings, step: Step) -> float:
    """The most that the files of a stage take."""
    checkpoint, saved = saved_bytes(step)
    return checkpoint * num_kept(values) + saved * num_models(stage, values)


def check_disk(recipe: Recipe, steps: dict[str, Step]) -> Iterator[Finding]:
    """Check that each disk has space for the files of the stages (`steps`, by stage)."""
    disks: dict[int, list[tuple[str, float, str]]] = {}  # folder, bytes, how many of what
    for stage, step in steps.items():
        values, (checkpoint, saved) = recipe.settings[stage], saved_bytes(step)
        kept, models = num_kept(values), num_models(stage, values)
        if kept and not values.save_total_limit and checkpoint * kept > 10 * GIB:
            text = f"{stage}: save_total_limit is not set: "
            text += f"about {kept} checkpoints of {size(checkpoint)}"
            yield Finding(WARNING, "disk", text, "save_total_limit: 2")
        folder = str(values.get("output_dir") or recipe.run)
        text = f"{stage}: {kept} checkpoints of {size(checkpoint)} + {models} of {size(saved)}"
        needed = disk_bytes(stage, values, step)
        disks.setdefault(nearest(folder).stat().st_dev, []).append((folder, needed, text))
    runs_here = has_gpu() or all(recipe.settings[stage].use_cpu for stage in steps)
    for needs in disks.values():
        folders, sizes, texts = zip(*needs, strict=True)
        free = shutil.disk_usage(nearest(folders[0])).free
        text = f"{size(sum(sizes))} needed ({', '.join(texts)}), {size(free)} free for "
        text += ", ".join(dict.fromkeys(folders)) + ("" if runs_here else ", without a GPU")
        held = sum(bytes_of(run) for folder in folders for run in runs_of(place_of(folder)))
        text += f"; each run with other keys needs as much again, {size(held)} are in runs now"
        level = OK if sum(sizes) <= free else ERROR if runs_here else WARNING
        remedy = "free some space, lower save_total_limit, or set output_dir to a larger disk"
        yield Finding(level, "disk", text, "" if level == OK else remedy)
