"""Find what is wrong with a recipe before anything is paid for; seconds on a CPU.

    python -m stages.preflight --recipe configs/grpo7b --gpus 8 --accelerate zero2

Needs no weights, no network and no GPU. Each file is parsed exactly as its stage parses it; then
come batch arithmetic, tokenizer and template, lengths, memory (memory_plan.py), disk, ports
and packages. Everything is reported at once, each finding with what to change; the exit code is 2
where one is an error. docs/preflight.md lists the findings.
"""

import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_prep.build.data_arguments import DataArguments, check_data
from data_prep.build.recipe import TRAINING
from data_prep.config import UserError, own_fields, parse, read_yaml, run_cli
from data_prep.decontamination.benchmarks import BENCHMARKS
from eval.harness.arguments import EvalArguments
from stages.difficulty import DifficultyArguments
from stages.distill import DistillArguments
from stages.preflight.memory_recipe import Launch, is_on
from stages.preflight.preflight_findings import ERROR, OK, Finding, Recipe, fill, from_error
from stages.preflight.preflight_launch import check_launch, find_engine, read_launch
from stages.settings.arguments import (
    GrpoArguments,
    SftArguments,
    check_grpo_numbers,
    check_sft_keys,
)
from stages.tiny_model import ModelArguments


@dataclass
class PreflightArguments:
    """Keys of the command line; there is no YAML for this one."""

    recipe: str = field(metadata={"help": "the recipe's folder, such as configs/grpo7b"})
    run: str | None = field(
        default=None, metadata={"help": "folder of the stages' output; runs/<recipe> by default"}
    )
    gpus: int = field(default=1, metadata={"help": "training processes, one for each GPU"})
    accelerate: str | None = field(
        default=None, metadata={"help": "name of a file in configs/accelerate; ddp by default"}
    )
    gpu_memory: float = field(default=94.0, metadata={"help": "memory of one GPU, GiB"})
    tokenizer: str | None = field(
        default=None, metadata={"help": "folder with the tokenizer of the model, and its configs"}
    )
    data_root: str | None = field(
        default=None, metadata={"help": "folder of the raw data, where the data is not built"}
    )

    def __post_init__(self) -> None:
        if self.gpus < 1:
            raise ValueError(f"gpus: {self.gpus} must be at least 1")
        if self.gpu_memory <= 0:
            raise ValueError(f"gpu_memory: {self.gpu_memory} must be above 0, in GiB")
        for key in ("tokenizer", "data_root"):
            folder = getattr(self, key)
            if folder is not None and not Path(folder).is_dir():
                raise ValueError(f"{key}: {folder} is not a folder; name one, or leave it out")


# File -> (our dataclass, Hugging Face's, check that needs no input file).
STAGES: dict[str, tuple[type, tuple[str, ...], Callable | None]] = {
    "data.yaml": (DataArguments, (), check_data),
    "model.yaml": (ModelArguments, (), None),
    "sft.yaml": (SftArguments, ("SFTConfig", "ModelConfig"), check_sft_keys),
    "difficulty.yaml": (DifficultyArguments, (), None),
    "distill.yaml": (DistillArguments, (), None),
    "grpo.yaml": (GrpoArguments, ("GRPOConfig", "ModelConfig"), check_grpo_numbers),
    "eval.yaml": (EvalArguments, (), None),
}


def read_recipe(args: PreflightArguments) -> tuple[Recipe, list[Finding]]:
    """Read and parse the recipe's files; each that its stage would refuse gives a finding.

    Raises:
        UserError: the folder is none, or has no file of a stage.
    """
    folder = Path(args.recipe)
    if not folder.is_dir():
        known = ", ".join(sorted(p.parent.name for p in folder.parent.glob("*/data.yaml")))
        raise UserError(f"recipe: {folder} is not a folder; known recipes: {known or 'none'}")
    names = [name for name in STAGES if (folder / name).is_file()]
    if not names:
        raise UserError(
            f"{folder}: no YAML file is read by a stage; stages read {', '.join(STAGES)}"
        )
    run = args.run or f"runs/{folder.resolve().name}"
    accelerate = read_launch(args.accelerate, args.gpus)
    launch = Launch(args.gpus, find_engine(accelerate, args.gpus), args.gpu_memory)
    recipe = Recipe(
        folder, run, launch, accelerate, tokenizer=args.tokenizer, data_root=args.data_root
    )
    found = [
        Finding(ERROR, path.name, "is read by no stage", f"the stages read {', '.join(STAGES)}")
        for path in sorted(folder.glob("*.yaml"))
        if path.name not in STAGES
    ]
    for name in names:
        own, hf, check = STAGES[name]
        argv = ["--config", str(folder / name), "--run_dir", run]
        # A recipe for GPUs must be checkable on a machine that has none.
        argv += ["--use_cpu", "true", "--bf16", "false"] if hf else []
        try:
            recipe.values[name] = fill(read_yaml(str(folder / name)), run)
            recipe.parsed[name] = parse(__doc__, own, hf, check, argv)
        except UserError as error:
            found.append(from_error(name, error))
    if recipe.parsed:
        found.append(
            Finding(OK, "keys", f"{', '.join(recipe.parsed)}: every key is known and fits")
        )
    return recipe, found


def check_together(recipe: Recipe) -> list[Finding]:
    """What no stage sees alone: whether all grade alike, and whether benchmarks are trained on."""
    graded = {
        name: is_on(values.get("final_number"))
        for name, values in recipe.values.items()
        if "final_number" in own_fields(STAGES[name][0])
    }
    found = []
    if len(set(graded.values())) > 1:
        stages = ", ".join(f"{name} {str(on).lower()}" for name, on in graded.items())
        text = f"final_number: {stages}"
        remedy = "pass rates, reward and evaluation must grade alike"
        found.append(Finding(ERROR, "grading", text, remedy))
    if "data.yaml" in recipe.parsed and "eval.yaml" in recipe.parsed:
        found += check_contamination(recipe.parsed["data.yaml"][0], recipe.parsed["eval.yaml"][0])
    return found


def check_contamination(data: DataArguments, evaluation: EvalArguments) -> list[Finding]:
    """Benchmarks whose problems may be in the training data, unknown to anyone."""
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


def attempt(topic: str, check: Callable, *args: Any) -> list[Finding]:
    """A check's findings; of a value that it cannot work with, that."""
    try:
        return check(*args)
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
        text = f"cannot be checked: {type(error).__name__}: {error}"
        return [Finding(ERROR, topic, text, "correct the value; other findings may name its key")]


def inspect(args: PreflightArguments) -> tuple[Recipe, list[Finding]]:
    """All findings on a recipe."""
    from stages.preflight import preflight_host, preflight_lengths, preflight_tokens
    from stages.preflight.preflight_batch import check_batches
    from stages.preflight.preflight_inputs import check_inputs, check_lora, check_problems
    from stages.preflight.preflight_memory import check_memory, contexts

    recipe, found = read_recipe(args)
    found += check_together(recipe)
    found += attempt("launch", check_launch, recipe)
    found += attempt("inputs", check_inputs, recipe)
    found += attempt("inputs", check_problems, recipe)
    found += attempt("LoRA", check_lora, recipe)
    found += attempt("batches", check_batches, recipe)
    context = contexts(recipe)
    found += attempt("limits", preflight_lengths.check_limits, recipe, context)
    tokenizer, problems = preflight_tokens.load(recipe)
    found += problems
    lengths: dict[str, Any] = {}
    if tokenizer is not None:
        checks = attempt("tokenizer", preflight_tokens.check_tokenizer, recipe, tokenizer)
        found += checks
        if not any(one.level == ERROR and one.topic in ("tokenizer", "template") for one in checks):
            lengths, problems = preflight_lengths.safe_measure(recipe, tokenizer)
            found += problems or attempt(
                "lengths", preflight_lengths.check_lengths, recipe, lengths, context
            )
    found += attempt("memory", check_memory, recipe, preflight_lengths.longest(lengths))
    found += attempt("ports", preflight_host.check_ports, recipe)
    found += preflight_host.check_versions(recipe)
    # What a file's own stage refuses is found again by what looks deeper, maybe with a remedy.
    said = {(one.level, one.topic, one.text) for one in found if one.remedy}
    found = [one for one in found if one.remedy or (one.level, one.topic, one.text) not in said]
    return recipe, list(dict.fromkeys(found))


def main() -> None:
    """Check one recipe, show what was found."""
    os.environ["HF_HUB_OFFLINE"] = "1"  # never wait for a network; read when it is first imported
    (args,) = parse(__doc__, PreflightArguments)
    for name in ("torchao", "torch.utils._pytree"):  # they warn of kernels for other GPUs
        logging.getLogger(name).setLevel(logging.ERROR)
    recipe, found = inspect(args)

    from stages.preflight.preflight_page import show

    show(recipe, found)
    if any(one.level == ERROR for one in found):
        sys.exit(2)


if __name__ == "__main__":
    run_cli(main)
