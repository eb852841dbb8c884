"""Check batch arithmetic, steps against data, and the learning rate against the precision."""

import math
from pathlib import Path

from pipeline.settings import Settings
from stages.arguments import steps_per_epoch, steps_per_generation
from stages.precision import TOO_SMALL, trained_dtype
from stages.preflight.inputs import ERROR, OK, UNCHECKED, WARNING, Finding, Recipe
from stages.preflight.passes import SHARE, describe, update_of
from stages.trainer.logprobs import why_not_compared

# Share of bf16 weights N(0, 0.02) that AdamW's first step changes, by learning rate (measured,
# docs/precision.md); below the first nothing useful is learned, below the second much is lost.
LOST, LOSSY = 2e-6, 1e-5


def check_batches(recipe: Recipe) -> list[Finding]:
    """Check both training stages."""
    found, processes = [], recipe.args.gpus
    for stage in recipe.stages():
        values = recipe.settings[stage]
        rows, times = values.per_device_train_batch_size, values.gradient_accumulation_steps
        batch, unit = rows * times * processes, "rows" if stage == "sft" else "completions"
        text = f"{batch} {unit} an optimizer step = {rows} x {times} accumulated"
        found.append(Finding(OK, f"{stage}.yaml", f"{text} x {processes} processes"))
        is_sound = stage in recipe.parsed  # the numbers of a refused file would say little
        if is_sound and stage == "grpo":
            found += check_grpo(values, batch, processes)
            found.append(check_passes(recipe))
        elif is_sound and not values.packing:
            have = count_rows(values.train_file)
            each = max(1, math.ceil((have or 0) / batch))
            found += check_steps("sft.yaml", values, have, batch, each)
        dtype = trained_dtype(values.dtype, recipe.known_shape(stage))
        found.append(check_precision(stage, values, recipe.engine, dtype))
        found += check_saves(stage, values) if is_sound else []
    return found


def check_saves(stage: str, values: Settings) -> list[Finding]:
    """Check that a killed run has something to resume from."""
    if values.save_strategy != "no" and not values.save_only_model:
        return []
    key = "save_only_model: true" if values.save_only_model else "save_strategy: no"
    text = f"{key}: a killed run starts from scratch"
    return [Finding(WARNING, f"{stage}.yaml", text, "remove the key")]


def count_rows(path: str | None) -> int | None:
    """Count the rows of a built JSON-lines file; None where it is not there."""
    if not path or not Path(path).is_file():
        return None
    with Path(path).open("rb") as file:
        return sum(1 for line in file if line.strip())


def check_grpo(values: Settings, batch: int, processes: int) -> list[Finding]:
    """Check the generation batch, groups and steps of GRPO."""
    times, group = values.gradient_accumulation_steps, values.num_generations
    steps = steps_per_generation(values, processes)
    local = values.per_device_train_batch_size * steps
    prompts = local * processes // group
    text = (
        f"generated {local * processes:,} at a time: {prompts} prompts x {group}, {local // group} "
        f"whole groups in each process, optimizer steps from each: {steps / times:g}"
    )
    found = [Finding(OK, "grpo.yaml", text)]
    if (why := why_not_compared(values)) and values.guard_alignment != "off":
        text = f"guard_alignment is off: {why}"
        found.append(Finding(WARNING, "grpo.yaml", text, "set temperature: 1 to have it"))
    have = count_rows(values.train_file)
    if have is not None and have < prompts:
        text = f"{have} problems, but one generation batch takes {prompts}"
        remedy = "add problems, or lower per_device_train_batch_size or steps_per_generation"
        return [*found, Finding(ERROR, "grpo.yaml", text, remedy)]
    each = steps_per_epoch(values, have or 0, processes)
    return found + check_steps("grpo.yaml", values, have, batch / group, each)


def check_passes(recipe: Recipe) -> Finding:
    """Count the passes and tokens of the update; on a GPU more passes than TRL's cost time."""
    values, (work, trl) = recipe.settings["grpo"], update_of(recipe)
    text = f"{describe(values, work, trl)} (completions of {SHARE} of their limit)"
    if values.use_cpu or work.passes <= trl.passes:
        return Finding(OK, "grpo.yaml", text)
    return Finding(WARNING, "grpo.yaml", text, "update_tokens: auto makes TRL's passes")


def check_steps(
    topic: str, values: Settings, rows: int | None, batch: float, each: int
) -> list[Finding]:
    """Check the number of steps, and what is scheduled by them.

    Args:
        batch: rows of a step.
        each: steps of an epoch.
    """
    if rows is None:
        return [Finding(UNCHECKED, topic, f"steps: no {values.train_file}", "make data RECIPE=…")]
    steps = values.max_steps
    if steps <= 0:
        steps = math.ceil(each * values.num_train_epochs)
    text = (
        f"{rows:,} rows before any filter, {steps:,.0f} optimizer steps of {batch:g}: "
        f"{steps / each:.1f} epochs"
    )
    found = [Finding(OK, topic, text)]
    if steps < 10:
        found = [Finding(WARNING, topic, text, "lower gradient_accumulation_steps, or add epochs")]
    schedule = {
        "warmup_steps": (values.warmup_steps, "the learning rate never gets to its value"),
        "save_steps": (values.save_steps, "a run that is killed starts from the beginning"),
    }
    if values.eval_strategy != "no" and values.max_steps <= 0:  # else the stage refuses it
        schedule["eval_steps"] = (values.eval_steps or 0, "nothing is evaluated in training")
    for key, (value, why) in schedule.items():
        # Below 1 it is a share of the steps. A short run need not save.
        if 1 <= value >= steps and (key != "save_steps" or steps >= 200):
            text = f"{key}: {value:g} is not below the run's {steps:,.0f} steps: {why}"
            found.append(Finding(WARNING, topic, text, "lower it"))
    return found


def why_kept(values: Settings, engine: str, dtype: str) -> str | None:
    """What keeps small updates of the weights; None: 16-bit weights lose them."""
    if dtype == "float32":
        return "fp32 weights"
    if values.use_peft:
        return "LoRA's weights are fp32"
    if values.stochastic_rounding:
        return "stochastic rounding"
    if engine.startswith("zero"):
        return "DeepSpeed's fp32 master weights"
    if values.learning_rate >= LOSSY and dtype != "float16":
        return "large enough for bf16 weights"
    return None


def check_precision(stage: str, values: Settings, engine: str, dtype: str) -> Finding:
    """Find a learning rate whose updates bf16 weights round away, and fp16 weights.

    Args:
        dtype: of the weights that are trained, "" where it is not known.
    """
    topic, rate = f"{stage}.yaml", values.learning_rate
    kept = why_kept(values, engine, dtype)
    if kept:
        return Finding(OK, topic, f"learning_rate {rate:g}: updates are kept ({kept})")
    if dtype == "float16":
        text, _, remedy = TOO_SMALL.partition("; ")
        return Finding(ERROR, topic, f"dtype: {values.dtype}: {text}", remedy)
    text = (
        f"learning_rate {rate:g} with dtype: {values.dtype}: bf16 weights have 8 bits, so most "
        "updates of this size are lost (at 5e-7 1 % of the weights move, at 2e-5 30 %)"
    )
    remedy = "one of: stochastic_rounding: true; dtype: float32 with bf16: true; LORA=1"
    return Finding(ERROR if rate <= LOST else WARNING, topic, text, remedy)
