"""What results depend on, as hashes: checkpoint and engine, a task's data, the grader."""

from pathlib import Path
from typing import Any

from data_prep import manifest
from data_prep.benchmarks import find_benchmark_file
from data_prep.engines.hashes import hash_checkpoint, hash_engine, hash_files, installed
from eval.arguments import EvalArguments
from eval.datasets import find_official
from eval.suite import FOLDER, read_metadata, read_official_metadata

HERE, GRADER = Path(__file__).parent, Path(manifest.__file__).parent
SCORING_PACKAGES = ("lm-eval", "math-verify")
# A change in these changes scores: old results are stale, the stored completions are not.
SCORING_CODE = [
    *sorted(FOLDER.glob("*.yaml")),
    *(HERE / name for name in ("bootstrap.py", "datasets.py", "metrics.py", "outcomes.py")),
    *(HERE / name for name in ("parser_process.py", "scores.py", "scoring.py")),
    *(HERE / name for name in ("stored_lm.py", "suite.py")),
    *(
        GRADER / name
        for name in (
            "answers.py", "benchmarks.py", "builders.py", "extraction.py", "json_rows.py",
            "kinds.py", "lenient.py", "prompts.py", "raw_files.py", "reading.py", "rollouts.py",
            "schema.py",
        )
    ),
    *sorted(GRADER.glob("grading_*.py")),
    *sorted(GRADER.glob("equivalence/*.py")),
    *sorted(GRADER.glob("sources/*.py")),
]  # fmt: skip
SETTINGS = (
    "tasks", "official", "official_chat_template", "system_prompt", "backend", "num_samples",
    "temperature", "top_p", "max_new_tokens", "final_number", "dtype", "seed", "limit",
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
        "code": f"{hash_files(SCORING_CODE)} {installed(SCORING_PACKAGES)}",
        "settings": {key: getattr(args, key) for key in SETTINGS},
    }
