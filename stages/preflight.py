"""Check every YAML of a recipe without weights, data or network; seconds on a CPU.

    python -m stages.preflight --recipe configs/grpo7b

Each file is parsed exactly as its stage parses it (unknown keys, types, TRL's own checks, batch
arithmetic); only the tests for input files that an earlier stage will write are left out. Then
follows what no stage can see alone: whether all of them grade alike.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_prep.benchmarks import BENCHMARKS
from data_prep.config import UserError, parse, run_cli
from data_prep.data_arguments import DataArguments, check_data
from data_prep.difficulty import DifficultyArguments
from data_prep.distill import DistillArguments
from data_prep.recipe import TRAINING
from eval.arguments import EvalArguments
from stages.arguments import GrpoArguments, SftArguments, check_grpo_numbers, check_sft_keys
from stages.tiny_model import ModelArguments


@dataclass
class PreflightArguments:
    """Keys of the command line; there is no YAML for this one."""

    recipe: str = field(metadata={"help": "the recipe's folder, such as configs/grpo7b"})


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


def check_recipe(folder: Path) -> list[str]:
    """Parse the recipe's files; returns those found. Raises `UserError` on the first fault."""
    if not folder.is_dir():
        known = ", ".join(sorted(p.parent.name for p in folder.parent.glob("*/data.yaml")))
        raise UserError(f"recipe: {folder} is not a folder; known recipes: {known or 'none'}")
    found = [name for name in STAGES if (folder / name).is_file()]
    unknown = [p.name for p in folder.glob("*.yaml") if p.name not in STAGES]
    if unknown or not found:
        raise UserError(
            f"{folder}: {unknown[0] if unknown else 'no YAML file'} is read by no stage; "
            f"the stages read {', '.join(STAGES)}"
        )
    final_number: dict[str, bool] = {}
    parsed: dict[str, Any] = {}
    for name in found:
        own, hf, check = STAGES[name]
        argv = ["--config", str(folder / name)]
        # A recipe for GPUs must be checkable on a machine that has none.
        argv += ["--use_cpu", "true", "--bf16", "false"] if hf else []
        args = parsed[name] = parse(__doc__, own, hf, check, argv)[0]
        if hasattr(args, "final_number"):
            final_number[name] = args.final_number
    if len(set(final_number.values())) > 1:
        stages = ", ".join(f"{name} {str(on).lower()}" for name, on in final_number.items())
        raise UserError(
            f"final_number: {folder}: {stages}; pass rates, reward and evaluation must grade alike"
        )
    if "data.yaml" in parsed and "eval.yaml" in parsed:
        check_contamination(parsed["data.yaml"], parsed["eval.yaml"], folder)
    return found


def check_contamination(data: DataArguments, evaluation: EvalArguments, folder: Path) -> None:
    """Refuse benchmarks whose problems may be in the training data, unknown to anyone."""
    trained = {source["name"] for key in TRAINING for source in getattr(data, key)}
    checked = {*data.decontaminate, *data.decontaminate_if_found}
    unchecked = [task for task in evaluation.tasks if task in BENCHMARKS and task not in checked]
    if trained - {"synthetic"} and unchecked:
        raise UserError(
            f"{folder}: eval.yaml scores {', '.join(unchecked)}, and data.yaml does not keep their "
            f"problems out of the training sets; add to decontaminate: {', '.join(unchecked)}"
        )


def main() -> None:
    """Check one recipe and say what was checked."""
    (args,) = parse(__doc__, PreflightArguments)
    found = check_recipe(Path(args.recipe))
    sys.stdout.write(f"check: {args.recipe}: {', '.join(found)} are sound\n")


if __name__ == "__main__":
    run_cli(main)
