"""Plan each training stage's worst step; check that devices and disks hold it."""

import math
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pipeline.errors import UserError, nearest, size
from pipeline.memory import total_memory
from pipeline.settings import Settings
from stages.arguments import completion_room
from stages.host import has_gpu
from stages.launch import mixed_precision
from stages.precision import trained_dtype
from stages.preflight.inputs import ERROR, OK, UNCHECKED, WARNING, Finding, Recipe, from_error
from stages.preflight.memory import LINEARS, Model, Plan, Step, plan_step
from stages.run_folder import checkpoint_bytes, state_bytes

GIB = 2**30
NEAR = 0.92  # of the device; above, an allocator's fragments can make the difference
LIBRARIES = 0.6 * GIB  # Python, torch and what a stage imports, measured
CONTEXT = 1.5 * GIB  # CUDA context, NCCL, cuBLAS workspaces, fragments; a guess
ASSUMED_PROMPT = ASSUMED_ROW = 1024  # tokens, where no key and no data says how long they get
VLLM_WORK = 2 * GIB  # vLLM's own activations at 4,096 batched tokens, and its CUDA graphs; a guess
# The keys that bound a row's tokens.
LIMITS = {"sft": {"max_length"}, "grpo": {"max_prompt_length", "max_completion_length"}}
# Bytes of scratch for each number of the largest tensor that torchao's 8-bit AdamW steps: on a GPU
# (assumed), and on a CPU, where it is not compiled (measured, the same for two shapes).
SCRATCH, EAGER_SCRATCH = 16, 57


def has_limits(stage: str, values: Settings) -> bool:
    """Whether a recipe bounds the tokens of a stage's rows; null does not."""
    return all(values.get(key) for key in LIMITS[stage])


def stage_model(recipe: Recipe, stage: str) -> Model:
    """The model that a stage trains; one that SFT saves has the dtype of SFT."""
    model = Model(recipe.shape(stage))
    if stage == "grpo" and recipe.starts_from_sft(stage):
        model.dtype = trained_dtype(recipe.settings["sft"].dtype, {}) or model.dtype
    return model


def weight_bytes(values: Settings, model: Model) -> int:
    """Bytes of a parameter: TRL's dtype is float32, and auto is that of the model's files."""
    return 4 if (trained_dtype(values.dtype, {}) or model.dtype) == "float32" else 2


def prompt_room(values: Any, longest: int | None) -> int:
    """Tokens of the longest prompt that is trained on."""
    return min((n for n in (values.max_prompt_length, longest) if n), default=ASSUMED_PROMPT)


def longest_completion(values: Any, model: Model, longest: int | None = None) -> int:
    """Tokens of the longest completion; `longest`: those of the data's longest prompt."""
    room = completion_room(values, model.positions, prompt_room(values, longest))
    return ASSUMED_ROW if room is None else room


def is_pattern(asked: Any) -> bool:
    """Whether targets are a pattern of a module's whole path; TRL makes a text of a list of one."""
    return isinstance(asked, str) or len(asked) == 1


def fits(asked: Any, path: str) -> bool:
    """Whether peft puts LoRA on the module of this path; None and all-linear take other ways."""
    if asked is None:
        return False
    if not is_pattern(asked):
        return any(f".{path}".endswith(f".{name}") for name in asked)
    pattern = str(asked if isinstance(asked, str) else asked[0])
    try:
        return pattern != "all-linear" and re.fullmatch(pattern, path) is not None
    except re.error as error:
        raise UserError(
            f"lora_target_modules: {pattern!r} is not a pattern ({error}); correct it"
        ) from error


def is_lora_target(asked: Any, name: str) -> bool:
    """Whether peft puts LoRA on a module: None is q and v, a text a pattern of the whole path."""
    if asked is None:
        return name in ("q_proj", "v_proj")
    if asked in ("all-linear", ["all-linear"]):
        return True
    if not is_pattern(asked):
        return any(one.rpartition(".")[2] == name for one in asked)
    part = "mlp" if name in LINEARS[4:] else "self_attn"
    return fits(asked, f"model.layers.0.{part}.{name}")


def build_step(
    stage: str,
    model: Model,
    values: Settings,
    longest: int | None = None,  # row (sft) or prompt (grpo) of the data, tokens
    engine: str = "none",
    processes: int = 1,
) -> Step:
    """Build the worst step of a recipe: the largest micro-batch, all rows as long as allowed."""
    mixed = mixed_precision(values)
    is_mixed = mixed != "no"
    is_zero, has_lora = engine.startswith("zero"), values.use_peft
    # DeepSpeed trains bf16 weights beside fp32 masters, whatever the dtype.
    weight = 2 if is_zero and is_mixed else weight_bytes(values, model)
    step = Step(
        model=model,
        **rows_of_step(stage, model, values, longest, engine),
        weight=weight,
        is_autocast=is_mixed,
        autocast=mixed,
        is_checkpointed=values.gradient_checkpointing,
        accumulates=values.gradient_accumulation_steps > 1,
        lora_rank=values.lora_r if has_lora else None,
        lora_modules=tuple(n for n in LINEARS if is_lora_target(values.lora_target_modules, n)),
        has_dropout=values.lora_dropout > 0,
        is_cuda=not values.use_cpu,
        engine=engine,
        processes=processes,
        has_reference=stage == "grpo" and values.beta != 0 and not has_lora,
    )
    if values.stochastic_rounding:
        largest = max(model.embedding, *(a * b for a, b in model.linears().values()))
        scratch = (SCRATCH if step.is_cuda else EAGER_SCRATCH) * largest
        return replace(step, optimizer=state_bytes("adamw_torch_8bit", weight), scratch=scratch)
    number = 4 if has_lora or is_zero else weight
    return replace(step, optimizer=state_bytes(values.get("optim"), number))


def rows_of_step(
    stage: str, model: Model, values: Settings, longest: int | None, engine: str
) -> dict[str, Any]:
    """The largest micro-batch: rows, their length, and how they go through the model."""
    rows, passes, is_masked = values.per_device_train_batch_size, 1, True
    if stage == "grpo":
        scored = longest_completion(values, model, longest)
        length = prompt_room(values, longest) + scored
        together = max(1, values.update_tokens // length) if values.update_tokens else rows
        passes = math.ceil(rows / together)
        is_paged = values.get("use_transformers_continuous_batching")
        is_padded = not values.update_tokens or engine.startswith("zero3") or is_paged
        is_masked = together > 1 and bool(is_padded)
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


def saved_bytes(step: Step) -> tuple[float, float]:
    """Bytes of a checkpoint and of a saved model, over all processes."""
    weights, trained = step.weight * step.model.params, step.gradient * step.trained
    num_copied = step.trained if step.engine.startswith("zero") else 0
    states = step.optimizer * step.trained
    return checkpoint_bytes(weights, trained, states, num_copied, not step.is_full)


def check_memory(recipe: Recipe, longest: dict[str, int]) -> Iterator[Finding]:
    """Check memory and disk of each training stage; `longest` as in `build_step`, by stage."""
    steps = {}
    for stage in recipe.stages():
        topic, values = f"{stage} memory", recipe.settings[stage]
        try:
            model = stage_model(recipe, stage)
        except UserError as error:
            yield from_error(topic, error, UNCHECKED)
            continue
        most, gpus = longest.get(stage), recipe.args.gpus
        if values.use_cpu and has_limits(stage, values):
            most = None  # as the start of a command plans, which has no data yet
        step = steps[stage] = build_step(stage, model, values, most, recipe.engine, gpus)
        if values.use_peft and not step.lora_modules:
            text = f"lora_target_modules: {values.lora_target_modules} fits no module of a layer"
            if len(values.lora_target_modules) == 1:
                text += "; a list of one is read as a pattern of the module's whole path"
            remedy = f"all-linear, two or more of {', '.join(LINEARS)}, or a pattern like .*q_proj"
            yield Finding(ERROR, f"{stage}.yaml", text, remedy)
        if "adamw" not in values.get("optim", "adamw"):
            text = f"optim: {values.optim} is not known to the plan, taken as AdamW"
            yield Finding(UNCHECKED, topic, text)
        yield from check_device(recipe, stage, step, most)
    yield from check_disk(recipe, steps)


def engine_bytes(values: Settings, limit: float) -> tuple[float, float]:
    """Memory that a colocated vLLM takes of a GPU with `limit` bytes: in all, and in the update."""
    has_engine = bool(values.get("use_vllm")) and values.vllm_mode == "colocate"
    engine = values.vllm_gpu_memory_utilization * limit if has_engine else 0
    return engine, 0 if values.get("vllm_enable_sleep_mode") else engine


def peak_of_gpu(values: Settings, step: Step, limit: float) -> float:
    """The most bytes that a stage takes of a GPU with `limit` bytes, in update or generation."""
    plan, (engine, share) = plan_step(step), engine_bytes(values, limit)
    return max(plan.peak + share, plan.states + engine) + CONTEXT


def check_device(recipe: Recipe, stage: str, step: Step, longest: int | None) -> Iterator[Finding]:
    """Check one device in the update, then in generation with or without a colocated engine."""
    values, topic, plan = recipe.settings[stage], f"{stage} memory", plan_step(step)
    gpu, limit = f"{recipe.args.gpu_memory:g} GiB", recipe.args.gpu_memory * GIB
    parts = sorted(plan.parts, key=lambda part: -part.bytes)
    parts = "".join(f"\n  {part.name}: {size(part.bytes)} = {part.formula}" for part in parts)
    if stage == "grpo" and not longest and not values.max_prompt_length:
        parts = f"; no prompt limit and no data: {ASSUMED_PROMPT:,} tokens are assumed" + parts
    if values.use_cpu:
        yield check_host(topic, values, plan, parts)
        return
    engine, share = engine_bytes(values, limit)
    total = plan.peak + share + CONTEXT
    text = (
        f"{size(total)} of {gpu} on each device at the peak of the update ({plan.moment}), "
        f"{size(CONTEXT)} for CUDA itself{parts}"
    )
    if share:
        text += f"\n  vLLM: {size(share)} = vllm_gpu_memory_utilization x {gpu}"
    level = ERROR if total > limit else WARNING if total > NEAR * limit else OK
    remedy = lower(plan, values, bool(share), step.engine) if level != OK else ""
    yield Finding(level, topic, text, remedy)
    if engine:
        if plan.states + engine + CONTEXT > limit:
            needs = f"{size(plan.states)} of training states + {size(engine)} for it"
            text = f"while vLLM generates: {needs} > {gpu}"
            remedy = "lower vllm_gpu_memory_utilization, or vllm_mode: server"
            yield Finding(ERROR, topic, text, remedy)
        yield check_cache(topic, values, step.model, engine, longest)


def check_host(topic: str, values: Settings, plan: Plan, parts: str = "") -> Finding:
    """Check that a machine without a GPU has the memory of a plan; `parts` describe it."""
    total, limit = plan.peak + LIBRARIES, total_memory()
    text = (
        f"{size(total)} of this machine's {size(limit)} at the peak ({plan.moment}), on a CPU, "
        f"{size(LIBRARIES)} for the libraries{parts}"
    )
    if total <= limit:
        return Finding(OK, topic, text)
    return Finding(ERROR, topic, text, lower(plan, values, False))


def check_cache(
    topic: str, values: Settings, model: Model, share: float, longest: int | None
) -> Finding:
    """Check how many completions the KV cache of an engine of `share` bytes holds at once."""
    parallel = values.vllm_tensor_parallel_size
    weights = 2 * model.params / parallel  # 16 bits, also where the trainer's are 32
    token = max(1, 4 * model.layers * model.key // parallel)
    tokens = max(0, int((share - weights - VLLM_WORK) // token))
    length = prompt_room(values, longest) + longest_completion(values, model, longest)
    text = (
        f"vLLM: {size(share)} - {size(weights)} of weights = cache for {tokens:,} tokens of "
        f"{token:,} B: {tokens // length} completions of {length:,} tokens at once"
    )
    if tokens >= max(length, values.vllm_max_model_length or 0):
        return Finding(OK, topic, text)
    remedy = "raise vllm_gpu_memory_utilization, or lower vllm_max_model_length"
    return Finding(ERROR, topic, text, remedy)


def lower(plan: Plan, values: Settings, has_share: bool, engine: str = "none") -> str:
    """What lowers the largest parts of a plan, the cheapest first; `engine` as in `Step`."""
    rows = values.per_device_train_batch_size
    half = f"per_device_train_batch_size: {max(1, rows // 2)} and twice the accumulation"
    is_sharded = engine in ("fsdp2", "zero3", "zero3_offload")
    # FSDP2 updates float32 weights.
    weights = "" if values.use_peft or values.dtype == "float32" else " KEYS=dtype=float32"
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
        "a larger GPU (--gpu_memory)": not values.use_cpu,
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
        level = OK if sum(sizes) <= free else ERROR if runs_here else WARNING
        remedy = "free some space, lower save_total_limit, or set output_dir to a larger disk"
        yield Finding(level, "disk", text, "" if level == OK else remedy)
