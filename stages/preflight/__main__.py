"""Find the mistakes of a recipe before anything starts, in seconds on a CPU.

    python -m stages.preflight --recipe configs/grpo7b --gpus 8 --accelerate zero2

It needs no weights, no network and no GPU. Each file is parsed exactly as its stage parses it. Then
batch arithmetic, tokenizer and template, lengths, memory and disk are checked, and the training
stages are rehearsed. All findings are
shown at once, each with its remedy. The exit code is 2 if one is an error.
docs/preflight.md lists the findings.
"""

import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from data_prep.builder.recipe import TRAINING
from data_prep.decontamination.benchmarks import BENCHMARKS
from pipeline.errors import UserError, run_cli
from pipeline.key_types import own_keys
from pipeline.settings import parse
from stages.preflight import batches, capacity, inputs, lengths, tokenizer
from stages.preflight.inputs import (
    ERROR,
    OK,
    UNCHECKED,
    WARNING,
    Finding,
    Recipe,
    attempt,
    from_error,
)
from stages.preflight.rehearsal import is_off, origin, rehearse
from stages.run.launch import asked_engine, launch_environment

STYLES = {ERROR: "bold red", WARNING: "yellow", UNCHECKED: "cyan", OK: "green"}  # worst first
WIDTH = 120  # columns, also where the terminal is wider or is a file


def check_grading(recipe: Recipe) -> list[Finding]:
    """Find stages that grade by different rules."""
    graded = {
        f"{stage}.yaml": values.final_number
        for stage, values in recipe.settings.items()
        if "final_number" in own_keys(inputs.KEYS_OF[stage][0])
    }
    if len({*graded.values()}) < 2:
        return []
    text = ", ".join(f"{file} {str(on).lower()}" for file, on in graded.items())
    remedy = "pass rates, reward and evaluation must grade alike"
    return [Finding(ERROR, "grading", f"final_number: {text}", remedy)]


def check_contamination(recipe: Recipe) -> list[Finding]:
    """Find scored benchmarks whose problems may be in the training data."""
    if not {"data", "eval"} <= {*recipe.parsed}:
        return []
    data, evaluation = recipe.settings["data"], recipe.settings["eval"]
    trained = {source["name"] for key in TRAINING for source in getattr(data, key)}
    checked = {*data.decontaminate, *data.decontaminate_if_found}
    unchecked = [task for task in evaluation.tasks if task in BENCHMARKS and task not in checked]
    if trained - {"synthetic"} and unchecked:
        names = ", ".join(unchecked)
        text = f"eval.yaml scores {names}, whose problems data.yaml does not keep out of training"
        return [Finding(ERROR, "contamination", text, f"add to decontaminate: {names}")]
    return [Finding(OK, "contamination", "every scored benchmark is kept out of the training data")]


def check_rehearsal(recipe: Recipe) -> Iterator[Finding]:
    """Find what shows as the training stages are built narrow and take a step on a CPU."""
    trained = {stage: recipe.settings[stage] for stage in recipe.stages() if stage in recipe.parsed}
    engine = asked_engine(launch_environment(recipe.accelerate, recipe.args.gpus))
    models = {stage: origin(recipe.settings, stage, recipe.run) for stage in trained}
    result = rehearse(trained, models, recipe.args.gpus, engine)
    for level, lines in ((ERROR, result.faults), (WARNING, result.notes)):
        for line in lines:
            file, _, fault = line.partition(": ")
            is_made = not fault.startswith("not rehearsed")
            yield from_error(file, UserError(fault), level if is_made else UNCHECKED)
    if trained and not (result.faults or result.notes or is_off()):
        names = ", ".join(f"{stage}.yaml" for stage in trained)
        yield Finding(OK, "rehearsal", f"{names}: a step, a save and a resume on the CPU")


def inspect(args: inputs.PreflightArguments) -> tuple[Recipe, list[Finding]]:
    """Find all that is wrong with a recipe."""
    recipe, found = inputs.read_recipe(args)
    for topic, check in (
        ("grading", check_grading),
        ("contamination", check_contamination),
        ("inputs", inputs.check_inputs),
        ("distill.yaml", inputs.check_teachers),
        ("sft.yaml", inputs.check_held_out_rows),
        ("grpo.yaml", inputs.check_problems),
        ("packages", inputs.check_installed),
        ("grpo.yaml", inputs.check_server),
        ("batches", batches.check_batches),
        ("limits", lengths.check_limits),
    ):
        found += attempt(topic, check, recipe)
    longest: dict[str, int] = {}
    loaded, problems = tokenizer.load(recipe)
    found += problems
    if loaded is not None:
        checks = attempt("tokenizer", tokenizer.check_tokenizer, recipe, loaded)
        found += checks
        if not any(one.level == ERROR and one.topic in ("tokenizer", "template") for one in checks):
            found += attempt("data", lengths.check_lengths, recipe, loaded, longest)
    found += attempt("limits", lengths.check_samples, recipe, longest)
    found += attempt("memory", capacity.check_memory, recipe, longest)
    told = {one.text for one in found}
    rehearsed = attempt("rehearsal", check_rehearsal, recipe)
    return recipe, found + [one for one in rehearsed if one.text not in told]


def show(heading: str, found: list[Finding]) -> None:
    """Print a heading, one row for each finding, the worst last, and a line that counts them."""
    console = Console(width=min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns))
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for one in sorted(found, key=lambda one: -list(STYLES).index(one.level)):
        text = Text(one.text)
        if one.remedy:
            text.append(f"\n→ {one.remedy}", "bold")
        table.add_row(Text(one.level, STYLES[one.level]), one.topic, text)
    counts = Counter(one.level for one in found)
    told = ", ".join(f"{level} {counts[level]}" for level in STYLES if counts[level])
    console.print(Text(heading, "bold"))
    console.print(table)
    console.print(Text(f"preflight: {told}", "bold"))


def main() -> None:
    """Check one recipe, show what was found."""
    os.environ["HF_HUB_OFFLINE"] = "1"  # never wait for a network; read when it is first imported
    (args,) = parse(__doc__, inputs.PreflightArguments)
    recipe, found = inspect(args)
    engine = "" if recipe.engine == "none" else f", {recipe.engine}"
    show(f"{args.recipe}: GPUs {args.gpus}{engine}, {args.gpu_memory:g} GiB each", found)
    if any(one.level == ERROR for one in found):
        sys.exit(2)


if __name__ == "__main__":
    run_cli(main)
