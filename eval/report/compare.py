"""Compare runs: scores and their paired differences, curves on the same axes, other settings.

    python -m eval.report.compare --runs runs/a runs/b [--out runs/compare]

A run is a folder with an evaluation; its last checkpoint is compared. A folder with `seed-0/`,
`seed-1/`, … is one run of several seeds, and a problem's score is its mean over them. Runs and
seeds are the checkpoints of one report, in which the others are compared with the first run.
Writes `compare.html`, which needs nothing else, and `compare.json` to `out`.
"""

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from eval.harness.metrics import mean_interval
from eval.harness.settings import split_checkpoints
from eval.report import numbers, page, plots, render
from eval.report.__main__ import EVALUATION, find_examples, read_curves, read_stages
from eval.report.decomposition import PROBLEM
from pipeline import manifest
from pipeline.errors import UserError, run_cli
from pipeline.settings import parse, setting


@dataclass
class CompareArguments:
    """Keys of the command line; there is no YAML for this one."""

    runs: list[str] = field(metadata={"help": "folders of runs, or of the seeds of one"})
    out: str = setting("runs/compare", "folder that is written")


@dataclass
class Seed:
    """A seed of a run, or the run itself: its last checkpoint's results, curves and settings."""

    folder: Path
    result: numbers.Result
    panels: dict[str, list[plots.Panel]]  # by checkpoint
    settings: dict[str, str]


Runs = dict[str, dict[str, Seed]]  # each with its seeds, or itself, by name


def main() -> None:
    (args,) = parse(__doc__, CompareArguments)
    runs = {
        name: {name if len(found) == 1 else f"{name}/{one.name}": load(one) for one in found}
        for name, found in find_runs(args.runs).items()
    }
    report = compare(runs)
    Path(args.out).mkdir(parents=True, exist_ok=True)
    page.finish(report, [*runs], overlay(runs), f"{args.out}/compare")
    render.show(report, page.terminal_tables(report), f"{args.out}/compare.html")


def find_runs(entries: list[str]) -> dict[str, list[Path]]:
    """`{name: folders}` of runs, each with its seeds; names are paths without what all share."""
    found: dict[Path, list[Path]] = {}
    for entry in entries:
        seeds = sorted(Path(entry).glob("seed-*"), key=lambda one: (len(one.name), one.name))
        folders = [one for one in (Path(entry), *seeds) if (one / "eval" / manifest.NAME).is_file()]
        if not folders:
            raise UserError(
                f"runs: {entry} is no run that was evaluated: it has no eval/{manifest.NAME}; "
                "give the folder of a run after `make eval`"
            )
        if folders[0] == Path(entry):
            folders = folders[:1]
        for one in (folder.resolve() for folder in folders):
            of_run = found.setdefault(one.parent if one.name.startswith("seed-") else one, [])
            if one in of_run:
                raise UserError(f"runs: {entry} occurs twice; remove one")
            of_run.append(one)
    if len(found) == 1:  # seeds of one run are compared with each other
        found = {folder: [folder] for folders in found.values() for folder in folders}
    if len(found) < 2:
        raise UserError("runs: one run has nothing to compare with; give two, or a folder of seeds")
    shared = os.path.commonpath([folder.parent for folder in found])
    return {os.path.relpath(folder, shared): folders for folder, folders in found.items()}


def load(folder: Path) -> Seed:
    """Read a run, which may have been moved since it was evaluated."""
    evaluation = manifest.read_made(folder / "eval", "eval", EVALUATION)
    checkpoints = split_checkpoints(evaluation["config"]["checkpoints"])
    was = Path(evaluation["config"].get("output_dir", folder / "eval")).parent
    for name, path in checkpoints.items():
        moved = folder / os.path.relpath(path, was)
        checkpoints[name] = str(moved) if moved.is_dir() else path
    stages = read_stages(str(folder / "eval"), {}, checkpoints) | {"eval": evaluation}
    settings = {"stages": ", ".join(stages)}
    for stage, made in stages.items():
        values = made["config"] | {"commit": made.get("git_commit")}
        settings |= {k: v.replace(str(was), "{run}") for k, v in render.flatten(values, stage)}
    result = numbers.read_result(folder / "eval" / [*checkpoints][-1])
    return Seed(folder, result, read_curves(checkpoints), settings)


def compare(runs: Runs) -> dict[str, Any]:
    """The content of `compare.json`: as `report.json`, with runs and seeds for checkpoints."""
    shown = {name: [seed] for seeds in runs.values() for name, seed in seeds.items()}
    shown |= {run: [*seeds.values()] for run, seeds in runs.items()}
    first, *others = runs
    shown[others[-1]] = shown.pop(others[-1])  # the page speaks of the last one
    results = {name: merge([one.result for one in seeds]) for name, seeds in shown.items()}
    numbers.check_alike(results)
    folders = {name: ", ".join(str(one.folder) for one in seeds) for name, seeds in shown.items()}
    report: dict[str, Any] = {"title": f"{' and '.join(runs)} compared", "base_model": ""}
    report |= numbers.summarise(folders, results, [(first, other) for other in others])
    examples = {name: next(iter(runs[name].values())).result for name in (first, others[-1])}
    report["unread"], report["flips"] = find_examples(examples)
    return report | {"references": [], "stages": {}, "control": None, "differ": differ_table(runs)}


def merge(results: list[numbers.Result]) -> numbers.Result:
    """The results of several seeds as one, with the main metrics over all their completions."""
    first, *others = results
    if not others:
        return first
    rows = pd.concat([one.rows for one in results])
    tasks: dict[str, dict[str, Any]] = {}
    for (task, mode), found in rows.groupby(["task", "mode"], sort=False):
        made = first.scores["tasks"][task][mode]
        score = mean_interval([*found.groupby(PROBLEM)["score"].mean()])
        tasks.setdefault(task, {})[mode] = made | {"metrics": {made["main"]: score}}
    hashes = ", ".join(one.scores["fingerprint"]["checkpoint"] for one in results)
    prints = first.scores["fingerprint"] | {"checkpoint": hashes}
    return replace(first, scores=first.scores | {"tasks": tasks, "fingerprint": prints}, rows=rows)


def overlay(runs: Runs) -> dict[str, list[plots.Panel]]:
    """Panels by checkpoint, with a line for each run and seed in the color of its run."""
    found: dict[str, dict[str, plots.Panel]] = {}
    for run, seeds in runs.items():
        for seed in seeds.values():
            for checkpoint, panels in seed.panels.items():
                for one in panels:
                    panel = plots.Panel(one.title, one.unit)
                    panel = found.setdefault(checkpoint, {}).setdefault(one.title, panel)
                    panel.lines += [replace(line, group=run) for line in one.lines]
    return {checkpoint: [*panels.values()] for checkpoint, panels in found.items()}


def differ_table(runs: Runs) -> render.Table:
    """The settings of the first run's seed in which any two differ: a column for each run."""
    settings = {
        (run, name): seed.settings for run, seeds in runs.items() for name, seed in seeds.items()
    }
    table = pd.DataFrame(settings).reindex(next(iter(settings.values())))
    differ = table[table.nunique(axis=1) > 1].fillna("-")
    rows = [
        [key, *(" / ".join(dict.fromkeys(row[run])) for run in runs)]
        for key, row in differ.iterrows()
    ]
    return ["setting", *runs], rows


if __name__ == "__main__":
    run_cli(main)
