"""Estimate hours, tokens, GPU-hours and cost of each stage of a recipe before it starts.

    make plan RECIPE=grpo7b GPUS=1 PRICE=2.5
    python -m stages.preflight.plan --recipe configs/grpo7b --gpu a100 --step_seconds 14.2

It needs no weights, no data and no GPU: `roofline.py` computes the time of a token. Numbers that
are not known before a run are assumed, and listed below the table. A measured step, or the mean
length of completions in a log, replaces the assumption that matters most. The range is that of
published runs beside their plan.
"""

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.table import Table

from data_prep.builder.recipe import FILES
from pipeline.errors import UserError, run_cli, size
from pipeline.settings import Settings, parse, setting
from pipeline.values import Count, OneOf, Positive
from stages.arguments import keeps_old_logps, steps_per_epoch, steps_per_generation
from stages.preflight import roofline
from stages.preflight.batches import count_rows
from stages.preflight.capacity import (
    GIB,
    build_step,
    check_device,
    disk_bytes,
    gpu_need,
    longest_completion,
    pads,
    stage_shape,
)
from stages.preflight.inputs import ERROR, LACKING, OK, PreflightArguments, Recipe, read_recipe
from stages.preflight.passes import PROMPT, SHARE, count_update, describe, update_of
from stages.preflight.roofline import DEVICES, HIGH, LAUNCH, LOW, SYNC, Device, Model, read_model
from stages.preflight.step import Step

# Rows of the sets as published, where the data are not built; problems of the benchmarks.
ROWS = {
    "gsm8k": 7_473,
    "numinamath": 859_494,
    "math": 500,
    "aime": 30,
    "orz": 56_878,
    "dapo": 17_917,
    "areal_boba": 106_236,
    "deepmath": 103_022,
    "deepscaler": 40_315,
}
PROBLEMS = {"gsm8k": 1319, "math500": 500, "arc_challenge": 1172, "gpqa_diamond": 198}
FEW = 30  # problems of the other benchmarks: AIME, HMMT, BRUMO, CMIMC (40)
ALONE = 0.9  # of a GPU's memory that vLLM has where nothing trains beside it


@dataclass
class PlanArguments(PreflightArguments):
    """Keys of the command line: preflight's, and these."""

    gpu: Annotated[str, OneOf(tuple(DEVICES))] = setting("h100", f"the GPU: {', '.join(DEVICES)}")
    gpu_memory: Positive = setting(None, "memory of one GPU, GiB; by default that of `gpu`")
    price: Positive | None = setting(None, "of one GPU for one hour, in any currency")
    prompt_tokens: Count = setting(PROMPT, "mean length of a prompt")
    row_tokens: Count = setting(417, "mean length of an SFT row, prompt and solution")
    completion_tokens: Count | None = setting(
        None, f"of a completion; {SHARE} of the limit if unset"
    )
    step_seconds: Positive | None = setting(None, "measured seconds of one GRPO step, in its place")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gpu_memory is None:
            self.gpu_memory = DEVICES[self.gpu].memory


@dataclass(frozen=True)
class Stage:
    """One row of the table: wall seconds on all the GPUs; tokens generated and trained on."""

    name: str
    what: str
    seconds: float
    tokens: float


class Planner:
    """A recipe on so many GPUs of a kind."""

    def __init__(self, args: PlanArguments, recipe: Recipe) -> None:
        self.args, self.recipe = args, recipe
        self.gpu = replace(DEVICES[args.gpu], memory=args.gpu_memory)

    def stages(self) -> Iterator[Stage]:
        """The stages of the recipe, in the order of a run; a teacher's is not known here."""
        settings = self.recipe.settings
        plans = {
            "sft": self.plan_sft,
            "difficulty": self.plan_difficulty,
            "grpo": self.plan_grpo,
            "eval": self.plan_eval,
        }
        for name, plan in plans.items():
            if name in settings:
                yield plan(settings[name])

    def rows(self, kind: str, built: str | None) -> int:
        """Rows of the built file, or of the sources that data.yaml lists under `kind`."""
        if found := count_rows(built):
            return found
        if not (listed := self.listed(kind)):
            raise UserError(f"{kind}: {built} is not built, and its size is not known; make data")
        return listed

    def listed(self, kind: str) -> int:
        """Rows of the sources that data.yaml lists under `kind`, at most those of its mix."""
        data = self.recipe.settings.get("data", LACKING)
        sources = data.get(kind) or []
        size = sum(source.get("sample") or ROWS.get(source["name"], 0) for source in sources)
        return min(size, (data.get("mix") or {}).get(kind, {}).get("size", size))

    def completion(self, limit: int) -> float:
        return min(limit, self.args.completion_tokens or SHARE * limit)

    def plan_sft(self, values: Settings) -> Stage:
        """Rows times epochs through the model."""
        args = self.args
        model, distill = read_model(self.recipe.shape("sft")), self.recipe.settings.get("distill")
        kind, num_teachers = "sft", 1
        length: float = args.row_tokens
        if distill:  # traces, one of each problem and teacher at most
            name = Path(distill.problems_file).name
            kind = next((key for key in FILES if FILES[key] == name), "grpo")
            num_teachers = max(1, len(distill.teachers))
            length = args.prompt_tokens + self.completion(distill.max_new_tokens)
        rows = self.rows(kind, values.train_file) * num_teachers
        length = min(length, values.max_length or length)
        batch = values.per_device_train_batch_size
        tokens = rows * length * values.num_train_epochs
        if values.max_steps > 0:
            times = values.gradient_accumulation_steps * args.gpus
            tokens = values.max_steps * batch * times * length
        padded = tokens * (1 if values.packing else roofline.padding(batch)) / args.gpus
        passes = roofline.update_passes(values.gradient_checkpointing, not values.use_peft)
        seconds = roofline.pass_seconds(model, self.gpu, padded, length, passes)
        what = f"{rows:,} rows x {length:g} tokens x {values.num_train_epochs:g} epochs"
        return Stage("sft", what, seconds, tokens)

    def plan_difficulty(self, values: Settings) -> Stage:
        """Completions of every problem, once."""
        problems = self.rows("grpo", values.problems_file)
        return self.generate("difficulty", problems, values.num_samples, values)

    def plan_eval(self, values: Settings) -> Stage:
        """Every checkpoint on every task, sampled and greedy; official tasks greedy."""
        own = {"held_out": values.get("test_file"), "transfer": values.get("transfer_file")}
        kinds = {"held_out": "test", "transfer": "transfer"}
        sizes = [
            count_rows(own.get(name)) or self.listed(kinds.get(name, "")) or PROBLEMS.get(name, FEW)
            for name in values.tasks
        ]
        official = sum(PROBLEMS.get(name, FEW) for name in values.official)
        times = len(values.checkpoints)
        samples = values.num_samples + 1 + official / sum(sizes) if sizes else 1
        return self.generate("eval", times * (sum(sizes) or official), samples, values)

    def generate(self, stage: str, problems: int, samples: float, values: Settings) -> Stage:
        model, mean = read_model(self.recipe.shape("grpo")), self.completion(values.max_new_tokens)
        num = problems * samples
        each, prompt, longest = num / self.args.gpus, self.args.prompt_tokens, values.max_new_tokens
        if values.backend == "hf":
            rows = values.batch_size
            seconds = roofline.loop_seconds(model, self.gpu, each, rows, prompt, mean, longest)
        else:
            cache = roofline.cache_tokens(model, self.gpu, ALONE)
            seconds = roofline.generation_seconds(
                model, self.gpu, each, prompt, mean, longest, cache
            )
        what = f"{problems:,} problems x {samples:.3g} completions x {mean:,.0f} tokens"
        return Stage(stage, what, seconds, num * mean)

    def plan_grpo(self, values: Settings) -> Stage:
        """Generation batches, each with its passes and updates."""
        args, shape = self.args, self.recipe.shape("grpo")
        steps, times = values.max_steps, values.gradient_accumulation_steps
        batch = values.per_device_train_batch_size * times * args.gpus
        if steps <= 0:
            rows = self.rows("grpo", values.train_file)
            each = steps_per_epoch(values, rows, args.gpus)
            steps = math.ceil(each * values.num_train_epochs)
        served = steps_per_generation(values, args.gpus) * values.num_iterations / times
        local = batch / args.gpus * served / values.num_iterations
        longest = longest_completion(values, shape)
        mean = self.completion(longest)
        colocated = values.use_vllm and values.vllm_mode == "colocate"
        share = values.vllm_gpu_memory_utilization if colocated else ALONE
        lengths = args.prompt_tokens, mean, longest
        is_padded = pads(values, self.recipe.engine)
        parts = grpo_seconds(read_model(shape), self.gpu, values, local, *lengths, share, is_padded)
        seconds = args.step_seconds or sum(parts.values()) / served
        what = f"{steps:,} steps of {batch:,} x {mean:,.0f} tokens, {seconds:,.1f} s each"
        tokens = steps / served * local * args.gpus * mean
        tokens += steps * batch * (mean + args.prompt_tokens)
        return Stage("grpo", what, steps * seconds, tokens)


def grpo_seconds(
    model: Model,
    gpu: Device,
    values: Any,
    num: float,
    prompt: float,
    mean: float,
    longest: float,
    share: float,
    is_padded: bool = False,
) -> dict[str, float]:
    """Seconds of one generation batch, `num` completions a GPU: written, scored, trained on."""
    rows = values.per_device_train_batch_size
    if values.use_vllm:
        parallel = values.vllm_tensor_parallel_size
        cache = roofline.cache_tokens(model, gpu, share, parallel)
        generation = roofline.generation_seconds(
            model, gpu, num * parallel, prompt, mean, longest, cache, parallel
        )
    else:
        generation = roofline.loop_seconds(model, gpu, num, math.ceil(num), prompt, mean, longest)
    update = roofline.update_passes(values.gradient_checkpointing, not values.use_peft)
    num_micro_batches = max(1, round(num / rows))
    is_scored = keeps_old_logps(values, num_micro_batches) + (values.beta != 0)
    work, _ = count_update(values, round(num), prompt, mean, longest, is_padded)
    steps = num_micro_batches / values.gradient_accumulation_steps
    tokens = 1.1 * num * (prompt + mean) if values.update_tokens else steps * work.tokens
    # Long rows have more than their share of the tokens.
    computed = roofline.pass_seconds(model, gpu, tokens, prompt + 2 * mean, 1)
    one = max(computed, steps * work.passes * model.layers * LAUNCH)
    scoring, training = is_scored * one, values.num_iterations * update * one
    return {"generation": generation, "scoring": scoring, "update": training, "sync": SYNC}


def show(recipe: Recipe, stages: list[Stage], args: PlanArguments) -> None:
    """The table, its sum, and what was assumed."""
    table = Table(title=f"{args.recipe}: {args.gpus} x {args.gpu}", title_justify="left", box=None)
    heads = ["stage", "what", "hours", "range", "tokens, M", "GPU-hours"]
    if args.price:
        heads.append("cost")
    for head in heads:
        table.add_column(head, justify="left" if head in ("stage", "what") else "right")
    total = Stage("sum", "", sum(s.seconds for s in stages), sum(s.tokens for s in stages))
    for stage in [*stages, total]:
        hours = stage.seconds / 3600
        cells = [
            stage.name,
            stage.what,
            f"{hours:,.1f}",
            f"{LOW * hours:,.1f} to {HIGH * hours:,.1f}",
        ]
        cells += [f"{stage.tokens / 1e6:,.0f}", f"{hours * args.gpus:,.1f}"]
        if args.price:
            cells.append(f"{hours * args.gpus * args.price:,.0f}")
        table.add_row(*cells)
    console = Console(width=110)
    console.print(table)
    if needs := describe_sizes(recipe):
        console.print(needs, highlight=False)
    values = recipe.settings["grpo"]
    work = update_of(recipe, args.prompt_tokens, args.completion_tokens)
    console.print(describe(values, *work), highlight=False)
    notes = f"assumed: prompts of {args.prompt_tokens} tokens, SFT rows of {args.row_tokens}, "
    notes += f"completions of {args.completion_tokens or f'{SHARE} of their limit'}"
    notes += "; change them with completion_tokens=…; errors: docs/results/plan.md"
    if "distill" in recipe.settings:
        notes += "\nnot planned: distill, as the teacher's host is not known"
    console.print(notes, style="dim", highlight=False)
    for line in warnings(recipe):
        console.print(line, style="yellow", highlight=False)


def steps_of(recipe: Recipe) -> dict[str, Step]:
    """The worst step of each training stage, of rows as long as the recipe allows."""
    engine, gpus = recipe.engine, recipe.args.gpus
    return {
        stage: build_step(
            stage, stage_shape(recipe, stage), recipe.settings[stage], None, engine, gpus
        )
        for stage in recipe.stages()
    }


def describe_sizes(recipe: Recipe) -> str:
    """Memory and disk of the training stages; `make preflight` has each part."""
    peaks, disk, memory = [], 0.0, recipe.args.gpu_memory
    for stage, step in steps_of(recipe).items():
        values = recipe.settings[stage]
        peaks.append(f"{stage} {size(gpu_need(values, step, memory * GIB).total)}")
        disk += disk_bytes(stage, values, step)
    needs = f"memory of a GPU, of {memory:g} GiB: {', '.join(peaks)}"
    return f"{needs}; disk: {size(disk)}; parts: make preflight" if peaks else ""


def warnings(recipe: Recipe) -> list[str]:
    """One line for each stage that preflight finds too large for the GPU, or close to it."""
    found = []
    for stage, step in steps_of(recipe).items():
        for one in check_device(recipe, stage, step, None):
            if one.level != OK:
                text = one.text.partition("\n")[0]
                found.append(f"warning: {one.topic}: {text}; {one.remedy}")
    return found


def plan(args: PlanArguments) -> tuple[Recipe, list[Stage]]:
    """Plan one recipe; no stages where it trains on a CPU."""
    recipe, found = read_recipe(args)
    if fault := next((one for one in found if one.level == ERROR), None):
        raise UserError(f"{fault.topic}: {fault.text}; {fault.remedy or 'see make preflight'}")
    if not {"data", "grpo"} <= {*recipe.parsed}:
        raise UserError(f"{args.recipe}: has no data.yaml or no grpo.yaml; a plan needs both")
    if "model" in recipe.settings or recipe.settings["grpo"].use_cpu:
        return recipe, []
    return recipe, list(Planner(args, recipe).stages())


def main() -> None:
    """Plan one recipe and print the table."""
    (args,) = parse(__doc__, PlanArguments)
    recipe, stages = plan(args)
    if stages:
        show(recipe, stages, args)
    else:
        readme = f"{args.recipe}/README.md says how long it takes"
        sys.stdout.write(f"plan: {args.recipe} trains on a CPU: no GPU-hours to plan; {readme}\n")


if __name__ == "__main__":
    run_cli(main)
