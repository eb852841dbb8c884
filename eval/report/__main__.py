"""Write the report of a run: the change by each stage, its uncertainty, and warnings.

    python -m eval.report --config configs/tiny-cpu/eval.yaml [--run_dir runs/tiny-cpu]

Takes the folders and the title from evaluation's YAML. Everything else comes from evaluation's
folder, and from `trainer_state.json` and `manifest.json` of the checkpoints' stages. Refuses
results that were not scored alike.

Writes to `report_dir`: `report.html`, one page that needs nothing else; `completions.html`, which
shows completions (`eval.report.browse`); `report.json` with every number; and, last,
`manifest.json`. The model card of each checkpoint that a stage made gets its scores.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from eval.harness.settings import EvalArguments, split_checkpoints
from eval.report import browse, numbers, page, plots, render
from pipeline import json_files, manifest
from pipeline.errors import run_cli
from pipeline.models import card
from pipeline.settings import parse

STATE = "trainer_state.json"
EVALUATION = {"config": {"checkpoints": [str], "output_dir?": str, "test_file?": (str, None)}}
# Of `make control`, by `stages.sweep_page`.
SEEDS = {
    "header": [str],
    "rows": [[(str, float, None)]],
    "curves": {str: [[(float, None)]]},
}


def main() -> None:
    (args,) = parse(__doc__, EvalArguments, owns="report_dir")
    evaluation = manifest.read_made(args.output_dir, "eval", EVALUATION)
    checkpoints = split_checkpoints(evaluation["config"]["checkpoints"])
    results = {name: numbers.read_result(Path(args.output_dir) / name) for name in checkpoints}
    numbers.check_alike(results)
    started = manifest.start(args.report_dir)

    base = Path(next(iter(checkpoints.values()))).name
    title = args.title.replace("{base}", base)
    report = {"title": title, "base_model": base} | numbers.summarise(checkpoints, results)
    report["unread"], report["flips"] = find_examples(results)
    report["references"] = page.load_references(list(next(iter(report["scores"].values()))))
    report["stages"] = read_stages(args.output_dir, evaluation["config"], checkpoints)
    report["origins"] = evaluation.get("origins", {})
    for made in report["stages"].values():
        report["origins"] |= made.get("origins", {})
    report["git_commit"], report["versions"] = evaluation.get("git_commit"), evaluation["versions"]
    report["evaluation_config"] = evaluation["config"]
    panels = read_curves(checkpoints)
    report["curves"] = {
        name: {
            panel.title: {line.label: (line.steps, line.values) for line in panel.lines}
            for panel in found
        }
        for name, found in panels.items()
    }
    report["control"] = read_control(Path(args.output_dir).parent / "control/seeds.json")
    folder = Path(args.report_dir)
    page.finish(report, [*checkpoints], panels, f"{folder}/report")
    browse.write(folder / browse.PAGE, browse.find_files(Path(args.output_dir).parent), title)
    run = Path(args.output_dir).resolve().parent
    for name, path in checkpoints.items():
        if run in Path(path).resolve().parents:  # another run's model keeps the scores of its run
            card.write(path, report["scores"][name])
    files = ("scores.json", "completions.parquet")
    read = [manifest.NAME, *(f"{name}/{file}" for name in checkpoints for file in files)]
    inputs = manifest.hash_inputs([f"{args.output_dir}/{file}" for file in read])
    counts = {"checkpoints": len(checkpoints), "tasks": len(report["changes"])}
    manifest.write(folder, "report", asdict(args), inputs, counts, started)
    render.show(report, page.terminal_tables(report), f"{folder}/report.html")


def find_examples(results: dict[str, numbers.Result]) -> tuple[list[dict], list[dict]]:
    """Correct completions of the last checkpoint that an official parser misses, and flips."""
    *earlier, (name, last) = results.items()
    unread = numbers.find_unread(last.rows)
    shown = numbers.describe_examples(unread, {name: last})
    if not earlier:
        return shown, []
    before, count = earlier[-1][1], numbers.NUM_FLIPS - len(unread)
    flips = numbers.find_flips(before.rows, last.rows, count)
    return shown, numbers.describe_examples(flips, dict([earlier[-1], (name, last)]))


def read_stages(output_dir: str, evaluated: dict, checkpoints: dict[str, str]) -> dict[str, dict]:
    """`{stage: manifest}` of the stages that left one, in the order the data flows."""
    folders = {name: card.find_maker(path) for name, path in checkpoints.items()}
    # Next to the evaluation, or to the last checkpoint; the first may be another run's.
    runs = [Path(output_dir), list(folders.values())[-1]]
    others: dict[str, dict[str, Any] | None] = {}
    for name in ("data", "audit", "difficulty"):  # which make no checkpoint
        found = [manifest.read(run.parent / name) for run in runs]
        # A folder of that name need not be ours.
        others[name] = next((one for one in found if one and one.get("stage") == name), None)
    if test_file := evaluated.get("test_file"):
        others["data"] = manifest.read(Path(test_file).parent) or others["data"]
    stages = {name: others[name] for name in ("data", "audit")}
    for name, folder in folders.items():
        stage = manifest.read(folder)
        if stage and stage.get("stage") == "grpo":  # which trains on the problems sorted so
            stages["difficulty"] = others["difficulty"]
        stages[name] = stage
    stages.setdefault("difficulty", others["difficulty"])
    for made in filter(None, stages.values()):
        made.pop("request", None)  # what was written, of which `config` has the values
    return {name: value for name, value in stages.items() if value}


def read_control(file: Path) -> dict[str, Any] | None:
    """What `make control` left; None where there is nothing."""
    if not file.is_file():
        return None
    return json_files.read(file, SEEDS, "run `make control` again")


def read_curves(checkpoints: dict[str, str]) -> dict[str, list[plots.Panel]]:
    """`{checkpoint: panels}` of those with a trainer's log; refuses a damaged one."""
    found = {}
    for name, path in checkpoints.items():
        state = card.find_maker(path) / STATE
        if state.is_file():
            found[name] = plots.read_panels(json_files.read_log(state))
    return {name: panels for name, panels in found.items() if panels}


if __name__ == "__main__":
    run_cli(main)
