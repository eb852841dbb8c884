"""Preflight: batch arithmetic, steps against data, learning rate against precision."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from data_prep.config import UserError
from stages.preflight.memory_recipe import is_on, weight_bytes
from stages.preflight.preflight_findings import (
    ERROR,
    OK,
    UNCHECKED,
    WARNING,
    Finding,
    Recipe,
    from_error,
    whole,
)
from stages.settings.arguments import check_batch

# Share of bf16 weights N(0, 0.02) that AdamW's first step changes, by learning rate (measured,
# docs/recipes.md); below the first nothing useful is learned, below the second much is lost.
LOST, LOSSY = 2e-6, 1e-5
STEADY = "under {} start the stage with --dtype float32 --stochastic_rounding false"


def check_batches(recipe: Recipe) -> list[Finding]:
    """Findings on both training stages."""
    found = []
    for stage in recipe.stages():
        values = recipe.values[f"{stage}.yaml"]
        try:
            found += (_sft if stage == "sft" else _grpo)(recipe, values)
            found += _precision(f"{stage}.yaml", values, recipe)
        except (TypeError, ValueError) as error:
            if f"{stage}.yaml" in recipe.parsed:
                raise
            # Its own finding says what is wrong with the file.
            found.append(Finding(UNCHECKED, f"{stage}.yaml", f"batch arithmetic: {error}"))
    return found


def count_rows(path: str | None) -> int | None:
    """Rows of a built JSON-lines file, or None where it is not there."""
    if not path or not Path(path).is_file():
        return None
    with Path(path).open("rb") as file:
        return sum(1 for line in file if line.strip())


def _effective(values: dict[str, Any], processes: int) -> tuple[int, str]:
    rows = whole(values.get("per_device_train_batch_size"), 8)
    times = whole(values.get("gradient_accumulation_steps"), 1)
    if processes == 1:
        return rows * times, f"{rows} x {times} accumulated"
    alone = f"{rows} x {times} accumulated x {processes} processes; {rows * times} on one"
    return rows * times * processes, alone


def _sft(recipe: Recipe, values: dict[str, Any]) -> list[Finding]:
    batch, text = _effective(values, recipe.launch.processes)
    unit = "packed rows" if is_on(values.get("packing")) else "examples"
    found = [Finding(OK, "sft.yaml", f"effective batch {batch} {unit} = {text}")]
    rows = count_rows(values.get("train_file"))
    max_steps = whole(values.get("max_steps"), -1)
    epochs = float(values.get("num_train_epochs") or 3)
    if rows is None:
        text = f"steps: {values.get('train_file')} is not built"
        return [*found, Finding(UNCHECKED, "sft.yaml", text, "make data")]
    if unit == "packed rows":
        return found
    steps = max_steps if max_steps > 0 else math.ceil(rows / batch) * epochs
    text = f"{rows:,} rows, {steps:,.0f} optimizer steps, {steps * batch / rows:.1f} epochs"
    level = WARNING if steps < 10 else OK
    remedy = f"a batch of {max(1, rows // 100)} gives 100 steps an epoch" if level != OK else ""
    found.append(Finding(level, "sft.yaml", text, remedy))
    return found + _schedule("sft.yaml", values, steps)


def _grpo(recipe: Recipe, values: dict[str, Any]) -> list[Finding]:
    processes = recipe.launch.processes
    try:
        check_batch(values, processes)
    except UserError as error:
        found = from_error("grpo.yaml", error)
        return [replace(found, remedy=found.remedy or "generation_batch_size: a multiple of that")]
    batch, text = _effective(values, processes)
    rows = whole(values.get("per_device_train_batch_size"), 8)
    times = whole(values.get("gradient_accumulation_steps"), 1)
    group = whole(values.get("num_generations"), 8)
    generated = values.get("generation_batch_size")
    steps = whole(values.get("steps_per_generation"), times)
    if generated is not None:
        steps = whole(generated, 0) // (rows * processes)
    local = rows * steps
    prompts = local * processes // group
    found = [
        Finding(
            OK,
            "grpo.yaml",
            f"{batch} completions an optimizer step = {text}; generated {local * processes:,} at a "
            f"time: {prompts} prompts x {group}, {local // group} whole groups in each process, "
            f"optimizer steps from each: {steps / times:g}",
        )
    ]
    uses = steps * whole(values.get("num_iterations"), 1)
    if values.get("max_mean_ratio") is not None and times % uses == 0:
        found.append(
            Finding(
                WARNING,
                "grpo.yaml",
                f"max_mean_ratio: {values['max_mean_ratio']} can drop nothing: each generation "
                "batch is used up in one optimizer step, so the importance ratio is 1",
                f"steps_per_generation: {4 * times} gives four optimizer steps to each",
            )
        )
    found += _groups(values, group)
    have = count_rows(values.get("train_file"))
    max_steps = whole(values.get("max_steps"), -1)
    if have is None:
        text = f"epochs: {values.get('train_file')} is not built"
        return [*found, Finding(UNCHECKED, "grpo.yaml", text, "make data")]
    if have < prompts:
        text = f"{have} problems, but one generation batch takes {prompts}"
        remedy = "add problems, or lower per_device_train_batch_size or steps_per_generation"
        return [*found, Finding(ERROR, "grpo.yaml", text, remedy)]
    each = batch / group
    total = max_steps if max_steps > 0 else have / each * float(values.get("num_train_epochs") or 3)
    text = f"{have:,} problems before curriculum and prompt limit, {total:,.0f} steps of {each:g}"
    found.append(Finding(OK, "grpo.yaml", f"{text} prompts: {total * each / have:.1f} epochs"))
    return found + _schedule("grpo.yaml", values, total)


def uniform_share(rate: float, group: int) -> float:
    """Chance that a group of `group` rollouts, each right at `rate`, is all right or all wrong."""
    return rate**group + (1 - rate) ** group


def _groups(values: dict[str, Any], group: int) -> list[Finding]:
    shares = ", ".join(
        f"{uniform_share(rate, group):.0%} at pass rate {rate:g}" for rate in (0.5, 0.8, 0.95)
    )
    mode = values.get("curriculum") or "off"
    text = f"groups of {group} without a signal, by chance: {shares}; curriculum: {mode}"
    if mode == "off" and uniform_share(0.8, group) > 0.25:
        remedy = "num_generations: 8 or more, or curriculum: offline or predictive"
        return [Finding(WARNING, "grpo.yaml", text, remedy)]
    return [Finding(OK, "grpo.yaml", text)]


def _schedule(topic: str, values: dict[str, Any], steps: float) -> list[Finding]:
    """Warm-up, saving and evaluation against the run's steps; below 1 they are shares of them."""
    found = []
    for key, default, why, remedy in (
        ("warmup_steps", 0, "the learning rate never gets to its value", "lower it"),
        ("save_steps", 500, "a run that is killed starts anew", "lower it"),
        ("eval_steps", 0, "nothing is evaluated in training", "lower it"),
    ):
        if key == "eval_steps" and str(values.get("eval_strategy", "no")) in ("no", "False"):
            continue
        value = float(values.get(key) or default)
        at = value * steps if value < 1 else value
        if at >= steps and at:
            text = f"{key}: {value:g} is not below the run's {steps:,.0f} steps: {why}"
            level = OK if key == "save_steps" and steps < 200 else WARNING
            found.append(Finding(level, topic, text, remedy if level == WARNING else ""))
    return found


def _precision(topic: str, values: dict[str, Any], recipe: Recipe) -> list[Finding]:
    """A learning rate whose updates bf16 weights round away."""
    rate = float(values.get("learning_rate") or (2e-5 if topic == "sft.yaml" else 1e-6))
    engine = recipe.launch.engine
    if is_on(values.get("stochastic_rounding")) and engine not in ("none", "ddp"):
        text = f"stochastic_rounding: true has no effect under {engine}, which has its own weights"
        return [Finding(ERROR, topic, text, STEADY.format(engine))]
    keeps = (
        "fp32 weights" if weight_bytes(values) == 4 else
        "LoRA's weights are fp32" if is_on(values.get("use_peft")) else
        "stochastic rounding" if is_on(values.get("stochastic_rounding")) else
        "DeepSpeed's fp32 master weights" if engine.startswith("zero") else
        ""
    )  # fmt: skip
    if keeps:
        return [Finding(OK, topic, f"learning_rate {rate:g}: updates are kept ({keeps})")]
    if rate >= LOSSY:
        return [Finding(OK, topic, f"learning_rate {rate:g} in bf16 weights, large enough")]
    text = (
        f"learning_rate {rate:g} with dtype: {values.get('dtype')}: weights in bf16 alone have 8 "
        "bits, most updates of this size are lost (at 5e-7 1 % of the weights move, at 2e-5 30 %)"
    )
    remedy = "stochastic_rounding: true, dtype: float32 with bf16: true, ACCELERATE=zero2, or LoRA"
    return [Finding(ERROR if rate <= LOST else WARNING, topic, text, remedy)]
