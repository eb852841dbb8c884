"""What results depend on, as hashes: checkpoint and engine, a task's data, the grader."""

from pathlib import Path
from typing import Any

from data_prep import manifest
from data_prep.decontamination.benchmarks import find_benchmark_file
from data_prep.sampling.hashes import hash_checkpoint, hash_engine, hash_package, installed
from eval.harness.datasets import find_official
from eval.harness.settings import EvalArguments
from eval.harness.suite import FOLDER, read_metadata, read_official_metadata

# A change in these changes scores: old results are stale, the stored completions are not.
SCORING_PACKAGES = (Path(manifest.__file__).parent, Path(__file__).parent, FOLDER)
SCORING_LIBRARIES = ("lm-eval", "math-verify")
SETTINGS = (
    "tasks", "official", "official_chat_template", "system_prompt", "answer_form", "backend",
    "num_samples", "temperature", "top_p", "max_new_tokens", "final_number", "dtype", "seed",
    "limit",
)  # fmt: skip


def hash_data(args: EvalArguments) -> dict[str, str]:
    """For each task its problems' origin: `{file: hash}`, and hub ids as they are."""
    found = {}
    for task in args.tasks:
        metadata = read_metadata(task)
        if task == "held_out":
            found[args.test_file] = manifest.sha256(args.test_file)
        elif args.data_root:
            path = find_benchmark_file(metadata["files"], args.data_root)
            found[str(path)] = manifest.sha256(path)
        else:
            found[metadata["hub"]] = "hub"
    for task in args.official:
        for metadata in read_official_metadata(task).values():
            if args.data_root is None:
                found[metadata["hub"]] = "hub"
                continue
            paths = find_official(metadata["hub"], metadata["files"], args.data_root)
            found |= {str(path): manifest.sha256(path) for path in paths.values()}
    return found


def fingerprint(path: str, args: EvalArguments) -> dict[str, Any]:
    """Everything a checkpoint's scores depend on; equal fingerprints mean equal results."""
    return {
        "checkpoint": hash_checkpoint(path, "checkpoints"),
        "engine": hash_engine(args.backend, args.dtype),
        "data": hash_data(args),
        "code": f"{hash_package(*SCORING_PACKAGES)} {installed(SCORING_LIBRARIES)}",
        "settings": {key: getattr(args, key) for key in SETTINGS},
    }
