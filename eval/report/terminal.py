"""The report's short form for the terminal: scores, the last change, what to doubt, where to read.

Names and numbers only: no text of a model gets to the terminal.
"""

from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from eval.report import pages
from eval.report.blocks import Table

WIDTH = 100  # columns, also where the terminal is wider or is a file


def show(report: dict[str, Any], paths: list[str]) -> None:
    """Print a table per task, the split of the last change, the warnings and the pages' paths."""
    console = Console(width=min(WIDTH, Console().width) if Console().is_terminal else WIDTH)
    is_wide = console.width >= WIDTH
    console.print(f"[bold]{escape(report['title'])}[/bold]", highlight=False)
    for task, modes in next(iter(report["scores"].values())).items():
        count = next(iter(modes.values()))["num_problems"]
        title = f"{task}: solved (%), {count:,} problems"
        console.print(_table(title, pages.score_table(report, task, is_short=True), is_wide))
        if len(report["checkpoints"]) > 1:
            before, after = list(report["checkpoints"])[-2:]
            title = f"{task}: {before} → {after} (points, 95 % intervals)"
            console.print(_table(title, pages.split_table(report, task, only_last=True), is_wide))
    for warning in report["warnings"]:
        console.print(f"[yellow]warning:[/yellow] {escape(warning)}", highlight=False)
    # Not wrapped: a broken path cannot be clicked or copied.
    console.print("Report: " + escape(", ".join(paths)), highlight=False, soft_wrap=True)


def _table(title: str, table: Table, is_wide: bool) -> RichTable:
    shown = RichTable(
        title=escape(title),
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for index, name in enumerate(table.header):
        # A header may wrap; a number only where the terminal would cut it off.
        shown.add_column(
            escape(name), justify="right" if index else "left", overflow="fold",
            min_width=max(len(row[index]) for row in table.rows) if index and is_wide else None,
        )  # fmt: skip
    for row in table.rows:
        shown.add_row(*map(escape, row))
    return shown
