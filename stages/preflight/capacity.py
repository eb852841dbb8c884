"""Check that devices and disks hold what the plan says: training, vLLM engine, checkpoints."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from data_prep.config import UserError
from stages.preflight.findings import ERROR, OK, UNCHECKED, WARNING, Finding, from_error
from stages.preflight.inputs import Recipe
from stages.preflight.memory import (
    ASSUMED_PROMPT,
    GIB,
    Model,
    Part,
    Plan,
    build_step,
    checkpoint_bytes,
    completion_room,
    find_optimizer,
    generation_bytes,
    plan_engine,
    plan_step,
    prompt_room,
    read_model,
    weight_bytes,
)

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
        device = Device(recipe, stage, model, plan_step(step), longest.get(stage))
        found += device.check()
        disk.append((stage, *checkpoint_bytes(step)))
    return found + check_disk(recipe, disk)


class Device:
    """One GPU (or the CPU) in the update and in generation of a stage."""

    def __init__(
        self, recipe: Recipe, stage: str, model: Model, plan: Plan, longest: int | None
    ) -> None:
        self.stage, self.model, self.plan, self.longest = stage, model, plan, longest
        self.values, self.launch, self.topic = (
            recipe.settings[stage],
            recipe.launch,
            f"{stage} memory",
        )
        self.gpu = f"{self.launch.gpu_memory:g} GiB"
        self.limit = self.launch.gpu_memory * GIB

    def check(self) -> list[Finding]:
        """Check the peak of the update, then generation with or without a colocated engine."""
        values, plan, guess = self.values, self.plan, ""
        if self.stage == "grpo" and not self.longest and not values.max_prompt_length:
            guess = (
                f"; no prompt limit and no data: prompts of {ASSUMED_PROMPT:,} tokens are assumed"
            )
        if values.use_cpu:
            text = f"{gib(plan.peak)} of tensors at the peak ({plan.moment}), on a CPU{guess}"
            return [Finding(OK, self.topic, f"{text}\n{describe(plan)}")]
        engine = plan_engine(self.model, values, self.launch)
        share = engine.share if engine and not values.vllm_enable_sleep_mode else 0
        total = plan.peak + share + CONTEXT
        text = (
            f"{gib(total)} of {self.gpu} on each device at the peak of the update "
            f"({plan.moment}), {gib(CONTEXT)} for CUDA itself{guess}\n{describe(plan)}"
        )
        if share:
            text += f"\n  vLLM: {gib(share)} = vllm_gpu_memory_utilization x {self.gpu}"
        level = ERROR if total > self.limit else WARNING if total > NEAR * self.limit else OK
        remedy = self.remedy(bool(share)) if level != OK else ""
        found = [Finding(level, self.topic, text, remedy)]
        if engine:
            found += self.check_engine(engine)
        elif self.stage == "grpo" and not values.use_vllm:
            found.append(self.check_generation())
        return found

    def check_generation(self) -> Finding:
        """Check generation without vLLM."""
        size, formula = generation_bytes(
            self.model, self.values, self.longest, self.launch.processes
        )
        total = self.plan.states + size + CONTEXT
        text = f"generation without vLLM: {gib(size)} = {formula}; "
        text += f"{gib(total)} with weights and states"
        if total <= self.limit:
            return Finding(OK, self.topic, text)
        return Finding(ERROR, self.topic, text, "use_vllm: true, or lower steps_per_generation")

    def check_engine(self, engine: Any) -> list[Finding]:
        """Check that the colocated engine starts, and how many completions it writes at once."""
        found, values, states = [], self.values, self.plan.states
        if states + engine.share + CONTEXT > self.limit:
            text = (
                f"while vLLM generates: {gib(states)} of training states + {gib(engine.share)} "
                f"for it > {self.gpu}"
            )
            remedy = "lower vllm_gpu_memory_utilization, or vllm_mode: server"
            found.append(Finding(ERROR, self.topic, text, remedy))
        room, tokens = (
            prompt_room(values, self.longest) + completion_room(values),
            engine.tokens,
        )
        text = (
            f"vLLM: {gib(engine.share)} - {gib(engine.weights)} of weights = cache for "
            f"{max(0, tokens):,} tokens of {engine.token:,} B: "
            f"{max(0, tokens) // room} completions of {room:,} tokens at once"
        )
        if tokens >= max(room, values.vllm_max_model_length or 0):
            return [*found, Finding(OK, self.topic, text)]
        remedy = "raise vllm_gpu_memory_utilization, or lower vllm_max_model_length"
        return [*found, Finding(ERROR, self.topic, text, remedy)]

    def remedy(self, has_share: bool) -> str:
        """What lowers the largest parts, the cheapest first."""
        values, peak = self.values, self.plan.peak
        sizes = {part.name: part.bytes for part in self.plan.parts}
        work = sum(
            n for name, n in sizes.items() if name not in ("weights", "optimizer", "gradients")
        )
        rows = values.per_device_train_batch_size
        half = f"per_device_train_batch_size: {max(1, rows // 2)} and twice the accumulation"
        ways = {
            "vllm_enable_sleep_mode: true": has_share,
            "gradient_checkpointing: true": not values.gradient_checkpointing,
            "attn_implementation: flash_attention_2": sizes.get("attention masks", 0) > 0.05 * peak,
            half: rows > 1 and work > 0.2 * peak,
            "dtype: bfloat16 with stochastic_rounding: true":
                weight_bytes(values) == 4 and not values.use_peft,
            "use_peft: true": not values.use_peft,
            "more GPUS with ACCELERATE=zero3 or fsdp2": True,
        }  # fmt: skip
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
    needs: dict[str, float] = {}  # by folder
    parts: dict[str, list[str]] = {}
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
        has_best = values.eval_strategy != "no" and stage == "grpo"
        models = 2 if has_best else 1  # the last and the best
        folder = str(values.get("output_dir") or recipe.run)
        needs[folder] = needs.get(folder, 0) + checkpoint * kept + saved * models
        text = f"{stage}: {kept} checkpoints of {gib(checkpoint)} + {models} of {gib(saved)}"
        parts.setdefault(folder, []).append(text)
    runs_here = has_gpu() or all(recipe.settings[stage].use_cpu for stage, *_ in stages)
    for folders in by_disk(needs):
        total = sum(needs[folder] for folder in folders)
        free = shutil.disk_usage(nearest(folders[0])).free
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


def has_gpu() -> bool:
    """Whether this machine has an NVIDIA GPU, and so may be the one that trains."""
    return Path("/proc/driver/nvidia").is_dir()
