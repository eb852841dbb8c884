"""Write the report of a run: what each stage changed, how sure that is, and what to doubt.

    python -m eval.report --config configs/tiny-cpu/eval.yaml [--run_dir runs/tiny-cpu]

Shares evaluation's YAML, so that both name the same checkpoints in the same order. Reads
`<output_dir>/<name>/{scores.json,completions.parquet}`, and from the folders of the local
checkpoints and of the test file whatever their stages left: `trainer_state.json`, `manifest.json`.
Writes to `report_dir`: `report.html`, one page that needs nothing else; its twin `report.md` with
the figures as PNG; `report.json` with every number; and, last, `manifest.json`.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from data_prep import manifest
from data_prep.config import UserError, parse, run_cli
from eval import findings, pages, plots, terminal
from eval.arguments import EvalArguments, split_checkpoints
from eval.compare import summarise
from eval.flips import find_flips, show_flips
from eval.html_page import render_html
from eval.markdown_page import render_markdown
from eval.references import load_references
from eval.results import Result, check_comparable, read_result, read_texts

STATE = "trainer_state.json"


def main() -> None:
    (args,) = parse(__doc__, EvalArguments)
    checkpoints = split_checkpoints(args.checkpoints)
    results = {name: read_result(Path(args.output_dir) / name) for name in checkpoints}
    check_comparable(results)
    started = manifest.start(args.report_dir)

    report = {"title": args.title} | summarise(checkpoints, results)
    report["summary"], report["warnings"] = findings.summary(report), findings.warnings(report)
    report["flips"] = read_flips(results)
    report["references"] = load_references(list(next(iter(report["scores"].values()))))
    report["stages"] = read_stages(args, checkpoints)
    report["git_commit"], report["versions"] = manifest.git_commit(), manifest.versions()
    report["evaluation_config"] = asdict(args)
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
            [f"{args.output_dir}/{name}/{file}" for name in checkpoints for file in files]
        ),
        counts={"checkpoints": len(checkpoints), "tasks": len(report["changes"])},
        started=started,
    )
    terminal.show(report, [f"{folder}/report.html", f"{folder}/report.md"])


def read_flips(results: dict[str, Result]) -> list[dict]:
    """Completions on which the last two checkpoints disagree; see `eval.flips`."""
    if len(results) < 2:
        return []
    names = tuple(results)[-2:]
    before, after = (results[name] for name in names)
    flips = find_flips(before.rows, after.rows)
    texts = [
        read_texts(result.folder, {flip[side]["place"] for flip in flips})
        for side, result in enumerate((before, after))
    ]
    return show_flips(flips, names, texts)


def read_stages(args: EvalArguments, checkpoints: dict[str, str]) -> dict[str, dict]:
    """`{stage: manifest}` of the stages that left one, in the order the data flows."""
    folders = {"data": Path(args.test_file).parent} if args.test_file else {}
    folders |= {name: stage_folder(path) for name, path in checkpoints.items()}
    found = {name: manifest.read(path) for name, path in folders.items()}
    return {name: value for name, value in found.items() if value}


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
    """Draw every figure there is data for, as `eval.pages.build_page` takes them."""
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
