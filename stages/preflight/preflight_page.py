"""Preflight's findings on the terminal: the worst last, where it is seen, with what to change."""

import io
import sys

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stages.preflight.preflight_findings import (
    ERROR,
    LEVELS,
    OK,
    UNCHECKED,
    WARNING,
    Finding,
    Recipe,
)

WIDTH = 120  # columns, also where the terminal is wider or is a file
STYLES = {ERROR: "bold red", WARNING: "yellow", UNCHECKED: "cyan", OK: "green"}


def show(recipe: Recipe, found: list[Finding], console: Console | None = None) -> None:
    """Print a heading, one row a finding, and a line that counts them.

    What is no terminal gets `WIDTH` columns, and no blanks at the end of its lines.
    """
    if console is None:
        terminal = Console()
        if not terminal.is_terminal:
            page = io.StringIO()
            show(recipe, found, Console(file=page, width=WIDTH))
            sys.stdout.writelines(f"{line.rstrip()}\n" for line in page.getvalue().splitlines())
            return
        console = Console(width=min(WIDTH, terminal.width))
    launch = recipe.launch
    processes = "1 process" if launch.processes == 1 else f"{launch.processes} processes"
    engine = "" if launch.engine == "none" else f", {launch.engine}"
    heading = f"{recipe.folder}: {processes}{engine}, {launch.gpu_memory:g} GiB a GPU"
    console.print(Text(heading, "bold"))
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for one in sorted(found, key=lambda one: -LEVELS.index(one.level)):
        text = Text(one.text)
        if one.remedy:
            text.append(f"\n→ {one.remedy}", "bold")
        table.add_row(Text(one.level, STYLES[one.level]), one.topic, text)
    console.print(table)
    counts = [
        f"{number} {name}{'s' if number != 1 and name in (ERROR, WARNING) else ''}"
        for name in LEVELS
        if (number := sum(one.level == name for one in found))
    ]
    console.print(Text(f"preflight: {', '.join(counts)}", "bold"))
