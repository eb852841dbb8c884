"""Write the report of a run: what each stage changed, with error bars, and how training went.

    python -m eval.report --config configs/tiny-cpu/eval.yaml [--run_dir runs/tiny-cpu]

Shares evaluation's YAML, so that both name the same checkpoints in the same order. Reads
`<output_dir>/<name>/{scores.json,completions.jsonl}`, and from the folders of the local checkpoints
and of the test file whatever their stages left: `trainer_state.json`, `manifest.json`. Writes
`report.md`, its figures, `report.json` and, last, `manifest.json` to `report_dir`.
"""

import json
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

from data_prep import manifest
from data_prep.config import UserError, parse, run_cli
from eval import compare, pages, plots
from eval.arguments import EvalArguments, split_checkpoints
from eval.compare import HEADLINE


def main() -> None:
    (args,) = parse(__doc__, EvalArguments)
    checkpoints = split_checkpoints(args.checkpoints)
    for name in checkpoints:
        scores = Path(args.output_dir) / name / "scores.json"
        if not scores.is_file():
            raise UserError(f"{scores} is missing; `make eval` makes it")
    started = manifest.start(args.report_dir)
    results = {name: read_result(Path(args.output_dir) / name) for name in checkpoints}
    report = summarise(args.title, checkpoints, results)
    report["stages"] = read_stages(args, checkpoints)
    report["git_commit"], report["versions"] = manifest.git_commit(), manifest.versions()
    report["evaluation_config"] = asdict(args)

    folder = Path(args.report_dir)
    figures = draw(folder, report["scores"], checkpoints)
    (folder / "report.md").write_text(pages.markdown(report, figures), encoding="utf-8")
    manifest.write_json(folder / "report.json", report)
    manifest.write(
        folder,
        "report",
        asdict(args),
        inputs=manifest.hash_inputs([f"{args.output_dir}/{n}/scores.json" for n in checkpoints]),
        counts={"checkpoints": len(checkpoints), "figures": len(figures)},
        started=started,
    )
    pages.show(report, f"{folder}/report.md")


def read_result(folder: Path) -> dict:
    """A checkpoint's `scores.json` and, as `rows`, its `completions.jsonl`."""
    scores = json.loads((folder / "scores.json").read_text(encoding="utf-8"))
    with (folder / "completions.jsonl").open(encoding="utf-8") as file:
        return scores | {"rows": [json.loads(line) for line in file]}


def summarise(title: str, checkpoints: dict[str, str], results: dict[str, dict]) -> dict:
    """Compute every number of the report.

    Args:
        checkpoints: `{name: path}` in the order of the stages.
        results: `{name: read_result(...)}`.

    Returns:
        `scores[checkpoint][task][metric] = {"value", "stderr", "n"}`, `differences` to the
        checkpoint before, `levels`, `outcomes` and `verdicts` in the same nesting.
    """
    names = list(checkpoints)
    solved = {
        name: {mode: compare.problem_scores(results[name]["rows"], mode) for mode in HEADLINE}
        for name in names
    }

    def per_mode(count) -> dict:
        return {n: {mode: count(results[n]["rows"], mode) for mode in HEADLINE} for n in names}

    return {
        "title": title,
        "checkpoints": checkpoints,
        "settings": {name: results[name]["settings"] for name in names},
        "scores": {name: results[name]["scores"] for name in names},
        "differences": {
            after: {
                mode: {"from": before}
                | compare.paired_difference(solved[before][mode], solved[after][mode])
                for mode in HEADLINE
            }
            for before, after in pairwise(names)
        },
        "levels": per_mode(compare.level_scores),
        "outcomes": per_mode(compare.outcome_rates),
        "verdicts": per_mode(compare.verdict_rates),
    }


def stage_folders(args: EvalArguments, checkpoints: dict[str, str]) -> dict[str, Path]:
    """Folders that may hold a stage's manifest and logs, in the order the data flows."""
    return {"data": Path(args.test_file).parent} | {n: Path(p) for n, p in checkpoints.items()}


def read_stages(args: EvalArguments, checkpoints: dict[str, str]) -> dict[str, dict]:
    """`{stage: manifest}` of the stages that left one."""
    found = {name: manifest.read(path) for name, path in stage_folders(args, checkpoints).items()}
    return {name: value for name, value in found.items() if value}


def draw(folder: Path, scores: dict, checkpoints: dict[str, str]) -> dict[str, str]:
    """Draw every figure there is data for; returns `{caption: file name}`."""
    plots.draw_scores(folder / "scores.png", scores)
    figures = {"Problems solved, with standard errors over problems": "scores.png"}
    for name, path in checkpoints.items():
        state = Path(path) / "trainer_state.json"
        if not state.is_file():
            continue
        history = json.loads(state.read_text(encoding="utf-8"))["log_history"]
        is_grpo = any("rollout/rewards" in log for log in history)
        panels = plots.GRPO_PANELS if is_grpo else plots.SFT_PANELS
        if plots.draw_curves(folder / f"{name}_curves.png", history, panels, f"Training: {name}"):
            figures[f"Training of `{name}`; bold: moving average"] = f"{name}_curves.png"
    return figures


if __name__ == "__main__":
    run_cli(main)
