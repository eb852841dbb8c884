"""Check that devices and disks hold what the plan says: training, vLLM engine, checkpoints."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from data_prep.config import Settings, UserError
from stages.checks import has_gpu
from stages.preflight.findings import ERROR, OK, UNCHECKED, WARNING, Finding, from_error
from stages.preflight.inputs import Recipe
from stages.preflight.memory import Part, Plan, plan_step
from stages.preflight.needs import (
    ASSUMED_PROMPT,
    GIB,
    Engine,
    build_step,
    checkpoint_bytes,
    completion_room,
    find_optimizer,
    generation_bytes,
    plan_engine,
    prompt_room,
    weight_bytes,
)
from stages.preflight.shapes import Model, read_model

NEAR = 0.92  # of the device; above, an allocator's fragments can make the difference
CONTEXT = 1.5 * GIB  # CUDA context, NCCL, cuBLAS workspaces, fragments; a guess


def gib(number: float) -> str:
    """Format bytes."""
    return f"{number / GIB:.1f} GiB" if number >= GIB else f"{number / 2**20:,.1f} MiB"


def check_memory(recipe: Recipe, longest: dict[str, int]) -> list[Finding]:
    """Check memory and disk of each training stage.

    Args:
        longest: by stage, the longest row (sft) or prompt (grpo) of the built data, in tokens.
    """
    found, disk = [], []
    for stage in recipe.stages():
        topic, values = f"{stage} memory", recipe.settings[stage]
        try:
            model = read_model(recipe.shape(stage))
        except UserError as error:
            found.append(from_error(topic, error, UNCHECKED))
            continue
        step = build_step(stage, model, values, recipe.launch, longest.get(stage))
        if find_optimizer(values) is None:
            text = f"optim: {values.get('optim')} is not known to the plan, taken as AdamW"
            found.append(Finding(UNCHECKED, topic, text))
        found += check_device(recipe, stage, model, plan_step(step), longest.get(stage))
        disk.append((stage, *checkpoint_bytes(step)))
    return found + check_disk(recipe, disk)


def check_device(
    recipe: Recipe, stage: str, model: Model, plan: Plan, longest: int | None
) -> list[Finding]:
    """Check one device in the update, then in generation with or without a colocated engine."""
    values, launch, topic = recipe.settings[stage], recipe.launch, f"{stage} memory"
    gpu, limit, guess = f"{launch.gpu_memory:g} GiB", launch.gpu_memory * GIB, ""
    if stage == "grpo" and not longest and not values.max_prompt_length:
        guess = f"; no prompt limit and no data: prompts of {ASSUMED_PROMPT:,} tokens are assumed"
    if values.use_cpu:
        text = f"{gib(plan.peak)} of tensors at the peak ({plan.moment}), on a CPU{guess}"
        return [Finding(OK, topic, f"{text}\n{describe(plan)}")]
    engine = plan_engine(model, values, launch)
    share = engine.share if engine and not values.vllm_enable_sleep_mode else 0
    total = plan.peak + share + CONTEXT
    text = (
        f"{gib(total)} of {gpu} on each device at the peak of the update "
        f"({plan.moment}), {gib(CONTEXT)} for CUDA itself{guess}\n{describe(plan)}"
    )
    if share:
        text += f"\n  vLLM: {gib(share)} = vllm_gpu_memory_utilization x {gpu}"
    level = ERROR if total > limit else WARNING if total > NEAR * limit else OK
    remedy = lower(plan, values, bool(share)) if level != OK else ""
    found = [Finding(level, topic, text, remedy)]
    if engine:
        if plan.states + engine.share + CONTEXT > limit:
            text = (
                f"while vLLM generates: {gib(plan.states)} of training states + "
                f"{gib(engine.share)} for it > {gpu}"
            )
            remedy = "lower vllm_gpu_memory_utilization, or vllm_mode: server"
            found.append(Finding(ERROR, topic, text, remedy))
        found.append(check_cache(topic, values, engine, longest))
    elif stage == "grpo" and not values.use_vllm:
        size, formula = generation_bytes(model, values, longest, launch.processes)
        total = plan.states + size + CONTEXT
        text = f"generation without vLLM: {gib(size)} = {formula}; "
        text += f"{gib(total)} with weights and states"
        if total > limit:
            remedy = "use_vllm: true, or lower steps_per_generation"
            found.append(Finding(ERROR, topic, text, remedy))
        else:
            found.append(Finding(OK, topic, text))
    return found


def check_cache(topic: str, values: Settings, engine: Engine, longest: int | None) -> Finding:
    """Check how many completions the colocated engine's KV cache holds at once."""
    room, tokens = prompt_room(values, longest) + completion_room(values), engine.tokens
    text = (
        f"vLLM: {gib(engine.share)} - {gib(engine.weights)} of weights = cache for "
        f"{max(0, tokens):,} tokens of {engine.token:,} B: "
        f"{max(0, tokens) // room} completions of {room:,} tokens at once"
    )
    if tokens >= max(room, values.vllm_max_model_length or 0):
        return Finding(OK, topic, text)
    remedy = "raise vllm_gpu_memory_utilization, or lower vllm_max_model_length"
    return Finding(ERROR, topic, text, remedy)


def lower(plan: Plan, values: Settings, has_share: bool) -> str:
    """What lowers the largest parts of a plan, the cheapest first."""
    sizes = {part.name: part.bytes for part in plan.parts}
    work = sum(n for name, n in sizes.items() if name not in ("weights", "optimizer", "gradients"))
    rows = values.per_device_train_batch_size
    half = f"per_device_train_batch_size: {max(1, rows // 2)} and twice the accumulation"
    masks, is_full = sizes.get("attention masks", 0), not values.use_peft
    ways = {
        "vllm_enable_sleep_mode: true": has_share,
        "gradient_checkpointing: true": not values.gradient_checkpointing,
        "attn_implementation: flash_attention_2": masks > 0.05 * plan.peak,
        half: rows > 1 and work > 0.2 * plan.peak,
        "dtype: bfloat16 with stochastic_rounding: true": weight_bytes(values) == 4 and is_full,
        "use_peft: true": is_full,
        "more GPUS with ACCELERATE=zero3 or fsdp2": True,
    }
    return ", or ".join(way for way, helps in ways.items() if helps)


def describe(plan: Plan) -> str:
    """The parts of a plan with their formulas, largest first."""

    def lines(parts: Iterable[Part]) -> list[str]:
        ordered = sorted(parts, key=lambda part: -part.bytes)
        return [f"  {part.name}: {gib(part.bytes)} = {part.formula}" for part in ordered]

    found = lines(plan.parts)
    if plan.parts != plan.backward:
        total, names = gib(sum(part.bytes for part in plan.backward)), {p.name for p in plan.parts}
        found.append(
            f"less at the height of the backward pass, {total}, besides weights and states:"
        )
        found += lines(part for part in plan.backward if part.name not in names)
    return "\n".join(found)


def check_disk(recipe: Recipe, stages: list[tuple[str, float, float]]) -> list[Finding]:
    """Check that what the stages keep on disk has room.

    Args:
        stages: of each its name, and the bytes of a checkpoint and of a saved model.
    """
    disks: dict[int, list[tuple[str, float, str]]] = {}  # folder, bytes, how many of what
    found = []
    for stage, checkpoint, saved in stages:
        values = recipe.settings[stage]
        kept = (values.save_total_limit or 0) + 1  # the new one is written before the oldest goes
        if values.save_strategy == "no":
            kept = 0
        elif values.save_total_limit is None:
            steps, every = values.max_steps, values.save_steps
            kept = int(steps // every) if steps > 0 and every >= 1 else 10
            if checkpoint * kept > 10 * GIB:
                text = f"save_total_limit is not set: about {kept} checkpoints of {gib(checkpoint)}"
                found.append(Finding(WARNING, "disk", f"{stage}: {text}", "save_total_limit: 2"))
        # The last, and with evaluation the best.
        models = 2 if values.eval_strategy != "no" and stage == "grpo" else 1
        folder = str(values.get("output_dir") or recipe.run)
        text = f"{stage}: {kept} checkpoints of {gib(checkpoint)} + {models} of {gib(saved)}"
        needed = checkpoint * kept + saved * models
        disks.setdefault(nearest(folder).stat().st_dev, []).append((folder, needed, text))
    runs_here = has_gpu() or all(recipe.settings[stage].use_cpu for stage, *_ in stages)
    for needs in disks.values():
        folders, sizes, texts = zip(*needs, strict=True)
        free = shutil.disk_usage(nearest(folders[0])).free
        text = f"{gib(sum(sizes))} needed ({', '.join(texts)}), {gib(free)} free for "
        text += ", ".join(dict.fromkeys(folders))
        if sum(sizes) <= free:
            found.append(Finding(OK, "disk", text))
            continue
        remedy = "free some, lower save_total_limit, or set output_dir to a larger disk"
        if not runs_here:
            text += ", a machine without a GPU"
        found.append(Finding(ERROR if runs_here else WARNING, "disk", text, remedy))
    return found


def nearest(folder: str) -> Path:
    """The folder itself, or the nearest one above it that is there."""
    place = Path(folder).absolute()
    return next(one for one in (place, *place.parents) if one.exists())
