"""Evaluate every checkpoint of a run on every task, with the same settings for all.

    python -m eval.run --config configs/tiny-cpu/eval.yaml [--run_dir runs/tiny-cpu]
    accelerate launch -m eval.run --config configs/grpo7b/eval.yaml

For each checkpoint lm-evaluation-harness runs the think-aware tasks of `eval/tasks/`, with one
greedy completion for each problem and with k samples, then the official tasks. The folder behind
`<output_dir>/<name>` gets `scores.json` and `completions.parquet`, and every finished sample in
`samples/`: an evaluation that was killed resumes where it stopped. Results of a checkpoint are kept
while its files, data, settings and the grader are unchanged (`eval.harness.results`).
`manifest.json` comes last, when all checkpoints are done. The report is made of these files.

The harness's own command line differs: here the prompt is the training prompt to the token, the
verdict is the reward's, and the sampling defaults that a model ships are not used.
"""

import os
import sys
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from data_prep.sampling.keys import check_sampling
from data_prep.sampling.problems import load_engine
from data_prep.sampling.store import Processes, SampleStore
from eval.harness import results, score, suite
from eval.harness.settings import EvalArguments, check_inputs, split_checkpoints
from pipeline import manifest
from pipeline.console import notice, quiet, quiet_harness
from pipeline.errors import run_cli
from pipeline.folders import check_links, check_output, link
from pipeline.launched import in_launch
from pipeline.lock import claim
from pipeline.models.checkpoints import tokenizer_path
from pipeline.settings import Settings, build, parse

TaskResult = tuple[str, str, dict[str, Any], list[dict]]  # benchmark, mode, metrics, rows


def main() -> None:
    (args,) = parse(__doc__, EvalArguments, check=check_settings, owns="output_dir")
    processes = Processes.from_environment()
    started = time.time()
    if processes.is_main:
        Path(args.output_dir).mkdir(parents=True, exist_ok=True)
        check_links(args.output_dir)
        if args.samples_dir:  # another list of tasks may be scored meanwhile
            check_output(args.samples_dir, "samples_dir")
            claim(args.samples_dir)
    checkpoints = args.to_evaluate()
    found = {  # before the first model is loaded
        name: processes.ask_main(partial(results.find, name, path, args))
        for name, path in checkpoints.items()
    }
    evaluated = []
    for name, path in checkpoints.items():
        folder, fingerprint, is_kept = found[name]
        if not is_kept:
            evaluate_checkpoint(name, path, args, Path(folder), fingerprint, processes)
            evaluated.append(name)
        elif processes.is_main:
            sys.stdout.write(f"{name}: already evaluated with the same inputs, kept\n")
        if processes.is_main:
            link(results.place(name, args), Path(folder))
    if args.only_checkpoints:
        if processes.is_main:
            left = [one for one in split_checkpoints(args.checkpoints) if one not in checkpoints]
            sys.stdout.write(
                f"eval: {', '.join(checkpoints)} done in {time.time() - started:.0f} s; "
                f"left: {', '.join(left) or 'the manifest'}\n"
            )
    elif processes.is_main:
        write_manifest(args, checkpoints, found, evaluated, started)
    processes.meet()  # the main process holds the others' key-value store


def write_manifest(
    args: EvalArguments,
    checkpoints: dict[str, str],
    found: dict[str, Any],
    evaluated: list[str],
    started: float,
) -> None:
    """Write the manifest of all results, and say where they are.

    Args:
        checkpoints: `{name: path}`; found: `{name: what results.find returned}`.
        evaluated: the names of those that were not kept.
    """
    folder, fingerprint, _ = found[next(iter(checkpoints))]
    scores = results.read_scores(Path(folder))
    counts = {key: scores[f"num_{key}"] for key in ("problems", "completions")}
    prints = {path: found[name][1]["checkpoint"] for name, path in checkpoints.items()}
    folders = [os.path.relpath(folder, args.output_dir) for folder, *_ in found.values()]
    manifest.write(
        args.output_dir,
        "eval",
        asdict(args),
        fingerprint["data"] | prints,
        counts,
        started,
        [f"{folder}/{file}" for folder in folders for file in results.FILES],
        evaluated=evaluated,
        code=fingerprint["code"],
    )
    noun = "checkpoint" if len(checkpoints) == 1 else "checkpoints"
    tasks = ", ".join([*args.tasks, *(f"official {task}" for task in args.official)])
    sys.stdout.write(
        f"eval: {len(checkpoints)} {noun} ({len(evaluated)} now, in "
        f"{time.time() - started:.0f} s) on {counts['problems']:,} problems of {tasks}, "
        f"{counts['completions']:,} completions each; results in {args.output_dir}/\n"
    )


def check_settings(settings: Settings) -> None:
    """Check the problems and checkpoints of a recipe, before torch is imported."""
    check_sampling(settings)
    check_inputs(*build(settings, EvalArguments))


def evaluate_checkpoint(
    name: str,
    path: str,
    args: EvalArguments,
    folder: Path,
    fingerprint: dict[str, Any],
    processes: Processes,
) -> None:
    """Run all tasks on one checkpoint; write `completions.parquet`, then `scores.json`."""
    quiet()
    started = time.time()
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
    for old in (Path(args.output_dir, manifest.NAME), folder / "scores.json"):
        old.unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    score.write_parquet(folder / "completions.parquet", rows)
    modes = [each.values() for each in tasks.values()]
    manifest.write_json(
        folder / "scores.json",
        {
            "checkpoint": path,
            "fingerprint": fingerprint,
            "settings": fingerprint["settings"],
            "num_problems": sum(max(one["num_problems"] for one in each) for each in modes),
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
    found: list[TaskResult] = []
    if args.tasks:
        for mode in suite.MODES if args.num_samples else suite.MODES[:1]:
            lm = CachedLM(engine, store, processes, f"{name} {mode}", args.seed)
            found += run_think_tasks(mode, args, metadata, lm, processes)
    if args.official:
        lm = CachedLM(engine, store, processes, f"{name} official", args.seed)
        found += run_official_tasks(name, args, metadata, lm, processes)
    tasks: dict[str, dict[str, dict]] = {}
    for benchmark, mode, metrics, _ in found:
        tasks.setdefault(benchmark, {})[mode] = metrics
    return tasks, [row for *_, rows in found for row in rows]


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
    ran = run_harness(loaded, lm, args.limit)
    if not processes.is_main:
        return []
    rows = {task: score.think_rows(task, mode, ran["samples"][task]) for task in args.tasks}
    return [(task, mode, score.think_metrics(rows[task], mode), rows[task]) for task in args.tasks]


def run_official_tasks(
    name: str, args: EvalArguments, metadata: dict[str, Any], lm: Any, processes: Processes
) -> list[TaskResult]:
    """Run the harness's own tasks; tell what keeps a score low that is not the model's fault.

    Completions are read twice: as the harness does, and with the thought cut off.
    """
    loaded, stopped = suite.load_official_tasks(args.official, metadata)
    ran = run_harness(loaded, lm, args.limit)
    again = processes.ask_main(lambda: score.written_tasks(ran["samples"]))
    # Loaded again, as a task draws its examples in turn.
    tasks, _ = suite.load_official_tasks(args.official, metadata)
    lm.cuts_thought = True
    short = run_harness({task: tasks[task] for task in again}, lm, args.limit) if again else {}
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
    readings = [(task, f"official:{task}", ran) for task in loaded]
    readings += [(task, f"official:{task}, thought cut off", short) for task in again]
    for task, mode, one in readings:
        of = loaded[task].config.metadata
        whole, samples = ran["samples"][task], one["samples"][task]
        rows = score.official_rows(
            mode, of["benchmark"], of["main"], samples, args.final_number, whole
        )
        metrics = score.official_metrics(one["results"][task], rows, of["main"])
        metrics["num_cut_prompts"] = len(lm.cut[task])
        found.append((of["benchmark"], mode, metrics, rows))
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


if __name__ == "__main__":
    run_cli(in_launch(main))
