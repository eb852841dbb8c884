"""Compare runs: scores and their paired differences, curves on the same axes, other settings.

    python -m eval.report.compare --runs runs/a runs/b [--out runs/compare]

A run is a folder with an evaluation; its last checkpoint is compared. A folder with `seed-0/`,
`seed-1/`, … is one run of several seeds, and a problem's score is its mean over them. The others
are compared with the first run. Writes `compare.html`, which needs nothing else, and `compare.json`
to `out`.
"""

import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eval.harness.metrics import mean_interval, problem_means
from eval.harness.settings import split_checkpoints
from eval.report import numbers, page, plots, render
from eval.report.__main__ import EVALUATION, find_examples, read_curves, read_stages
from pipeline import manifest
from pipeline.errors import UserError, run_cli
from pipeline.settings import parse, setting

MAX_KEYS = 60  # that are shown of those in which runs differ


@dataclass
class CompareArguments:
    """Keys of the command line; there is no YAML for this one."""

    runs: list[str] = field(metadata={"help": "folders of runs, or of the seeds of one"})
    out: str = setting("runs/compare", "folder that is written")


@dataclass
class Run:
    """One evaluated run, or a seed of one: the last checkpoint's results, curves and settings."""

    folder: Path
    result: numbers.Result
    panels: dict[str, list[plots.Panel]]  # by checkpoint
    settings: dict[str, str]


Runs = dict[str, dict[str, Run]]  # each with its seeds, or itself, by name


def main() -> None:
    (args,) = parse(__doc__, CompareArguments)
    runs = {
        name: {name if len(found) == 1 else f"{name}/{one.name}": load(one) for one in found}
        for name, found in find_runs(args.runs).items()
    }
    report = compare(runs)
    stages = dict.fromkeys(stage for run in every(runs).values() for stage in run.panels)
    curves = {stage: overlay(runs, stage) for stage in stages}
    Path(args.out).mkdir(parents=True, exist_ok=True)
    page.finish(report, [*runs], curves, f"{args.out}/compare")
    render.show(report, page.terminal_tables(report), f"{args.out}/compare.html")


def every(runs: Runs) -> dict[str, Run]:
    """All seeds of all runs."""
    return {name: run for found in runs.values() for name, run in found.items()}


def find_runs(entries: Iterable[str]) -> dict[str, list[Path]]:
    """`{name: folders}` of runs, each with its seeds; names are paths without what all share."""
    found: dict[Path, list[Path]] = defaultdict(list)
    for entry in entries:
        seeds = sorted(Path(entry).glob("seed-*"), key=lambda one: (len(one.name), one.name))
        places = [Path(entry), *seeds]
        folders = [one.resolve() for one in places if (one / "eval" / manifest.NAME).is_file()]
        if not folders:
            raise UserError(
                f"runs: {entry} is no run that was evaluated: it has no eval/{manifest.NAME}; "
                "give the folder of a run after `make eval`"
            )
        if folders[0] == Path(entry).resolve():
            folders = folders[:1]
        for one in folders:
            run = one.parent if one.name.startswith("seed-") else one
            if one in found[run]:
                raise UserError(f"runs: {entry} occurs twice; remove one")
            found[run].append(one)
    if len(found) == 1:  # seeds of one run are compared with each other
        found = {folder: [folder] for folders in found.values() for folder in folders}
    if len(found) < 2:
        raise UserError("runs: one run has nothing to compare with; give two, or a folder of seeds")
    shared = os.path.commonpath([folder.parent for folder in found])
    return {os.path.relpath(folder, shared): folders for folder, folders in found.items()}


def load(folder: Path) -> Run:
    """Read a run, which may have been moved since it was evaluated."""
    evaluation = manifest.read_made(folder / "eval", "eval", EVALUATION)
    checkpoints = split_checkpoints(evaluation["config"]["checkpoints"])
    was = Path(evaluation["config"].get("output_dir", folder / "eval")).parent
    for name, path in checkpoints.items():
        moved = folder / os.path.relpath(path, was)
        checkpoints[name] = str(moved) if moved.is_dir() else path
    stages = read_stages(str(folder / "eval"), {}, checkpoints) | {"eval": evaluation}
    settings = {
        key: value.replace(str(was), "{run}")
        for stage, made in stages.items()
        for key, value in render.flatten(made["config"] | {"commit": made.get("git_commit")}, stage)
    }
    result = numbers.read_result(folder / "eval" / list(checkpoints)[-1])
    return Run(folder, result, read_curves(checkpoints), {"stages": ", ".join(stages)} | settings)


def compare(runs: Runs) -> dict[str, Any]:
    """The content of `compare.json`: as `report.json`, with runs and seeds for checkpoints."""
    shown = {name: {name: run} for name, run in every(runs).items()} | runs
    last = [*runs][-1]
    shown[last] = shown.pop(last)  # the page speaks of the last one; it may be a seed's name, too
    results = {name: merge([run.result for run in found.values()]) for name, found in shown.items()}
    numbers.check_alike(results)
    folders = {}
    for name, found in shown.items():
        folders[name] = ", ".join(str(run.folder) for run in found.values())
    first, *others = runs
    report: dict[str, Any] = {"title": f"{' and '.join(runs)} compared", "base_model": ""}
    report |= numbers.summarise(folders, results, [(first, other) for other in others])
    one_each = {name: next(iter(runs[name].values())).result for name in (first, others[-1])}
    report["unread"], report["flips"] = find_examples(one_each)
    return report | {"references": [], "stages": {}, "control": None, "differ": differ_table(runs)}


def merge(results: list[numbers.Result]) -> numbers.Result:
    """The results of several seeds as one, with the main metrics over all their completions."""
    first, *others = results
    if not others:
        return first
    rows = {kind: [row for one in results for row in one.rows[kind]] for kind in first.rows}
    tasks: dict[str, dict[str, Any]] = defaultdict(dict)
    for (task, mode), found in rows.items():
        made = first.scores["tasks"][task][mode]
        means = problem_means(((row["source"], row["id"]), row["score"]) for row in found)
        tasks[task][mode] = made | {"metrics": {made["main"]: mean_interval([*means.values()])}}
    hashes = ", ".join(one.scores["fingerprint"]["checkpoint"] for one in results)
    prints = first.scores["fingerprint"] | {"checkpoint": hashes}
    return numbers.Result(
        first.folder, {**first.scores, "tasks": tasks, "fingerprint": prints}, rows
    )


def overlay(runs: Runs, checkpoint: str) -> list[plots.Panel]:
    """Panels of a checkpoint with a line for each run and seed, in the color of its run."""
    groups = {name: group for group, found in runs.items() for name in found}
    panels: dict[str, plots.Panel] = {}
    for name, run in every(runs).items():
        for one in run.panels.get(checkpoint, ()):
            panel = panels.setdefault(one.title, plots.Panel(one.title, one.unit, {}))
            for label, line in one.lines.items():
                key = name if len(one.lines) == 1 else f"{name}, {label}"
                panel.lines[key] = line
                panel.groups |= groups | {key: groups[name]}
    return list(panels.values())


def differ_table(runs: Runs) -> render.Table:
    """The settings, known of all runs, in which any two differ: a column for each run."""
    settings = [run.settings for run in every(runs).values()]
    rows = []
    for key in settings[0]:
        if len({one.get(key) for one in settings} - {None}) > 1:
            row = [key]
            for found in runs.values():
                values = [run.settings.get(key, "-") for run in found.values()]
                row.append(" / ".join(dict.fromkeys(values)))
            rows.append(row)
    num_more = len(rows) - MAX_KEYS
    if num_more > 0:
        rows[MAX_KEYS:] = [[f"{num_more} more", *("" for _ in runs)]]
    return ["setting", *runs], rows


if __name__ == "__main__":
    run_cli(main)
