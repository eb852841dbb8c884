"""Evaluate every checkpoint of a run on every task, with the same settings for all.

    python -m eval.run --config configs/tiny-cpu/eval.yaml [--run_dir runs/tiny-cpu]
    accelerate launch -m eval.run --config configs/grpo7b/eval.yaml

For each checkpoint lm-evaluation-harness runs the think-aware tasks of `eval/tasks/`, with one
greedy completion for each problem and with k samples, then the official tasks. A folder
`<output_dir>/<name>/` gets `scores.json` and `completions.parquet`, and every finished sample in
`samples/`: an evaluation that was killed resumes where it stopped. Results of a checkpoint are kept
while its files, data, settings and the grader are unchanged. Results of other settings, problems or
weights are kept in `<output_dir>.1/` and so on. `manifest.json` comes last. The report is made of
these files.

The harness's own command line differs: here the prompt is the training prompt to the token, the
verdict is the reward's, and the sampling defaults that a model ships are not used.
"""

import sys
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from data_prep.decontamination.benchmarks import find_benchmark
from data_prep.sampling.hashes import hash_checkpoint, hash_engine, installed
from data_prep.sampling.keys import check_sampling
from data_prep.sampling.problems import load_engine
from data_prep.sampling.store import Processes, SampleStore
from data_prep.schema import grader_files, read_problems
from eval.harness import score, suite
from eval.harness.settings import EvalArguments, check_inputs, split_checkpoints
from eval.harness.superseded import RESULTS, check_model, difference, keep
from pipeline import json_files, manifest
from pipeline.console import notice, quiet, quiet_harness
from pipeline.errors import run_cli
from pipeline.folders import check_output
from pipeline.launched import in_launch
from pipeline.lock import claim
from pipeline.models.checkpoints import tokenizer_path
from pipeline.settings import Settings, build, parse
from pipeline.stages import ROOT, STAGES

# A change in these changes scores: old results are stale, the stored completions are not.
SCORING_CODE = [ROOT / name for name in STAGES["eval"].code]
SCORING_LIBRARIES = ("lm-eval", "math-verify")
TaskResult = tuple[str, str, dict[str, Any], list[dict]]  # benchmark, mode, metrics, rows
SETTINGS = (
    "tasks",
    "official",
    "prompt",
    "answer_form",
    "backend",
    "num_samples",
    "temperature",
    "top_p",
    "max_new_tokens",
    "final_number",
    "dtype",
    "seed",
    "limit",
    "vllm_max_model_length",
)


def main() -> None:
    (args,) = parse(__doc__, EvalArguments, check=check_settings, owns="output_dir")
    processes = Processes.from_environment()
    started = time.time()
    if processes.is_main:
        Path(args.output_dir).mkdir(parents=True, exist_ok=True)
        if args.samples_dir:  # another list of tasks may be scored meanwhile
            check_output(args.samples_dir, "samples_dir")
            claim(args.samples_dir)
    checkpoints = split_checkpoints(args.checkpoints)
    fingerprints, is_kept, superseded = {}, {}, {}
    for name, path in checkpoints.items():
        found = processes.ask_main(partial(look_up, name, path, args))
        fingerprints[name], is_kept[name], difference_to_old = found
        if difference_to_old:
            superseded[name] = difference_to_old
    evaluated = []
    for name, path in checkpoints.items():
        if not is_kept[name]:
            evaluate_checkpoint(name, path, args, fingerprints[name], superseded, processes)
            superseded.pop(name, None)
            evaluated.append(name)
        elif processes.is_main:
            sys.stdout.write(f"{name}: already evaluated with the same inputs, kept\n")
    if processes.is_main:
        first = next(iter(checkpoints))
        scores = read_scores(Path(args.output_dir) / first)
        counts = {key: scores[f"num_{key}"] for key in ("problems", "completions")}
        inputs = {path: fingerprints[name]["checkpoint"] for name, path in checkpoints.items()}
        manifest.write(
            args.output_dir,
            "eval",
            asdict(args),
            fingerprints[first]["data"] | inputs,
            counts,
            started,
            [f"{name}/{file}" for name in checkpoints for file in RESULTS],
            evaluated=evaluated,
            code=fingerprints[first]["code"],
        )
        noun = "checkpoint" if len(checkpoints) == 1 else "checkpoints"
        tasks = ", ".join([*args.tasks, *(f"official {task}" for task in args.official)])
        sys.stdout.write(
            f"eval: {len(checkpoints)} {noun} ({len(evaluated)} now, in "
            f"{time.time() - started:.0f} s) on {counts['problems']:,} problems of {tasks}, "
            f"{counts['completions']:,} completions each; results in {args.output_dir}/\n"
        )
    processes.meet()  # the main process holds the others' key-value store


def check_settings(settings: Settings) -> None:
    """Check the problems and checkpoints of a recipe, before torch is imported."""
    check_sampling(settings)
    check_inputs(*build(settings, EvalArguments))


def look_up(name: str, path: str, args: EvalArguments) -> tuple[dict[str, Any], bool, str]:
    """What a checkpoint's results depend on, and what its folder holds.

    Returns:
        The fingerprint, whether the folder holds the results of just that, and in what results of
        another evaluation that it holds differ ("": in nothing, or there are none).
    """
    folder, found = Path(args.output_dir) / name, fingerprint(path, args)
    try:
        old = read_scores(folder)
    except (FileNotFoundError, ValueError):  # damaged: the samples are there, scoring is cheap
        return found, False, ""
    check_model(name, path, old, found)
    return found, is_current(folder, found), difference(old["fingerprint"], found)


def evaluate_checkpoint(
    name: str,
    path: str,
    args: EvalArguments,
    fingerprint: dict[str, Any],
    superseded: dict[str, str],
    processes: Processes,
) -> None:
    """Run all tasks on one checkpoint; write `completions.parquet`, then `scores.json`.

    `superseded`: checkpoints whose earlier results are to be kept, this one's or later ones', and
    why.
    """
    quiet()
    started, folder = time.time(), Path(args.output_dir) / name
    engine = load_engine(path, "checkpoints", args, processes.local_rank)
    model = f"{fingerprint['checkpoint']} {fingerprint['engine']}"
    samples = Path(args.samples_dir or folder / "samples")
    store = SampleStore(samples, model, processes.rank, context=engine.max_length)
    try:
        tasks, rows = run_tasks(name, path, args, engine, store, processes)
    finally:
        store.close()
        engine.close()
    if not processes.is_main:
        return
    # Now, and not before: a mistake that shows on the way costs no earlier result.
    keep(args.output_dir, superseded)
    for old in (folder.parent / manifest.NAME, folder / "scores.json"):
        old.unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    score.write_parquet(folder / "completions.parquet", rows)
    manifest.write_json(
        folder / "scores.json",
        {
            "checkpoint": path,
            "fingerprint": fingerprint,
            "settings": fingerprint["settings"],
            "num_problems": sum(
                max(mode["num_problems"] for mode in modes.values()) for modes in tasks.values()
            ),
            "num_completions": sum(row["completion"] is not None for row in rows),
            "num_tokens": sum(row.get("num_tokens") or 0 for row in rows),
            "wall_time_s": round(time.time() - started, 1),
            "tasks": tasks,
        },
    )


def run_tasks(
    name: str, path: str, args: EvalArguments, engine: Any, store: SampleStore, processes: Processes
) -> tuple[dict[str, dict[str, dict]], list[dict]]:
    """Run the harness on every task in every mode.

    Returns:
        `{task: {mode: metrics}}` and the rows of `completions.parquet`; empty outside of main.
    """
    from eval.harness.cached_lm import CachedLM

    quiet_harness()
    metadata = args.problem_keys() | {"tokenizer": tokenizer_path(path)}
    results: list[TaskResult] = []
    if args.tasks:
        for mode in suite.MODES if args.num_samples else suite.MODES[:1]:
            lm = CachedLM(engine, store, processes, f"{name} {mode}", args.seed)
            results += run_think_tasks(mode, args, metadata, lm, processes)
    if args.official:
        lm = CachedLM(engine, store, processes, f"{name} official", args.seed)
        results += run_official_tasks(name, args, metadata, lm, processes)
    tasks: dict[str, dict[str, dict]] = {}
    for benchmark, mode, metrics, _ in results:
        tasks.setdefault(benchmark, {})[mode] = metrics
    return tasks, [row for *_, rows in results for row in rows]


def run_think_tasks(
    mode: str, args: EvalArguments, metadata: dict[str, Any], lm: Any, processes: Processes
) -> list[TaskResult]:
    """Run the think-aware tasks in one mode."""
    generation: dict[str, Any] = {"max_gen_toks": args.max_new_tokens}
    num_samples = 1
    if mode == "sampled":
        generation |= {"do_sample": True, "temperature": args.temperature, "top_p": args.top_p}
        num_samples = args.num_samples
    loaded = suite.load_think_tasks(args.tasks, metadata, generation, num_samples)
    results = run_harness(loaded, lm, args.limit)
    if not processes.is_main:
        return []
    rows = {task: score.think_rows(task, mode, results["samples"][task]) for task in args.tasks}
    return [(task, mode, score.think_metrics(rows[task], mode), rows[task]) for task in args.tasks]


def run_official_tasks(
    name: str, args: EvalArguments, metadata: dict[str, Any], lm: Any, processes: Processes
) -> list[TaskResult]:
    """Run the harness's own tasks; tell what keeps a score low that is not the model's fault."""
    loaded, stopped = suite.load_official_tasks(args.official, metadata)
    results = run_harness(loaded, lm, args.limit)
    if not processes.is_main:
        return []
    if stopped:
        notice(
            f"{name}: the harness's parsers were stopped on {len(stopped)} completions of "
            "official tasks; they score 0"
        )
    if any(lm.cut.values()):
        counts = ", ".join(f"{task} {len(lm.cut[task]):,}" for task in loaded if lm.cut[task])
        remedy = "raise vllm_max_model_length, or " if args.backend == "vllm" else ""
        notice(
            f"{name}: official prompts exceed the context of {lm.max_length:,} tokens and "
            f"lack their beginning: {counts}; {remedy}leave out these tasks"
        )
    found: list[TaskResult] = []
    for task, one in loaded.items():
        benchmark, main = one.config.metadata["benchmark"], one.config.metadata["main"]
        samples = results["samples"][task]
        rows = score.official_rows(task, benchmark, main, samples, args.final_number)
        metrics = score.official_metrics(results["results"][task], rows, main)
        metrics["num_cut_prompts"] = len(lm.cut[task])
        found.append((benchmark, f"official:{task}", metrics, rows))
    return found


def run_harness(tasks: dict[str, Any], lm: Any, limit: int | None) -> dict[str, Any]:
    """The harness's results on loaded tasks; only the main process may read them."""
    import lm_eval

    return lm_eval.evaluate(
        lm,
        {"tasks": tasks, "groups": {}, "group_map": {}},
        limit=limit,
        bootstrap_iters=1,  # switches standard errors on; those of means need no bootstrap
    )


def fingerprint(path: str, args: EvalArguments) -> dict[str, Any]:
    """Everything a checkpoint's scores depend on; equal fingerprints mean equal results."""
    return {
        "checkpoint": hash_checkpoint(path, "checkpoints"),
        "engine": hash_engine(args.backend, args.dtype),
        "data": hash_data(args),
        "code": f"{manifest.hash_code(*SCORING_CODE)} {installed(SCORING_LIBRARIES)}",
        "settings": deciding_settings(args),
    }


def deciding_settings(args: EvalArguments) -> dict[str, Any]:
    """The settings that scores depend on; the context is one only where it may cut a prompt."""
    found = {key: getattr(args, key) for key in SETTINGS}
    if args.backend != "vllm" or not args.official:
        found["vllm_max_model_length"] = None
    return found


def hash_data(args: EvalArguments) -> dict[str, str]:
    """For each task its problems' origin: `{file: hash}`, and hub ids as they are."""
    found: list[str | Path] = []
    for task in args.tasks:
        key = suite.OWN.get(task)
        found.append(getattr(args, key) if key else find_benchmark(task, args.data_root))
        if key:
            found += grader_files(read_problems(getattr(args, key)))
    for task in args.official:
        for metadata in suite.read_official_metadata(task).values():
            hub = metadata["hub"]
            if args.data_root:
                found += suite.find_official(hub, metadata["files"], args.data_root).values()
            else:
                found.append(hub)
    return manifest.hash_inputs(found)


def is_current(folder: Path, wanted: dict) -> bool:
    """Whether the folder holds complete results of exactly these inputs."""
    try:
        is_same = read_scores(folder)["fingerprint"] == wanted
        manifest.hash_inputs([folder / file for file in RESULTS])
    except (FileNotFoundError, ValueError):  # damaged: the samples are there, scoring is cheap
        return False
    return is_same and (folder / "completions.parquet").is_file()


def read_scores(folder: Path) -> dict:
    return json_files.read(folder / "scores.json", score.SCORES, "run `make eval` again")


if __name__ == "__main__":
    run_cli(in_launch(main))
