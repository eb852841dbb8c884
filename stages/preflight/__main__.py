"""Find what is wrong with a recipe before anything is paid for; seconds on a CPU.

    python -m stages.preflight --recipe configs/grpo7b --gpus 8 --accelerate zero2

Needs no weights, no network and no GPU. Each file is parsed exactly as its stage parses it; then
come batch arithmetic, tokenizer and template, lengths, memory, disk, ports and packages. Everything
is reported at once, each finding with what to change; the exit code is 2 where one is an error.
docs/preflight.md lists the findings.
"""

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_prep.build.recipe import TRAINING
from data_prep.config import Settings, UserError, own_keys, parse, run_cli
from data_prep.decontamination.benchmarks import BENCHMARKS
from stages.preflight import batches, capacity, inputs, launch, lengths, tokenizer
from stages.preflight.findings import ERROR, OK, Finding, attempt, from_error, show
from stages.preflight.inputs import STAGES, Recipe
from stages.preflight.needs import Launch


def _key(default: Any, text: str) -> Any:
    """A key and its line of `--help`."""
    return field(default=default, metadata={"help": text})


@dataclass
class PreflightArguments:
    """Keys of the command line; there is no YAML for this one."""

    recipe: str = field(metadata={"help": "the recipe's folder, such as configs/grpo7b"})
    run: str | None = _key(None, "folder of the stages' output; runs/<recipe> by default")
    gpus: int = _key(1, "training processes, one for each GPU")
    accelerate: str | None = _key(None, "name of a file in configs/accelerate; ddp by default")
    gpu_memory: float = _key(94.0, "memory of one GPU, GiB")
    tokenizer: str | None = _key(None, "folder with the model's tokenizer and configs")
    data_root: str | None = _key(None, "folder of the raw data, where the data is not built")
    overlay: str | None = _key(None, "YAML over sft.yaml and grpo.yaml, as configs/lora.yaml")

    def __post_init__(self) -> None:
        if self.gpus < 1:
            raise ValueError(f"gpus: {self.gpus} must be at least 1")
        if self.gpu_memory <= 0:
            raise ValueError(f"gpu_memory: {self.gpu_memory} must be above 0, in GiB")
        for key in ("tokenizer", "data_root"):
            folder = getattr(self, key)
            if folder is not None and not Path(folder).is_dir():
                raise ValueError(f"{key}: {folder} is not a folder; name one, or leave it out")


def check_grading(recipe: Recipe) -> list[Finding]:
    """Find stages that grade by different rules."""
    graded = {
        f"{stage}.yaml": values.final_number
        for stage, values in recipe.settings.items()
        if "final_number" in own_keys(STAGES[stage][0])
    }
    if len({*graded.values()}) < 2:
        return []
    text = ", ".join(f"{file} {str(on).lower()}" for file, on in graded.items())
    remedy = "pass rates, reward and evaluation must grade alike"
    return [Finding(ERROR, "grading", f"final_number: {text}", remedy)]


def check_contamination(data: Settings, evaluation: Settings) -> list[Finding]:
    """Find scored benchmarks whose problems may be in the training data."""
    trained = {source["name"] for key in TRAINING for source in getattr(data, key)}
    checked = {*data.decontaminate, *data.decontaminate_if_found}
    unchecked = [task for task in evaluation.tasks if task in BENCHMARKS and task not in checked]
    if trained - {"synthetic"} and unchecked:
        names = ", ".join(unchecked)
        text = (
            f"eval.yaml scores {names}, and data.yaml does not keep their problems out of training"
        )
        return [Finding(ERROR, "contamination", text, f"add to decontaminate: {names}")]
    return [Finding(OK, "contamination", "every scored benchmark is kept out of the training data")]


def inspect(args: PreflightArguments) -> tuple[Recipe, list[Finding]]:
    """Find all that is wrong with a recipe."""
    accelerate = inputs.read_launch(args.accelerate, args.gpus)
    engine = inputs.find_engine(accelerate, args.gpus)
    recipe, found = inputs.read_recipe(
        Path(args.recipe), args.run, Launch(args.gpus, engine, args.gpu_memory),
        args.overlay, accelerate=accelerate, tokenizer=args.tokenizer, data_root=args.data_root,
    )  # fmt: skip
    found += check_grading(recipe)
    if {"data", "eval"} <= {*recipe.parsed}:
        found += check_contamination(recipe.settings["data"], recipe.settings["eval"])
    found += attempt("inputs", inputs.check_inputs, recipe)
    found += attempt("grpo.yaml", inputs.check_problems, recipe)
    found += attempt("LoRA", inputs.check_lora, recipe)
    found += attempt("batches", batches.check_batches, recipe)
    positions = recipe.positions()
    found += attempt("limits", lengths.check_limits, recipe, positions)

    measured: dict[str, dict[str, list[int]]] = {}
    loaded, problems = tokenizer.load(recipe)
    found += problems
    if loaded is not None:
        checks = attempt("tokenizer", tokenizer.check_tokenizer, recipe, loaded)
        found += checks
        if not any(one.level == ERROR and one.topic in ("tokenizer", "template") for one in checks):
            try:
                measured = lengths.measure(recipe, loaded)
                found += attempt("lengths", lengths.check_lengths, recipe, measured, positions)
            except UserError as error:
                found.append(from_error("data", error))
    longest = {stage: max(lengths.row_lengths(parts)) for stage, parts in measured.items()}

    found += attempt("memory", capacity.check_memory, recipe, longest)
    found += attempt("ports", launch.check_ports, recipe)
    found += launch.check_versions(recipe)
    return recipe, found


def main() -> None:
    """Check one recipe, show what was found."""
    os.environ["HF_HUB_OFFLINE"] = "1"  # never wait for a network; read when it is first imported
    (args,) = parse(__doc__, PreflightArguments)
    recipe, found = inspect(args)
    processes = "1 process" if args.gpus == 1 else f"{args.gpus} processes"
    engine = "" if recipe.launch.engine == "none" else f", {recipe.launch.engine}"
    show(f"{args.recipe}: {processes}{engine}, {args.gpu_memory:g} GiB a GPU", found)
    if any(one.level == ERROR for one in found):
        sys.exit(2)


if __name__ == "__main__":
    run_cli(main)
