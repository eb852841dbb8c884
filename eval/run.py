"""Evaluate every checkpoint of a run on the held-out problems, with the same settings for all.

    python -m eval.run --config configs/tiny-cpu/eval.yaml [--run_dir runs/tiny-cpu]

Reads the data stage's `test.jsonl` and the checkpoints; for each checkpoint lm-evaluation-harness
runs the tasks of `eval/tasks/` (one greedy completion per problem, and k sampled ones), and
`<output_dir>/<name>/` gets `scores.json` and `completions.jsonl`. A checkpoint whose files, test
file, settings and grader are unchanged is not evaluated again. `manifest.json` comes last;
`eval.report` reads it all.

Differs from the harness's own command line: the prompt is the training prompt to the token, the
verdict is the reward's verdict, and the model's shipped sampling defaults do not leak in.
"""

import hashlib
import json
import logging
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

from data_prep import manifest
from data_prep.checkpoints import is_hub_id
from data_prep.config import parse, run_cli
from eval.arguments import EvalArguments, check_inputs, split_checkpoints

TASKS = {"greedy": "math_greedy", "sampled": "math_sampled"}  # our mode: the harness task's name
TASK_FOLDER = Path(__file__).parent / "tasks"
GRADER_FOLDER = Path(manifest.__file__).parent
# A change in any of these changes scores, so old results are stale.
CODE = [
    *sorted(TASK_FOLDER.glob("*.yaml")),
    *(Path(__file__).with_name(name) for name in ("scoring.py", "model.py")),
    *(
        GRADER_FOLDER / name
        for name in ("answers.py", "extraction.py", "prompts.py", "rollouts.py")
    ),
    *sorted(GRADER_FOLDER.glob("grading_*.py")),
    *sorted(GRADER_FOLDER.glob("equivalence/*.py")),
]
MODEL_FILES = (
    "*.safetensors", "*config.json", "tokenizer*", "chat_template*", "vocab*", "merges.txt",
)  # fmt: skip
SETTINGS = (
    "num_samples", "temperature", "top_p", "max_new_tokens", "batch_size", "final_number", "dtype",
    "seed", "limit",
)  # fmt: skip


def main() -> None:
    (args,) = parse(__doc__, EvalArguments, check=check_inputs)
    started = manifest.start(args.output_dir)
    checkpoints = split_checkpoints(args.checkpoints)
    evaluated, prints = [], {}
    for name, path in checkpoints.items():
        folder = Path(args.output_dir) / name
        prints[name] = fingerprint(path, args)
        if is_current(folder, prints[name]):
            sys.stdout.write(f"{name}: already evaluated with the same inputs, kept\n")
            continue
        evaluate_checkpoint(name, path, args, folder, prints[name])
        evaluated.append(name)

    scores = {name: read_scores(Path(args.output_dir) / name) for name in checkpoints}
    first = next(iter(scores.values()))
    manifest.write(
        args.output_dir,
        "eval",
        asdict(args),
        inputs={args.test_file: manifest.sha256(args.test_file)}
        | {path: prints[name]["checkpoint"] for name, path in checkpoints.items()},
        counts={"problems": first["num_problems"], "completions": first["num_completions"]},
        started=started,
        evaluated=evaluated,
    )
    seconds = time.time() - started
    sys.stdout.write(
        f"eval: {len(checkpoints)} checkpoints ({len(evaluated)} now, in {seconds:.0f} s) on "
        f"{first['num_problems']} problems of {args.test_file}, {first['num_completions']} "
        f"completions each; results in {args.output_dir}/\n"
    )


def evaluate_checkpoint(
    name: str, path: str, args: EvalArguments, folder: Path, prints: dict
) -> None:
    """Run both tasks on one checkpoint and write its `completions.jsonl`, then `scores.json`."""
    quiet()
    import lm_eval
    import lm_eval.api.task
    from transformers import set_seed

    from eval.model import load_model, tokenizer_path

    lm_eval.api.task.tqdm = lambda items, **_: items  # its bar for building prompts, over at once
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "scores.json").unlink(missing_ok=True)
    started = time.time()
    tasks = load_tasks(args, tokenizer_path(path))
    model = load_model(path, name, args.dtype, args.batch_size)
    set_seed(args.seed)
    # One iteration switches standard errors on; those of means are exact and need no bootstrap.
    results = lm_eval.evaluate(model, tasks, limit=args.limit, bootstrap_iters=1)

    rows = completion_rows(results["samples"])
    write_jsonl(folder / "completions.jsonl", rows)
    seconds = time.time() - started
    value = {
        "checkpoint": path,
        "fingerprint": prints,
        "settings": {key: getattr(args, key) for key in SETTINGS},
        "num_problems": len(results["samples"][TASKS["greedy"]]),
        "num_completions": len(rows),
        "num_tokens": sum(row["num_tokens"] for row in rows),
        "wall_time_s": round(seconds, 1),
        "scores": {mode: metrics(results, task) for mode, task in TASKS.items()},
    }
    manifest.write_json(folder / "scores.json", value)


def load_tasks(args: EvalArguments, tokenizer: str) -> dict:
    """The harness tasks of `eval/tasks/` with the run's settings."""
    from lm_eval.tasks import TaskManager

    metadata = {  # load_rows gets these
        "test_file": args.test_file,
        "tokenizer": tokenizer,
        "final_number": args.final_number,
    }
    manager = TaskManager(include_path=TASK_FOLDER, include_defaults=False, metadata=metadata)
    loaded = manager.load(list(TASKS.values()))
    greedy, sampled = (loaded["tasks"][name] for name in TASKS.values())
    length = {"max_gen_toks": args.max_new_tokens}
    sampling = {"temperature": args.temperature, "top_p": args.top_p}
    greedy.set_config("generation_kwargs", length, update=True)
    sampled.set_config("generation_kwargs", length | sampling, update=True)
    sampled.set_config("repeats", args.num_samples)
    return loaded


def metrics(results: dict, task: str) -> dict[str, dict]:
    """`{metric: {"value", "stderr", "n"}}` of one task; n problems, stderr None for one problem."""
    found = {}
    for key, value in results["results"][task].items():
        metric, _, filter_name = key.partition(",")
        if filter_name != "none" or metric.endswith("_stderr") or metric == "completions":
            continue
        stderr = results["results"][task][f"{metric}_stderr,none"]
        found[metric] = {
            "value": float(value),
            "stderr": None if stderr == "N/A" else float(stderr),
            "n": len(results["samples"][task]),
        }
    return found


def completion_rows(samples: dict[str, list[dict]]) -> list[dict]:
    """One row per completion: the problem, which sample of which mode, and its record."""
    return [
        {key: sample["doc"][key] for key in ("id", "source", "level", "answer")}
        | {"mode": mode, "sample": number}
        | record
        for mode, task in TASKS.items()
        for sample in samples[task]
        for number, record in enumerate(sample["completions"])
    ]


def write_jsonl(path: Path, rows: list[dict]) -> None:
    """Write JSON lines so that a reader sees the old file or the whole new one."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    partial.replace(path)


def hash_files(paths: list[Path]) -> str:
    """One SHA-256 over the names and contents of files."""
    return hashlib.sha256(
        "".join(f"{path.name} {manifest.sha256(path)}\n" for path in paths).encode()
    ).hexdigest()


def hash_checkpoint(path: str) -> str:
    """Hash of a checkpoint's weights, configuration and tokenizer; of an adapter's base too.

    A hub id is its own hash: the hub's files are taken to stay as they are.
    """
    if is_hub_id(path) or not Path(path).is_dir():
        return f"hub:{path}"
    digest = hash_files(sorted({f for kind in MODEL_FILES for f in Path(path).glob(kind)}))
    adapter = Path(path) / "adapter_config.json"
    if not adapter.is_file():
        return digest
    base = json.loads(adapter.read_text(encoding="utf-8"))["base_model_name_or_path"]
    return f"{digest} on {hash_checkpoint(base)}"


def fingerprint(path: str, args: EvalArguments) -> dict:
    """Everything a checkpoint's scores depend on; equal fingerprints mean equal results."""
    return {
        "checkpoint": hash_checkpoint(path),
        "test_file": manifest.sha256(args.test_file),
        "code": hash_files(CODE),
        "settings": {key: getattr(args, key) for key in SETTINGS},
    }


def is_current(folder: Path, wanted: dict) -> bool:
    """Whether the folder holds finished results of exactly these inputs."""
    return (folder / "scores.json").is_file() and read_scores(folder)["fingerprint"] == wanted


def read_scores(folder: Path) -> dict:
    return json.loads((folder / "scores.json").read_text(encoding="utf-8"))


def quiet() -> None:
    """Leave the harness's progress bar and errors on the terminal, and nothing else."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    logging.getLogger("lm_eval").setLevel(logging.ERROR)


if __name__ == "__main__":
    run_cli(main)
