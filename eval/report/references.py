"""Published figures (`eval/report/references.yaml`) beside ours, for the tasks that were run."""

from pathlib import Path
from typing import Any

import yaml

from eval.report.text import metric_name

FILE = Path(__file__).with_name("references.yaml")


def load_references(tasks: list[str]) -> list[dict[str, Any]]:
    """The published rows of the tasks that were run, by our names of them.

    Returns:
        `[{"task", "title", "source", "stages", "measured_as", "scores", "note"}]` in the order of
        `tasks`; scores in per cent.
    """
    sources = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return [
        {
            "task": task,
            **{key: row[key] for key in ("title", "measured_as", "scores")},
            **{key: source.get(key) for key in ("source", "stages", "note")},
        }
        for task in tasks
        for source in sources
        for row in source["rows"]
        if task in row["tasks"]
    ]


def reference_rows(
    references: list[dict[str, Any]], scores: dict[str, dict]
) -> tuple[list[list[str]], list[str]]:
    """Rows of a table: ours, then theirs, task by task; and the sources' notes, each once.

    Args:
        references: `load_references(...)`.
        scores: `{checkpoint: {task: {mode: …}}}`, ours.
    """
    rows = []
    for task in dict.fromkeys(found["task"] for found in references):
        first = next(iter(scores.values()))[task]
        for mode, found in first.items():
            values = [tasks[task][mode]["metrics"][found["main"]] for tasks in scores.values()]
            rows.append([
                task,
                f"ours, {metric_name(mode, found['main'], task)}",
                f"{_path([100 * one['value'] for one in values])} ({' → '.join(scores)})",
            ])  # fmt: skip
        for found in references:
            if found["task"] == task:
                rows.append([
                    found["title"],
                    f"theirs, {found['measured_as']}: {found['source']}",
                    f"{_path(found['scores'], 2)} ({found['stages'].replace('->', '→')})",
                ])  # fmt: skip
    return rows, list(dict.fromkeys(found["note"] for found in references if found["note"]))


def _path(values: list[float], digits: int = 1) -> str:
    return " → ".join(f"{value:.{digits}f}" for value in values)
