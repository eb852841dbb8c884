"""Write the report of a run: what each stage changed, how sure that is, and what to doubt.

    python -m eval.report --config configs/tiny-cpu/eval.yaml [--run_dir runs/tiny-cpu]

Shares evaluation's YAML, so that both name the same checkpoints in the same order. Reads
`<output_dir>/manifest.json`, `<output_dir>/<name>/{scores.json,completions.parquet}`, and what the
stages left in the folders of the local checkpoints and beside them: `trainer_state.json`,
`manifest.json`. Results of other settings or of checkpoints that have changed are refused.
Writes to `report_dir`: `report.html`, one page that needs nothing else; its twin `report.md` with
the figures as PNG; `report.json` with every number; and, last, `manifest.json`.
"""

import json
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

from data_prep import manifest
from data_prep.config import UserError, parse, run_cli
from eval.harness.arguments import EvalArguments, split_checkpoints
from eval.report import findings, pages, plots, terminal
from eval.report.compare import summarise
from eval.report.flips import COUNT, find_flips, find_unread, show_flips, show_unread
from eval.report.html_page import render_html
from eval.report.markdown_page import render_markdown
from eval.report.references import load_references
from eval.report.results import (
    Result,
    check_comparable,
    check_current,
    read_evaluation,
    read_result,
    read_texts,
)

STATE = "trainer_state.json"
BESIDE = ("data", "audit", "difficulty")  # stages that make no checkpoint


def main() -> None:
    (args,) = parse(__doc__, EvalArguments)
    checkpoints = split_checkpoints(args.checkpoints)
    evaluation = read_evaluation(args)
    results = {name: read_result(Path(args.output_dir) / name) for name in checkpoints}
    check_comparable(results)
    check_current(results, args, checkpoints)
    started = manifest.start(args.report_dir)

    report = {"title": args.title} | summarise(checkpoints, results)
    report["summary"], report["warnings"] = findings.summary(report), findings.warnings(report)
    report["unread"] = read_unread(results)
    report["flips"] = read_flips(results, COUNT - len(report["unread"]))
    report["references"] = load_references(list(next(iter(report["scores"].values()))))
    report["stages"] = read_stages(args, checkpoints)
    report["git_commit"], report["versions"] = evaluation["git_commit"], evaluation["versions"]
    report["evaluation_config"] = evaluation["config"]
    report["report_commit"] = manifest.git_commit()
    panels = read_curves(checkpoints)
    report["curves"] = {
        name: {panel.title: panel.lines for panel in found} for name, found in panels.items()
    }

    folder = Path(args.report_dir)
    figures = draw(folder, report, panels)
    page = pages.build_page(report, figures)
    (folder / "report.html").write_text(render_html(page), encoding="utf-8")
    (folder / "report.md").write_text(render_markdown(page), encoding="utf-8")
    manifest.write_json(folder / "report.json", manifest.finite(report))
    files = ("scores.json", "completions.parquet")
    manifest.write(
        folder,
        "report",
        asdict(args),
        inputs=manifest.hash_inputs(
            [f"{args.output_dir}/{manifest.NAME}"]
            + [f"{args.output_dir}/{name}/{file}" for name in checkpoints for file in files]
        ),
        counts={"checkpoints": len(checkpoints), "tasks": len(report["changes"])},
        started=started,
    )
    terminal.show(report, [f"{folder}/report.html", f"{folder}/report.md"])


def read_unread(results: dict[str, Result]) -> list[dict]:
    """Right completions of the last checkpoint that an official parser does not read."""
    name, last = list(results.items())[-1]
    rows = find_unread(last.rows)
    return show_unread(rows, name, read_texts(last.folder, {row["place"] for row in rows}))


def read_flips(results: dict[str, Result], count: int) -> list[dict]:
    """Up to `count` completions on which the last two checkpoints disagree; see `flips`."""
    if len(results) < 2:
        return []
    names = tuple(results)[-2:]
    before, after = (results[name] for name in names)
    flips = find_flips(before.rows, after.rows, count)
    texts = [
        read_texts(result.folder, {flip[side]["place"] for flip in flips})
        for side, result in enumerate((before, after))
    ]
    return show_flips(flips, names, texts)


def read_stages(args: EvalArguments, checkpoints: dict[str, str]) -> dict[str, dict]:
    """`{stage: manifest}` of the stages that left one, in the order the data flows."""
    folders = {name: stage_folder(path) for name, path in checkpoints.items()}
    runs = [Path(args.output_dir).parent]
    runs += [folder.parent for folder in folders.values() if folder.is_dir()]
    beside = {name: None for name in BESIDE if name not in folders}
    if args.test_file and "data" in beside:
        beside["data"] = manifest.read(Path(args.test_file).parent)
    for run, name in product(runs, beside):
        found = None if beside[name] else manifest.read(run / name)
        if found and found.get("stage") == name:  # a folder of that name may be anything
            beside[name] = found
    stages: dict[str, dict | None] = {name: beside.get(name) for name in ("data", "audit")}
    for name, folder in folders.items():
        found = manifest.read(folder)
        if found and found.get("stage") == "grpo":  # which learns from the problems so sorted
            stages.setdefault("difficulty", beside.get("difficulty"))
        stages[name] = found
    stages.setdefault("difficulty", beside.get("difficulty"))
    return {name: value for name, value in stages.items() if value}


def stage_folder(path: str) -> Path:
    """The folder of the stage that made a checkpoint: its own, or for `grpo/best` the one above."""
    folder = Path(path)
    has_left = any((folder / name).is_file() for name in (STATE, manifest.NAME))
    return folder.parent if not has_left and (folder.parent / STATE).is_file() else folder


def read_curves(checkpoints: dict[str, str]) -> dict[str, list[plots.Panel]]:
    """`{checkpoint: panels}` of those that a trainer left its log with.

    Raises:
        UserError: a log is damaged.
    """
    found = {}
    for name, path in checkpoints.items():
        file = stage_folder(path) / STATE
        if not file.is_file():
            continue
        try:
            history = json.loads(file.read_text(encoding="utf-8"))["log_history"]
        except (ValueError, KeyError) as error:
            raise UserError(f"{file} is damaged ({error}); run the stage again") from error
        is_grpo = any("rollout/rewards" in log for log in history)
        panels = plots.read_panels(history, plots.GRPO_PANELS if is_grpo else plots.SFT_PANELS)
        if panels:
            found[name] = panels
    return found


def draw(folder: Path, report: dict[str, Any], panels: dict[str, list[plots.Panel]]) -> dict:
    """Draw every figure there is data for, as `eval.report.pages.build_page` takes them."""
    changes = None
    if len(report["checkpoints"]) > 1:
        caption = "Each change as the sum of its parts; the diamond is the change of the score"
        changes = plots.draw_changes(folder / "changes.png", report["changes"], caption)
    scores = plots.draw_scores(
        folder / "scores.png", report["scores"], "Problems solved, with standard errors"
    )
    curves = [
        plots.draw_curves(
            folder / f"{name}_curves.png", found, f"Training: {name}",
            f"Training of `{name}`; bold: moving average",
        )
        for name, found in panels.items()
    ]  # fmt: skip
    return {"scores": scores, "changes": changes, "curves": curves}


if __name__ == "__main__":
    run_cli(main)
