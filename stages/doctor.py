"""Print what a run depends on: versions, devices, disk, the recipe and how far its run is.

    python -m stages.doctor --recipe configs/grpo7b

Paste it into an issue, or compare two hosts. It prints no token, no password and no path of a home
folder, and reads no weights.
"""

import os
import platform
import shutil
import sys
from pathlib import Path

import psutil

from grading.worker import count_cpus
from pipeline import manifest
from pipeline.console import quiet
from pipeline.errors import UserError, nearest, run_cli, size
from pipeline.folders import folders_in
from pipeline.settings import RecipeArguments, parse
from stages.run.removal import checkpoints

OPTIONAL = (
    "flash-attn",
    "kernels",
    "liger-kernel",
    "vllm",
    "deepspeed",
    "wandb",
    "trackio",
    "mlflow",
    "swanlab",
)
# Variables that change what a run does, and whose values are no secret.
SHOWN = (
    "CUDA_VISIBLE_DEVICES",
    "HF_HUB_OFFLINE",
    "OMP_NUM_THREADS",
    "PYTORCH_ALLOC_CONF",
    "WORLD_SIZE",
)


def devices() -> str:
    """The accelerators, or that there are none."""
    import torch

    if not torch.cuda.is_available():
        return "no GPU that torch can use"
    found = [torch.cuda.get_device_properties(n) for n in range(torch.cuda.device_count())]
    names = [f"{gpu.name} ({size(gpu.total_memory)})" for gpu in found]
    return f"{', '.join(names)}; CUDA {torch.version.cuda}"


def disk(folder: str) -> str:
    """Free and total space where a folder is, or will be."""
    usage = shutil.disk_usage(nearest(folder))
    return f"{size(usage.free)} of {size(usage.total)} free at {folder}"


def progress(run: str) -> str:
    """The stages of a run that are finished, and the last checkpoints of those that are not."""
    found = []
    for folder in (path for path in folders_in(Path(run)) if "." not in path.name):
        steps = [*checkpoints(folder)]
        try:
            made = manifest.read(folder)
        except UserError as error:
            found.append(f"{folder.name}: {error}")
            continue
        if made:
            found.append(f"{folder.name} finished")
        elif steps:
            found.append(f"{folder.name} at checkpoint-{max(steps)}")
    return ", ".join(found) or "nothing yet"


def examine(args: RecipeArguments) -> dict[str, str]:
    """What is printed, by topic."""
    if not Path(args.recipe).is_dir():
        raise UserError(f"recipe: {args.recipe} is not a folder; name one of configs/")
    extras = manifest.versions(OPTIONAL)
    memory = size(psutil.virtual_memory().total)
    return {
        "commit": manifest.git_commit() or "unknown",
        "python": f"{platform.python_version()}, {platform.system()} {platform.machine()}",
        "packages": ", ".join(map(" ".join, manifest.versions().items())),
        "models": "are for transformers 5; version 4 misreads some settings without an error",
        "optional": ", ".join(f"{name} {extras.get(name, 'missing')}" for name in OPTIONAL),
        "processor": f"{count_cpus()} cores, {memory} of memory",
        "devices": devices(),
        "disk": disk(args.run),
        "variables": ", ".join(f"{n}={os.environ[n]}" for n in SHOWN if n in os.environ) or "none",
        "recipe": ", ".join(sorted(path.name for path in Path(args.recipe).glob("*.yaml"))),
        "run": progress(args.run),
    }


def main() -> None:
    """Print what was found."""
    (args,) = parse(__doc__, RecipeArguments)
    quiet()
    for topic, text in examine(args).items():
        sys.stdout.write(f"{topic:10} {text}\n")


if __name__ == "__main__":
    run_cli(main)
