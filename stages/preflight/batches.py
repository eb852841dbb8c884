"""Check batch arithmetic, steps against data, and the learning rate against the precision."""

import math
from pathlib import Path

from data_prep.config import Settings
from stages.arguments import steps_per_generation
from stages.preflight.findings import ERROR, OK, UNCHECKED, WARNING, Finding
from stages.preflight.inputs import Recipe
from stages.preflight.needs import weight_bytes

# Share of bf16 weights N(0, 0.02) that AdamW's first step changes, by learning rate (measured,
# docs/recipes.md); below the first nothing useful is learned, below the second much is lost.
LOST, LOSSY = 2e-6, 1e-5


def check_batches(recipe: Recipe) -> list[Finding]:
    """Check both training stages."""
    found = []
    for stage in recipe.stages():
        values = recipe.settings[stage]
        if stage in recipe.parsed:  # the numbers of a refused file would say little
            found += (_sft if stage == "sft" else _grpo)(values, recipe.launch.processes)
        found.append(check_precision(stage, values, recipe.launch.engine))
    return found


def count_rows(path: str | None) -> int | None:
    """Count the rows of a built JSON-lines file; None where it is not there."""
    if not path or not Path(path).is_file():
        return None
    with Path(path).open("rb") as file:
        return sum(1 for line in file if line.strip())


def _effective(values: Settings, processes: int) -> tuple[int, str]:
    rows, times = values.per_device_train_batch_size, values.gradient_accumulation_steps
    text = f"{rows} x {times} accumulated"
    if processes > 1:
        text += f" x {processes} processes; {rows * times} on one"
    return rows * times * processes, text


def _sft(values: Settings, processes: int) -> list[Finding]:
    batch, text = _effective(values, processes)
    unit = "packed rows" if values.packing else "examples"
    found = [Finding(OK, "sft.yaml", f"effective batch {batch} {unit} = {text}")]
    rows = count_rows(values.get("train_file"))
    if rows is None:
        text = f"steps: {values.get('train_file')} is not built"
        return [*found, Finding(UNCHECKED, "sft.yaml", text, "make data")]
    if values.packing:
        return found
    steps = values.max_steps
    if steps <= 0:
        steps = math.ceil(rows / batch) * values.num_train_epochs
    text = f"{rows:,} rows, {steps:,.0f} optimizer steps, {steps * batch / rows:.1f} epochs"
    if steps < 10:
        remedy = f"a batch of {max(1, rows // 100)} gives 100 steps an epoch"
        found.append(Finding(WARNING, "sft.yaml", text, remedy))
    else:
        found.append(Finding(OK, "sft.yaml", text))
    return found + _schedule("sft.yaml", values, steps)


def _grpo(values: Settings, processes: int) -> list[Finding]:
    batch, text = _effective(values, processes)
    rows, times = values.per_device_train_batch_size, values.gradient_accumulation_steps
    group, steps = values.num_generations, steps_per_generation(values, processes)
    local = rows * steps
    prompts = local * processes // group
    text = (
        f"{batch} completions an optimizer step = {text}; generated {local * processes:,} at a "
        f"time: {prompts} prompts x {group}, {local // group} whole groups in each process, "
        f"optimizer steps from each: {steps / times:g}"
    )
    found = [Finding(OK, "grpo.yaml", text)]
    if values.max_mean_ratio is not None and times % (steps * values.num_iterations) == 0:
        text = (
            f"max_mean_ratio: {values.max_mean_ratio} can drop nothing: each generation batch is "
            "used up in one optimizer step, so the importance ratio is 1"
        )
        remedy = f"steps_per_generation: {4 * times} gives four optimizer steps to each"
        found.append(Finding(WARNING, "grpo.yaml", text, remedy))
    found.append(_groups(values.curriculum, group))
    have = count_rows(values.get("train_file"))
    if have is None:
        text = f"epochs: {values.get('train_file')} is not built"
        return [*found, Finding(UNCHECKED, "grpo.yaml", text, "make data")]
    if have < prompts:
        text = f"{have} problems, but one generation batch takes {prompts}"
        remedy = "add problems, or lower per_device_train_batch_size or steps_per_generation"
        return [*found, Finding(ERROR, "grpo.yaml", text, remedy)]
    each, total = batch / group, values.max_steps
    if total <= 0:
        total = have / each * values.num_train_epochs
    text = f"{have:,} problems before curriculum and prompt limit, {total:,.0f} steps of {each:g}"
    found.append(Finding(OK, "grpo.yaml", f"{text} prompts: {total * each / have:.1f} epochs"))
    return found + _schedule("grpo.yaml", values, total)


def uniform_share(rate: float, group: int) -> float:
    """Chance that a group of `group` rollouts, each right at `rate`, is all right or all wrong."""
    return rate**group + (1 - rate) ** group


def _groups(mode: str, group: int) -> Finding:
    rates = (0.5, 0.8, 0.95)
    shares = ", ".join(f"{uniform_share(rate, group):.0%} at pass rate {rate:g}" for rate in rates)
    text = f"groups of {group} without a signal, by chance: {shares}; curriculum: {mode}"
    if mode == "off" and uniform_share(0.8, group) > 0.25:
        remedy = "num_generations: 8 or more, or curriculum: offline or predictive"
        return Finding(WARNING, "grpo.yaml", text, remedy)
    return Finding(OK, "grpo.yaml", text)


def _schedule(topic: str, values: Settings, steps: float) -> list[Finding]:
    """Warm-up, saving and evaluation against the run's steps; below 1 they are shares of them."""
    schedule = {
        "warmup_steps": (values.warmup_steps, "the learning rate never gets to its value"),
        "save_steps": (values.save_steps, "a run that is killed starts from the beginning"),
    }
    if values.eval_strategy != "no":
        schedule["eval_steps"] = (values.eval_steps or 0, "nothing is evaluated in training")
    found = []
    for key, (value, why) in schedule.items():
        at = value * steps if value < 1 else value
        if at >= steps and at:
            text = f"{key}: {value:g} is not below the run's {steps:,.0f} steps: {why}"
            is_short = key == "save_steps" and steps < 200
            level, remedy = (OK, "") if is_short else (WARNING, "lower it")
            found.append(Finding(level, topic, text, remedy))
    return found


def check_precision(stage: str, values: Settings, engine: str) -> Finding:
    """Find a learning rate whose updates bf16 weights round away."""
    topic = f"{stage}.yaml"
    rate = values.learning_rate
    keeps = (
        "fp32 weights" if weight_bytes(values) == 4 else
        "LoRA's weights are fp32" if values.use_peft else
        "stochastic rounding" if values.stochastic_rounding else
        "DeepSpeed's fp32 master weights" if engine.startswith("zero") else
        ""
    )  # fmt: skip
    if keeps:
        return Finding(OK, topic, f"learning_rate {rate:g}: updates are kept ({keeps})")
    if rate >= LOSSY:
        return Finding(OK, topic, f"learning_rate {rate:g} in bf16 weights, large enough")
    text = (
        f"learning_rate {rate:g} with dtype: {values.dtype}: weights in bf16 alone have 8 "
        "bits, most updates of this size are lost (at 5e-7 1 % of the weights move, at 2e-5 30 %)"
    )
    remedy = "stochastic_rounding: true, dtype: float32 with bf16: true, ACCELERATE=zero2, or LoRA"
    return Finding(ERROR if rate <= LOST else WARNING, topic, text, remedy)
