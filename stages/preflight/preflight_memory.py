"""Preflight: memory of a device, the vLLM engine in it, and the disk for checkpoints."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from data_prep.config import UserError
from stages.preflight.memory_model import Model, read_model
from stages.preflight.memory_plan import Plan, plan_step
from stages.preflight.memory_recipe import (
    ASSUMED_PROMPT,
    CONTEXT,
    GIB,
    Launch,
    checkpoint_bytes,
    find_optimizer,
    generation_bytes,
    grpo_step,
    is_on,
    plan_engine,
    prompt_room,
    sft_step,
    weight_bytes,
)
from stages.preflight.memory_sharing import Part
from stages.preflight.model_shapes import load_shape
from stages.preflight.preflight_findings import (
    ERROR,
    OK,
    UNCHECKED,
    WARNING,
    Finding,
    Recipe,
    whole,
)

NEAR = 0.92  # of the device; above, an allocator's fragments can make the difference


def gib(number: float) -> str:
    """Bytes as a short text."""
    return f"{number / GIB:.1f} GiB" if number >= GIB else f"{number / 2**20:,.1f} MiB"


def check_memory(recipe: Recipe, longest: dict[str, int]) -> list[Finding]:
    """Memory and disk of each training stage.

    Args:
        longest: by stage, the longest row (sft) or prompt (grpo) of the built data, in tokens.
    """
    found, disk, models = [], [], {}
    for stage in recipe.stages():
        topic, values = f"{stage} memory", recipe.values[f"{stage}.yaml"]
        try:
            model = models[stage] = read_model(find_shape(recipe, stage))
        except UserError as error:
            text, _, remedy = str(error).rpartition("; ")
            found.append(Finding(UNCHECKED, topic, text or remedy, remedy if text else ""))
            continue
        try:
            make = sft_step if stage == "sft" else grpo_step
            step = make(model, values, recipe.launch, longest.get(stage))
        except (TypeError, ValueError) as error:  # the file has its own finding
            found.append(Finding(UNCHECKED, topic, f"{stage}.yaml: {error}"))
            continue
        plan = plan_step(model, step)
        if find_optimizer(values) is None:
            text = f"optim: {values['optim']} is not known to the plan, taken as AdamW"
            found.append(Finding(UNCHECKED, topic, text))
        found += _device(topic, plan, model, values, recipe.launch, longest.get(stage))
        disk.append((stage, values, *checkpoint_bytes(model, step)))
    return found + _disk(recipe, disk)


def find_shape(recipe: Recipe, stage: str) -> dict[str, Any]:
    """The config.json of the stage's model; of a model.yaml's where that builds it."""
    name = recipe.model(stage)
    if recipe.tokenizer and Path(recipe.tokenizer, "config.json").is_file():
        return load_shape(recipe.tokenizer)  # a folder of the model without its weights
    own = recipe.values.get("model.yaml")
    if own and name == own.get("output_dir") and not Path(str(name), "config.json").is_file():
        heads = whole(own.get("num_heads"), 4)
        return {
            "model_type": "qwen2",
            "hidden_size": whole(own.get("hidden_size"), 64),
            "intermediate_size": whole(own.get("intermediate_size"), 192),
            "num_hidden_layers": whole(own.get("num_layers"), 3),
            "num_attention_heads": heads,
            "num_key_value_heads": whole(own.get("num_kv_heads"), 4),
            "vocab_size": 1000,  # 200 numbers and up to 800 merges
            "tie_word_embeddings": True,
            "max_position_embeddings": whole(own.get("max_position_embeddings"), 512),
        }
    return load_shape(str(name))


def contexts(recipe: Recipe) -> dict[str, int]:
    """By stage, the positions that the model has, where its shape is known."""
    found = {}
    for stage in recipe.stages():
        try:
            positions = find_shape(recipe, stage).get("max_position_embeddings")
            if positions:
                found[stage] = int(positions)
        except (UserError, TypeError, ValueError):  # check_memory says so
            continue
    return found


def describe(plan: Plan) -> str:
    """The parts of a plan with their formulas, largest first."""

    def lines(parts: Iterable[Part]) -> list[str]:
        ordered = sorted(parts, key=lambda part: -part.bytes)
        return [f"  {part.name}: {gib(part.bytes)} = {part.formula}" for part in ordered]

    found = lines(plan.parts)
    if plan.parts != plan.backward:
        total = gib(sum(part.bytes for part in plan.backward))
        names = {part.name for part in plan.parts}
        others = [part for part in plan.backward if part.name not in names]
        found += [f"less at the height of the backward pass, {total}, beside weights and states:"]
        found += lines(others)
    return "\n".join(found)


def _device(
    topic: str,
    plan: Plan,
    model: Model,
    values: dict[str, Any],
    launch: Launch,
    longest: int | None,
) -> list[Finding]:
    guess = ""
    if topic.startswith("grpo") and not longest and not values.get("max_prompt_length"):
        guess = f"; no prompt limit and no data: prompts of {ASSUMED_PROMPT:,} tokens are assumed"
    if is_on(values.get("use_cpu")):
        text = f"{gib(plan.peak)} of tensors at the peak ({plan.moment}), on a CPU{guess}"
        text += f"\n{describe(plan)}"
        return [Finding(OK, topic, text)]
    found = []
    engine = plan_engine(model, values, launch)
    sleeps = is_on(values.get("vllm_enable_sleep_mode"))
    share = engine.share if engine and not sleeps else 0
    total, limit = plan.peak + share + CONTEXT, launch.gpu_memory * GIB
    text = (
        f"{gib(total)} of {launch.gpu_memory:g} GiB on each device at the peak of the update "
        f"({plan.moment}), {gib(CONTEXT)} for CUDA itself{guess}\n{describe(plan)}"
    )
    if share:
        text += f"\n  vLLM: {gib(share)} = vllm_gpu_memory_utilization x {launch.gpu_memory:g} GiB"
    level = ERROR if total > limit else WARNING if total > NEAR * limit else OK
    found.append(
        Finding(level, topic, text, _remedy(plan, values, bool(share)) if level != OK else "")
    )
    if engine:
        found += _engine(topic, engine, plan, model, values, launch, longest)
    elif topic.startswith("grpo") and not is_on(values.get("use_vllm")):
        size, text = generation_bytes(model, values, longest, launch.processes)
        total = standing_bytes(plan) + size + CONTEXT
        level = ERROR if total > limit else OK
        text = (
            f"generation without vLLM: {gib(size)} = {text}; {gib(total)} with weights and states"
        )
        remedy = "use_vllm: true, or lower steps_per_generation" if level == ERROR else ""
        found.append(Finding(level, topic, text, remedy))
    return found


def standing_bytes(plan: Plan) -> float:
    """Bytes that are there between steps."""
    names = (
        "weights", "LoRA weights", "optimizer", "reference model", "master weights",
        "DDP's buckets", "buckets",
    )  # fmt: skip
    return sum(part.bytes for part in plan.parts if part.name in names)


def _remedy(plan: Plan, values: dict[str, Any], has_engine: bool) -> str:
    """What lowers the largest parts, the cheapest first."""
    sizes = {part.name: part.bytes for part in plan.parts}
    ways = []
    if has_engine:
        ways.append("vllm_enable_sleep_mode: true")
    if not is_on(values.get("gradient_checkpointing"), default=True):
        ways.append("gradient_checkpointing: true")
    if sizes.get("attention masks", 0) > 0.05 * plan.peak:
        ways.append("attn_implementation: flash_attention_2")
    rows = whole(values.get("per_device_train_batch_size"), 8)
    work = sum(n for name, n in sizes.items() if name not in ("weights", "optimizer", "gradients"))
    if rows > 1 and work > 0.2 * plan.peak:
        ways.append(f"per_device_train_batch_size: {max(1, rows // 2)} and twice the accumulation")
    if weight_bytes(values) == 4 and not is_on(values.get("use_peft")):
        ways.append("dtype: bfloat16 with stochastic_rounding: true")
    if not is_on(values.get("use_peft")):
        ways.append("use_peft: true")
    ways.append("more GPUS with ACCELERATE=zero3 or fsdp2")
    return ", or ".join(ways)


def _engine(
    topic: str,
    engine: Any,
    plan: Plan,
    model: Model,
    values: dict[str, Any],
    launch: Launch,
    longest: int | None,
) -> list[Finding]:
    """Whether the colocated engine starts, and how many completions it writes at once."""
    standing = standing_bytes(plan)
    found = []
    total, limit = standing + engine.share + CONTEXT, launch.gpu_memory * GIB
    if total > limit:
        text = (
            f"while vLLM generates: {gib(standing)} of training states + {gib(engine.share)} for it"
        )
        remedy = "lower vllm_gpu_memory_utilization, or vllm_mode: server"
        found.append(Finding(ERROR, topic, f"{text} > {launch.gpu_memory:g} GiB", remedy))
    room = prompt_room(values, longest) + whole(values.get("max_completion_length"), 512)
    text = (
        f"vLLM: {gib(engine.share)} - {gib(engine.weights)} of weights = cache for "
        f"{max(0, engine.tokens):,} tokens of {engine.token:,} B: "
        f"{max(0, engine.tokens) // room} completions of {room:,} tokens at once"
    )
    window = whole(values.get("vllm_max_model_length"), 0)
    if engine.tokens < max(room, window):
        remedy = "raise vllm_gpu_memory_utilization, or lower vllm_max_model_length"
        return [*found, Finding(ERROR, topic, text, remedy)]
    return [*found, Finding(OK, topic, text)]


def _disk(recipe: Recipe, stages: list[tuple]) -> list[Finding]:
    """Room for all that the stages keep on disk, against what is free there."""
    if not stages:
        return []
    needs: dict[str, float] = {}  # by folder
    parts: dict[str, list[str]] = {}
    found = []
    for stage, values, checkpoint, saved in stages:
        limit = values.get("save_total_limit")
        steps = whole(values.get("max_steps"), -1)
        every = float(values.get("save_steps") or 500)
        kept = whole(limit, 0) + 1  # the new one is written before the oldest goes
        if str(values.get("save_strategy", "steps")) == "no":
            kept = 0
        elif limit is None:
            kept = int(steps // every) if steps > 0 and every >= 1 else 10
            if checkpoint * kept > 10 * GIB:
                text = f"save_total_limit is not set: about {kept} checkpoints of {gib(checkpoint)}"
                found.append(Finding(WARNING, "disk", f"{stage}: {text}", "save_total_limit: 2"))
        evaluates = str(values.get("eval_strategy", "no")) not in ("no", "False")
        models = 2 if evaluates and stage == "grpo" else 1  # the last and the best
        folder = str(values.get("output_dir") or recipe.run)
        needs[folder] = needs.get(folder, 0) + checkpoint * kept + saved * models
        text = f"{stage}: {kept} checkpoints of {gib(checkpoint)} + {models} of {gib(saved)}"
        parts.setdefault(folder, []).append(text)
    runs_here = has_gpu() or all(is_on(values.get("use_cpu")) for _, values, *_ in stages)
    for folders in by_disk(needs):
        total, free = sum(needs[folder] for folder in folders), disk_free(folders[0])
        kept = ", ".join(text for folder in folders for text in parts[folder])
        text = f"{gib(total)} needed ({kept}), {gib(free)} free for {', '.join(folders)}"
        if total <= free:
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
    while not place.exists():
        place = place.parent
    return place


def by_disk(folders: Iterable[str]) -> list[list[str]]:
    """The folders in groups that share a file system."""
    groups: dict[int, list[str]] = {}
    for folder in folders:
        groups.setdefault(nearest(folder).stat().st_dev, []).append(folder)
    return list(groups.values())


def disk_free(folder: str) -> int:
    """Bytes that are free where a folder is, or will be."""
    return shutil.disk_usage(nearest(folder)).free


def has_gpu() -> bool:
    """Whether this machine has an NVIDIA GPU, and so may be the one that trains."""
    return Path("/proc/driver/nvidia").is_dir()
