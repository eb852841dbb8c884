"""The audit as text: tables, failing rows and notes, for the terminal and `audit.txt` alike."""

import math
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from eval.audit.cases import TRICKS

MAX_LINES = 40  # failing rows shown; `audit.json` has all that were kept
MAX_CHARS = 200  # of a line about one of them


def percent(share: float | None) -> str:
    """A share in per cent, rounded down: only all of them are 100, and 98.99 is not 99."""
    # Shares are quotients: 0.29 * 1000 is a little below 290.
    return "-" if share is None else f"{math.floor(1000 * share + 1e-6) / 10:.1f}"


def show(report: dict[str, Any], console: Console | None = None) -> None:
    """Print the tables, the first failing rows, and what could not be audited.

    Args:
        report: `eval.audit.checks.audit_recipe`.
        console: the terminal by default.
    """
    console = console or Console(markup=False, highlight=False)
    sets, tricks = report["sets"], report["tricks"]
    golds = [
        [name, f"{found['num_rows']:,}", *map(percent, found["rates"].values())]
        for name, found in sets.items()
    ]
    read = [
        {"set": name, "ending": ending} | {parser: percent(share) for parser, share in one.items()}
        for name, found in sets.items()
        for ending, one in found["official"].items()
    ]
    paid = [
        [name, f"{tricks[name]['num_rows']:,}", str(tricks[name]["num_paid"])] for name in TRICKS
        if any(found["num_paid"] for found in tricks.values())
    ]  # fmt: skip
    header = ["set", "golds", "template", "reward", "think-aware task"]
    _print_table(console, "Golds that pass, %", header, golds)
    title = "Right answers that our parser and the harness's own read, %"
    _print_table(console, title, list(read[0]) if read else [], [[*one.values()] for one in read])
    _print_table(
        console, "Wrong answers and tricks that are paid", ["trick", "tried", "paid"], paid
    )
    console.print()
    for line in failure_lines(report):
        console.print(f"failed: {line}", soft_wrap=True)
    for line in report["notes"]:
        console.print(f"note: {line}", soft_wrap=True)


def _print_table(console: Console, title: str, header: list[str], rows: list[list[str]]) -> None:
    if not rows:
        return
    table = Table(
        title=title, title_justify="left", title_style="bold", box=SIMPLE, show_edge=False,
        padding=(0, 1, 0, 0),
    )  # fmt: skip
    for index, name in enumerate(header):
        is_text = index == 0 or name == "ending"
        # Narrow heads: six parsers must fit within 80 columns, uncut.
        head = name if is_text else name.replace(" ", "\n").replace("_", "_\n")
        table.add_column(head, justify="left" if is_text else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print()
    console.print(table)


def failure_lines(report: dict[str, Any]) -> list[str]:
    """One short line for each of the first failing rows."""
    lines = []
    for one in report["failures"][:MAX_LINES]:
        line = f"{one['set']}, row {one['row']}: {one['check']}: {one['fault']}"
        line = "".join(c if c.isprintable() else " " for c in line)  # ids are anybody's text
        lines.append(line if len(line) <= MAX_CHARS else line[: MAX_CHARS - 1] + "…")
    if (more := len(report["failures"]) - MAX_LINES) > 0:
        lines.append(f"{more:,} more are in audit.json")
    return lines


def write(report: dict[str, Any], path: str) -> None:
    """Write the whole audit to a text file: the verdict, its faults, and what `show` prints."""
    with open(path, "w", encoding="utf-8", errors="replace") as file:
        console = Console(file=file, width=120, markup=False, highlight=False)
        verdict = "passes" if report["passes"] else "fails:"
        console.print(f"Audit of {report['recipe']}: the recipe {verdict}", soft_wrap=True)
        for fault in report["faults"]:
            console.print(f"- {fault}", soft_wrap=True)
        show(report, console)
        tokenizer, limit = report["tokenizer"], report["max_new_tokens"]
        console.print(f"\nTokenizer: {tokenizer}; at most {limit} new tokens in the tasks.")
